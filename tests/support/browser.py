"""A page in headless Chromium at a given width: what its console says, and what is visible of it."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from msgspec import Struct

from client.scenarios.approaches import APPROACHES

DEADLINE_S = 400
COLOURED = json.dumps([row.colour.lower() for row in APPROACHES.values()])
_HARNESS = """<!doctype html><meta charset="utf-8"><title>harness</title>
<iframe id="page" src="{page}" style="width:{width}px;height:2000px;border:0"></iframe><pre id="seen"></pre>
<script>
function luminance(text) {{
  const parts = text.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255);
  const linear = parts.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}}
function background(element) {{
  for (let at = element; at; at = at.parentElement) {{
    const colour = getComputedStyle(at).backgroundColor;
    if (!/rgba\\(0, 0, 0, 0\\)|transparent/.test(colour)) return colour;
  }}
  return "rgb(255, 255, 255)";
}}
function contrast(element) {{
  const a = luminance(getComputedStyle(element).color), b = luminance(background(element));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}}
document.getElementById("page").addEventListener("load", event => {{
  const inside = event.target.contentDocument, root = inside.documentElement;
  const every = [...inside.querySelectorAll("h1, h2, h3, p, dt, dd, td, th, .badge, figcaption, .warning")];
  const texts = every.filter((_, place) => place % Math.ceil(every.length / 500) == 0);
  document.getElementById("seen").textContent = JSON.stringify({{
    figures: [...inside.querySelectorAll("figure")].map(f => {{
      const box = f.querySelector("svg").getBoundingClientRect();
      const visible = e => {{ const b = e.getBoundingClientRect(); return b.width + b.height > 0; }};
      const data = e => {colours}.some(c => (e.getAttribute("style") || "").toLowerCase().includes(c));
      const scale = box.width / f.querySelector("svg").viewBox.baseVal.width;
      return {{name: f.id, left: box.left, width: box.width, height: box.height, text_px: {font} * scale,
        drawn: [...f.querySelectorAll("svg *")].filter(e => data(e) && visible(e)).length}};
    }}),
    page_width: root.scrollWidth, width: root.clientWidth,
    background: getComputedStyle(inside.body).backgroundColor,
    contrast: Math.min(...texts.map(contrast)),
    text_px: Math.min(...texts.map(t => parseFloat(getComputedStyle(t).fontSize))),
    external: [...inside.querySelectorAll("[src], link[href]")].map(e => e.src || e.href).filter(u => !u.startsWith("data:")),
  }});
}});
</script>"""


class Seen(Struct, frozen=True):
    page: dict[str, Any]
    console: list[str]
    """Errors and warnings."""


def look(chromium: str, page: Path, width: int, scratch: Path, dark: bool = False) -> Seen:
    harness = scratch / f"harness-{width}-{dark}.html"
    harness.write_text(_HARNESS.format(page=page.resolve().as_uri(), width=width, colours=COLOURED, font=8))
    command = [
        chromium,
        "--headless=new",
        # Tests run as root in containers, where Chromium's sandbox cannot.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--allow-file-access-from-files",
        f"--user-data-dir={scratch / f'profile-{width}-{dark}'}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        f"--window-size={width + 100},2200",
        "--enable-logging=stderr",
        "--virtual-time-budget=10000",
        "--dump-dom",
        harness.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr
    assert found[1], f"the page did not load: {done.stderr}"
    # Chromium's own errors (no D-Bus, no GPU) are not the page's.
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Seen(json.loads(html.unescape(found[1])), console)
