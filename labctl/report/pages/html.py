"""One self-contained page: nothing is loaded from anywhere, it opens offline, in light and in dark."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import jinja2
import msgspec

from client.scenarios.approaches import approach_of
from labctl.report.judgement.claims import RULE
from labctl.report.judgement.model import Bin, CellResult, Report
from labctl.report.judgement.stats import Estimate
from labctl.report.pages.figures import INK, Figure

_FOLDER = Path(__file__).parent
WIDTH, HEIGHT, BARS = 180, 34, 60


def page(report: Report, figures: Sequence[Figure]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": number, "estimate": estimate, "slug": _slug, "json": _json}
    cells = list(report.cells.values())
    edges = _edges(cells)
    return environment.get_template("page.html.j2").render(
        report=report,
        run=report.run,
        figures=[(figure, inline(figure.svg)) for figure in figures],
        groups=_groups(report),
        histograms={
            cell.id: sparkline(cell.histogram, edges, approach_of(cell.approach).colour) for cell in cells
        },
        edges=edges,
        style=(_FOLDER / "page.css").read_text(),
        rule=RULE,
        absent=[judgement for judgement in report.judgements if not judgement.is_measured],
        tally=tally(report),
        links=links(report),
    )


def tally(report: Report) -> dict[str, int]:
    """Verdicts; claims of which the result has no cell are inconclusive too, and are told apart."""
    found = {"holds": 0, "does not hold": 0, "inconclusive": 0, "not measured": 0}
    for judgement in report.judgements:
        found[judgement.verdict if judgement.is_measured else "not measured"] += 1
    return found


def _groups(report: Report) -> list[tuple[str, list[CellResult]]]:
    """By scenario, in the paper's order of approaches."""
    scenarios = dict.fromkeys(cell.parameters["scenario"] for cell in report.cells.values())
    return [(name, report.experiment(scenario=name)) for name in scenarios]


def inline(svg: str) -> str:
    """The drawing alone, its ink that of the page, as wide as there is room."""
    start = svg.index("<svg")
    body = re.sub(r"<metadata>.*?</metadata>", "", svg[start:], flags=re.DOTALL)
    body = re.sub(r' (width|height)="[\d.]+pt"', "", body, count=2)
    return body.replace(INK, "currentColor")


def number(value: float | None, digits: int = 3) -> str:
    """With as many digits as say something."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 4)}f}"


def estimate(value: Estimate | None) -> str:
    if value is None:
        return "-"
    if value.interval is None:
        return number(value.value)
    return f"{number(value.value)} ({number(value.interval[0])} to {number(value.interval[1])})"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _edges(cells: Sequence[CellResult]) -> tuple[float, float]:
    """The shortest and the longest transaction of all, so that every distribution has the same axis."""
    lows = [b.low_ms for cell in cells for b in cell.histogram]
    return (min(lows), max(lows) * 1.05) if lows else (1.0, 10.0)


def sparkline(bins: Sequence[Bin], edges: tuple[float, float], colour: str) -> str:
    """A small histogram over a logarithmic axis."""
    if not bins:
        return ""
    low, high = math.log(edges[0]), math.log(edges[1])
    heights = [0] * BARS
    for each in bins:
        place = int((math.log(each.low_ms) - low) / (high - low) * BARS)
        heights[min(max(place, 0), BARS - 1)] += each.transactions
    top, width = max(heights), WIDTH / BARS
    bars = "".join(
        f'<rect x="{place * width:.1f}" y="{HEIGHT - height / top * HEIGHT:.1f}" width="{width:.1f}"'
        f' height="{height / top * HEIGHT:.1f}"/>'
        for place, height in enumerate(heights)
        if height
    )
    return (
        f'<svg class="spark" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="distribution of latency" '
        f'fill="{colour}"><line x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}" stroke="currentColor"/>{bars}</svg>'
    )


def links(report: Report) -> str:
    """Which delays the result was made with."""
    delay = (report.run.get("testbed") or {}).get("delay")
    if not delay:
        return "links without emulated delay"
    return (
        f"emulated links: client {delay['client_ms']:g} ms, broker {delay['broker_ms']:g} ms, "
        f"log-normal sigma {delay['sigma']:g}"
    )
