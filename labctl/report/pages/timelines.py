"""How repetitions with faults went on: latencies, and the rate of regular events, over time; each fault is a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.ticker import LogLocator, NullFormatter

from client.scenarios.approaches import approach_of
from labctl.faults.done import Span
from labctl.faults.plan import LinkFault
from labctl.report.judgement.disturbed import Disturbed, Timeline
from labctl.report.judgement.model import CellResult, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODE_COLOUR, LINK_COLOUR = "#c2553b", "#3b7ac2"
TITLE = "What faults did"
CAPTION = (
    "Each transaction that has committed, when and after how long, in the first repetition of a cell; of cells with "
    "regular events also how many a second reached the agents. Bands are faults, red of a node, blue of links."
)


def shown(report: Report) -> list[tuple[CellResult, Disturbed]]:
    """The first repetition of each cell with faults."""
    first: dict[str, Disturbed] = {}
    for each in report.disturbed:
        first.setdefault(each.cell, each)
    return [(cell, first[cell.id]) for cell in report.experiment() if cell.id in first]


def rows(found: Sequence[tuple[CellResult, Disturbed]]) -> int:
    return sum(2 if each.timeline.rates else 1 for _, each in found)


def fill(axes: Sequence[Axes], found: Sequence[tuple[CellResult, Disturbed]]) -> None:
    """One panel for each of `rows`."""
    panels = iter(axes)
    for cell, each in found:
        timeline, colour = each.timeline, approach_of(cell.approach).colour
        _latencies(axis := next(panels), timeline, colour)
        axis.set_title(f"{cell.label}, {cell.parameters['scenario']}", loc="left")
        _name(axis, timeline)
        if timeline.rates:
            _rates(next(panels), timeline, colour)
    axes[-1].set_xlabel("time (s)")


def _latencies(axis: Axes, timeline: Timeline, colour: str) -> None:
    axis.plot(*_columns(timeline.latencies), ".", color=colour, markersize=3)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_ylabel("latency (ms)")
    _bands(axis, timeline)


def _rates(axis: Axes, timeline: Timeline, colour: str) -> None:
    axis.plot(*_columns(timeline.rates), color=colour, linewidth=1)
    axis.set_ylim(bottom=0)
    axis.set_ylabel("events/s")
    _bands(axis, timeline)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _bands(axis: Axes, timeline: Timeline) -> None:
    axis.set_xlim(0, timeline.lasts_s)
    for span in timeline.faults:
        colour = LINK_COLOUR if isinstance(span.fault, LinkFault) else NODE_COLOUR
        axis.axvspan(span.begun_s, span.ended_s, color=colour, alpha=0.18, linewidth=0, zorder=0)


def _name(axis: Axes, timeline: Timeline) -> None:
    for span in timeline.faults:
        axis.annotate(
            _short(span),
            (span.begun_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2, -2),
            textcoords="offset points",
            va="top",
            fontsize=6,
            rotation=90,
        )


def _short(span: Span) -> str:
    return f"{span.number} {span.fault.kind.replace('_', ' ')}"
