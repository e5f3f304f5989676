"""Figures 5 to 9 in the paper's form, and one for consolidation: SVG for the page, SVG and PNG for a paper.

Colours and markers are those of `client.scenarios.approaches`; a hatch tells what is not of the paper's matrix.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.ticker import LogLocator, NullFormatter
from msgspec import Struct

from client.scenarios.approaches import Approach, approach_of
from labctl.report.judgement.model import CellResult, Report
from labctl.report.judgement.stats import Estimate
from labctl.report.pages import timelines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

INK = "#010203"
"""Of text and axes; a page replaces it by its own, light or dark."""
GRID = "#8a8a89"
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 9,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "figure.dpi": 100,
}
_MS, _RATE = "latency (ms)", "transactions/s"


class Figure(Struct, frozen=True):
    name: str
    title: str
    caption: str
    svg: str
    png: bytes


def draw(report: Report) -> list[Figure]:
    """Those for which there is something to show."""
    # A backend without a display, chosen here and not by the environment.
    mpl.use("Agg")
    makers = (_base, _overlay, _concurrency, _clients, _disruption, _faults)
    with mpl.rc_context(_STYLE):
        drawn = [*(make(report) for make in makers), *_others(report)]
        return [figure for figure in drawn if figure is not None]


def _base(report: Report) -> Figure | None:
    cells = report.paper(scenario="dispatching", brokers=3, in_flight=1, copies=1)
    return _bars("figure-5", "Figure 5: dispatching on three brokers, one transaction at a time", cells)


def _others(report: Report) -> list[Figure | None]:
    """Consolidation, and scenarios of one's own: all their cells."""
    names = dict.fromkeys(cell.parameters["scenario"] for cell in report.cells.values())
    figures = []
    for name in names:
        if name not in ("dispatching", "disruption"):
            cells = report.paper(scenario=name)
            title = f"{name.rpartition('.')[2].capitalize()}{_where(cells)}" if cells else ""
            figures.append(_bars(name.replace(".", "-"), title, cells))
    return figures


_SIZES = {"brokers": "brokers", "in_flight": "in flight", "copies": "copies"}


def _where(cells: Sequence[CellResult]) -> str:
    """What all of them have in common, for a title."""
    first = cells[0].parameters
    words = [
        f"{first[name]} {word}"
        for name, word in _SIZES.items()
        if first[name] != 1 and all(cell.parameters[name] == first[name] for cell in cells)
    ]
    return f" ({', '.join(words)})" if words else ""


def _apart(cell: CellResult, cells: Sequence[CellResult]) -> str:
    """What tells one of them from the others besides the approach."""
    varying = [n for n in _SIZES if any(c.parameters[n] != cell.parameters[n] for c in cells)]
    return "".join(f", {cell.parameters[name]} {_SIZES[name]}" for name in varying)


def _overlay(report: Report) -> Figure | None:
    return _lines(
        report, "figure-6", "Figure 6: growing overlay", "brokers", "brokers", in_flight=1, copies=1
    )


def _concurrency(report: Report) -> Figure | None:
    title = "Figure 7: transactions in flight at one coordinator"
    return _lines(report, "figure-7", title, "in_flight", "transactions in flight", brokers=3, copies=1)


def _clients(report: Report) -> Figure | None:
    title = "Figure 8: growing number of clients"
    return _lines(report, "figure-8", title, "copies", "clients", 4, brokers=3, in_flight=1)


def _bars(name: str, title: str, cells: Sequence[CellResult]) -> Figure | None:
    shown = [cell for cell in cells if "latency_ms" in cell.estimates]
    if not shown:
        return None
    drawing, axes = _panels(2, (7.2, 0.9 + 0.34 * len(shown)), sharey=True)
    for axis, column, label in zip(axes, ("latency_ms", "throughput"), (_MS, _RATE), strict=True):
        axis.grid(visible=False)
        axis.grid(visible=True, axis="x")
        for place, cell in enumerate(shown):
            _bar(axis, place, cell, cell.estimates.get(column))
            _dots(axis, place, [r.values[column] for r in cell.repetitions if column in r.values])
        axis.set_yticks(range(len(shown)), [cell.label + _apart(cell, shown) for cell in shown])
        axis.set_xlabel(label)
        axis.margins(x=0.18)
    axes[0].invert_yaxis()
    return _finish(
        drawing,
        name,
        title,
        f"Means with 95 % intervals; each dot is a repetition. {_invalid(cells)}".strip(),
    )


def _bar(axis: Axes, place: int, cell: CellResult, estimate: Estimate | None) -> None:
    if estimate is None:
        return
    axis.barh(
        place,
        estimate.value,
        height=0.62,
        color=approach_of(cell.approach).colour,
        hatch=None if cell.is_plain else "////",
        edgecolor=INK,
        linewidth=0.5,
        xerr=_error(estimate),
        error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 3},
    )
    end = max(estimate.value, estimate.high or 0)
    text = f"{estimate.value:.0f}" if estimate.value >= 100 else f"{estimate.value:.1f}"
    axis.annotate(text, (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)


def _dots(axis: Axes, place: int, values: Sequence[float]) -> None:
    """Each repetition by itself."""
    axis.plot(values, [place + 0.2] * len(values), ".", color=INK, markersize=3, alpha=0.6, linestyle="none")


def _error(estimate: Estimate) -> list[list[float]] | None:
    interval = estimate.interval
    return None if interval is None else [[estimate.value - interval[0]], [interval[1] - estimate.value]]


def _lines(
    report: Report, name: str, title: str, axis_name: str, label: str, unit: int = 1, **fixed: int
) -> Figure | None:
    cells = [cell for cell in report.paper(scenario="dispatching", **fixed) if cell.is_plain]
    shown = [cell for cell in cells if "latency_ms" in cell.estimates]
    values = sorted({cell.parameters[axis_name] for cell in shown})
    if len(values) < 2:
        return None
    drawing, axes = _panels(2, (7.2, 3.1))
    approaches = list(dict.fromkeys(cell.approach for cell in shown))
    for axis, column, y_label in zip(axes, ("latency_ms", "throughput"), (_MS, _RATE), strict=True):
        for approach in approaches:
            own = sorted(
                (c for c in shown if c.approach == approach), key=lambda c: int(c.parameters[axis_name])
            )
            _line(
                axis,
                approach_of(approach),
                [(unit * c.parameters[axis_name], c.estimates[column]) for c in own],
            )
        axis.set_xticks([unit * value for value in values])
        axis.set_xlabel(label)
        axis.set_ylabel(y_label)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    handles, labels = axes[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 6), fontsize=8)
    caption = f"Means with 95 % intervals over repetitions; logarithmic scale. {_invalid(cells)}".strip()
    return _finish(drawing, name, title, caption)


def _line(axis: Axes, approach: Approach, points: Sequence[tuple[int, Estimate]]) -> None:
    below = [0.0 if e.low is None else e.value - e.low for _, e in points]
    above = [0.0 if e.high is None else e.high - e.value for _, e in points]
    axis.errorbar(
        [x for x, _ in points],
        [e.value for _, e in points],
        yerr=[below, above],
        label=approach.label,
        color=approach.colour,
        marker=approach.marker,
        markersize=5,
        linewidth=1.4,
        capsize=3,
        elinewidth=1,
    )


def _disruption(report: Report) -> Figure | None:
    cells = [
        cell
        for cell in report.paper(scenario="disruption")
        if report.curves.get(cell.id)
        and cell.parameters.get("work") != "consolidation"
        and cell.answer != "invalid"
    ]
    if not cells:
        return None
    cells.sort(key=lambda cell: cell.parameters.get("load") == "open")
    drawing, axes = _panels(len(cells), (7.2, 0.7 + 1.15 * len(cells)), column=True, sharex=True, sharey=True)
    for axis, cell in zip(axes, cells, strict=True):
        points = report.curves[cell.id]
        axis.plot(
            [p.time_s for p in points],
            [p.rate for p in points],
            color=approach_of(cell.approach).colour,
            linewidth=1,
        )
        axis.fill_between(
            [p.time_s for p in points],
            0,
            1,
            where=[p.transaction for p in points],
            step="post",
            transform=axis.get_xaxis_transform(),
            color=GRID,
            alpha=0.25,
            linewidth=0,
            zorder=0,
        )
        drop = cell.estimates.get("drop")
        axis.set_title(f"{cell.label}" + (f": drop {drop.value:.1%}" if drop else ""), loc="left")
        axis.set_ylim(bottom=0)
        axis.set_ylabel("events/s")
    axes[-1].set_xlabel("time (s)")
    caption = "Regular events reaching the agents in the first repetition; grey: a transaction is under way."
    return _finish(drawing, "figure-9", "Figure 9: what transactions do to regular events", caption)


def _faults(report: Report) -> Figure | None:
    found = timelines.shown(report)
    if not found:
        return None
    panels = timelines.rows(found)
    drawing, axes = _panels(panels, (7.2, 0.7 + 1.35 * panels), column=True)
    timelines.fill(axes, found)
    return _finish(drawing, "faults", timelines.TITLE, timelines.CAPTION)


def _invalid(cells: Sequence[CellResult]) -> str:
    names = [cell.id for cell in cells if cell.answer == "invalid"]
    return f"Not shown, because invalid: {', '.join(names)}." if names else ""


def _panels(
    count: int, size: tuple[float, float], column: bool = False, **shared: bool
) -> tuple[Drawing, list[Axes]]:
    from matplotlib.figure import Figure as New

    drawing = New(figsize=size, layout="constrained")
    grid: Callable[..., Any] = drawing.subplots
    axes = grid(count if column else 1, 1 if column else count, squeeze=False, **shared)
    return drawing, list(axes.ravel())


def _finish(drawing: Drawing, name: str, title: str, caption: str) -> Figure:
    # Identifiers inside an SVG follow from its salt: several on one page must not share them.
    with mpl.rc_context({"svg.hashsalt": name}):
        text = io.StringIO()
        drawing.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    data = io.BytesIO()
    drawing.savefig(data, format="png", dpi=200, facecolor="white")
    return Figure(name, title, caption, text.getvalue(), data.getvalue())
