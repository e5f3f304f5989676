"""The README is true: its commands and its program do what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from labctl.paths import PROJECT

pytestmark = pytest.mark.slow

PORTS = 2000 + os.getpid() % 1000
"""Of four digits; the fifth comes from the README."""


def blocks(language: str) -> list[str]:
    """The README's code blocks in one language; its three ports moved to where nobody listens."""
    text = (PROJECT / "README.md").read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(r"\b700([1-3])\b", rf"{PORTS}\1", block) for name, block in fenced if name == language]


def run(command: list[str], state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=PROJECT,
        env={"XDG_STATE_HOME": str(state), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def labctl(line: str, state: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(line)
    assert program == ".venv/bin/labctl"
    return run([sys.executable, "-c", "from labctl.cli import main; main()", *arguments], state)


def test_the_programs_print_what_the_readme_says(tmp_path: Path) -> None:
    programs = blocks("python")
    up, status, down = [
        line for block in blocks("") for line in block.splitlines() if line.startswith(".venv/bin/labctl")
    ]
    printed = [block for block in blocks("") if block.startswith(("{", "D-TX"))]
    assert len(programs) == len(printed) == 2
    started = labctl(up, tmp_path)
    try:
        assert started.returncode == 0, started.stderr
        for program, text in zip(programs, printed, strict=True):
            done = run([sys.executable, "-c", program], tmp_path)
            assert (done.stdout, done.stderr) == (text, "")
        seen = labctl(status, tmp_path)
        assert seen.returncode == 0, seen.stderr
    finally:
        assert labctl(down, tmp_path).returncode == 0


def test_a_durable_broker_can_be_killed_as_the_readme_says(tmp_path: Path) -> None:
    (block,) = [block for block in blocks("sh") if "kill -9" in block]
    up, _, restart = [line.partition("#")[0] for line in block.splitlines()]
    try:
        assert labctl(up, tmp_path).returncode == 0
        status = json.loads(labctl(".venv/bin/labctl overlay status --json", tmp_path).stdout)
        (pid,) = [broker["pid"] for broker in status["brokers"] if broker["broker"] == "b2"]
        os.kill(pid, signal.SIGKILL)
        done = labctl(restart, tmp_path)
        assert re.fullmatch(r"b2 runs again: \d+ entries recovered in \d\.\d{3} s\n", done.stdout), done
    finally:
        assert labctl(".venv/bin/labctl overlay down", tmp_path).returncode == 0


def test_every_link_to_a_file_leads_somewhere() -> None:
    for page in (PROJECT / "README.md", *(PROJECT / "docs").glob("*.md"), PROJECT / "CONTRIBUTING.md"):
        prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
