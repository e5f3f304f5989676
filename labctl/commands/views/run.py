"""What one sees of an experiment: tables before it is run; a live picture, or plain lines, while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labctl.conduct.conductor import RunOrder, RunView
from labctl.experiment import client_processes, experiment, schedule
from labctl.experiment.schedule import Unit
from labctl.faults.plan import FaultPlan
from labctl.output import Output, is_terminal
from labctl.run.runner import Progress, Ran

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

REFRESH_S = 0.25
PLAIN_S = 15.0
"""Between two lines about the same repetition."""


def show_experiments(out: Output) -> None:
    found = [experiment.find(each)[0] for each in experiment.names()]
    rows = [(e.name, e.figure, len(e.cells), ", ".join(_varied(e.cells))) for e in found]
    out.document({"experiments": [{"name": n, "figure": f, "cells": c, "varies": v} for n, f, c, v in rows]})
    if not out.json:
        out.table("Experiments", ("name", "figure", "cells", "what varies"), rows)


def _varied(cells: tuple[Any, ...]) -> list[str]:
    """The axes with more than one value."""
    found = []
    for axis in dict.fromkeys(axis for cell in cells for axis in cell.parameters()):
        values = list(dict.fromkeys(getattr(cell, axis) for cell in cells if getattr(cell, axis) is not None))
        if len(values) > 1:
            found.append(f"{axis} {'/'.join(map(_shown, values))}")
    return found


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def show_plan(out: Output, what: RunOrder) -> None:
    rows = []
    for cell in what.cells:
        one_s = what.estimate_s(cell)
        rows.append(
            (
                cell.id,
                cell.brokers,
                len(client_processes.clients(cell)),
                what.repetitions,
                what.repetitions * one_s,
            )
        )
    waiting = [cell for cell in what.cells if cell.waits]
    calibration_s = sum(schedule.calibration_s(cell, what.profile, what.repetitions) for cell in waiting)
    total_s = sum(row[-1] for row in rows) + calibration_s
    plans = _plans(what)
    out.document(
        {
            "experiment": what.name,
            "profile": what.profile.name,
            "cells": [
                {"id": i, "brokers": b, "clients": c, "repetitions": r, "estimate_s": round(s, 1)}
                for i, b, c, r, s in rows
            ],
            "calibrations": len(waiting),
            "calibration_s": round(calibration_s, 1),
            "estimate_s": round(total_s, 1),
            **({"faults": {label: plan.document() for label, plan in plans.items()}} if plans else {}),
        }
    )
    if out.json:
        return
    title = f"{what.name}, profile {what.profile.name}: {len(rows)} cells"
    out.table(title, ("cell", "brokers", "clients", "repetitions", "seconds"), rows)
    out.say(
        f"{len(waiting)} calibrations, about {duration(calibration_s)} where none is stored; "
        f"about {duration(total_s)} in all (an estimate, not a measurement)"
    )
    for labels, lines in _alike(plans).items():
        out.say(f"\nfaults in {labels}:")
        for line in lines:
            out.say(f"  {line}")


def _plans(what: RunOrder) -> dict[str, FaultPlan]:
    """By repetition, where there are faults."""
    found = {unit.label: what.plan(unit) for unit in sorted(what.units(), key=lambda unit: unit.key)}
    return {label: plan for label, plan in found.items() if plan is not None}


def _alike(plans: Mapping[str, FaultPlan]) -> dict[str, list[str]]:
    """The same faults only once, with all repetitions that have them."""
    labels: dict[tuple[str, ...], list[str]] = {}
    for label, plan in plans.items():
        labels.setdefault(tuple(plan.lines()), []).append(label)
    return {", ".join(names): list(lines) for lines, names in labels.items()}


@contextmanager
def watching(out: Output, total: int, done: int) -> Iterator[RunView]:
    """A view for the length of a block; always on stderr."""
    if not is_terminal(sys.stderr):
        yield Plain(out, total, done)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with Live(console=console, refresh_per_second=1 / REFRESH_S, transient=True) as live:
        yield Picture(live, total, done)


def duration(seconds: float) -> str:
    """1 h 05 min; 12 min; 40 s."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def outcome(ran: Ran) -> str:
    """The counted transactions of a repetition in a few words."""
    counted = [record for record in ran.records if not record.warm_up]
    wrong = sum(record.correct is False for record in counted)
    uncommitted = sum(record.outcome != "committed" for record in counted)
    latencies = sorted(client_processes.latencies_ms(ran.records))
    judged = ran.judged
    if judged is not None and judged.answer != "valid":
        # With its first reason, which says how many have committed.
        return f"{judged.answer.upper()}: {next(iter(judged.reasons), 'nothing to judge by')}"
    parts = [f"{len(counted)} transactions"]
    if latencies:
        parts.append(f"median {latencies[len(latencies) // 2]:.1f} ms")
    if wrong:
        parts.append(f"{wrong} wrong")
    if uncommitted:
        parts.append(f"{uncommitted} not committed")
    return ", ".join(parts)


class Plain:
    """A line when something begins or ends, and now and then one in between."""

    def __init__(self, out: Output, total: int, done: int) -> None:
        self._out = out
        self._total = total
        self._done = done
        self._failed = 0
        self._unit = ""
        self._told_at = 0.0

    def say(self, text: str) -> None:
        self._out.note(text)

    def calibrating(self, cell: str, number: int, total: int) -> None:
        self._unit = f"calibration {cell}"
        self._out.note(f"calibrating {number} of {total}: {cell}")

    def started(self, unit: Unit, left_s: float) -> None:
        self._unit = unit.label
        self._told_at = time.monotonic()

    def progress(self, progress: Progress) -> None:
        if progress.phase != "running" or time.monotonic() - self._told_at < PLAIN_S:
            return
        self._told_at = time.monotonic()
        self._out.note(f"{self._unit}: {_current(progress)}")

    def finished(self, unit: Unit, ran: Ran, left_s: float) -> None:
        self._done += 1
        self._out.note(
            f"{self._tally()} {unit.label}: {outcome(ran)}; took {ran.seconds:.0f} s, {duration(left_s)} left"
        )

    def failed(self, unit: Unit, reason: str, kept: Path) -> None:
        self._failed += 1
        self._out.note(f"{self._tally()} {unit.label} failed: {reason} (kept in {kept})")

    def _tally(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        return f"[{self._done}/{self._total}{failed}]"


def _current(progress: Progress) -> str:
    text = f"{progress.done} of {progress.total}" if progress.total else progress.phase
    if progress.rate is not None:
        text += f", {progress.rate:.1f}/s"
    if progress.latency_ms is not None:
        text += f", {progress.latency_ms:.1f} ms"
    return text


class Picture:
    """Redrawn in place: how far everything is, and what is going on."""

    def __init__(self, live: Live, total: int, done: int) -> None:
        self._live = live
        self._total = total
        self._done = done
        self._failed = 0
        self._now = ""
        self._progress = Progress("")
        self._left_at = (time.monotonic(), 0.0)
        self._drawn_at = 0.0

    def say(self, text: str) -> None:
        self._live.console.print(text)

    def calibrating(self, cell: str, number: int, total: int) -> None:
        self._now = f"calibration {number} of {total}: {cell}"
        self._draw()

    def started(self, unit: Unit, left_s: float) -> None:
        self._now = unit.label
        self._left_at = (time.monotonic(), left_s)
        self._draw()

    def progress(self, progress: Progress) -> None:
        self._progress = progress
        if time.monotonic() - self._drawn_at > REFRESH_S:
            self._draw()

    def finished(self, unit: Unit, ran: Ran, left_s: float) -> None:
        self._done += 1
        self._now = ""
        self._left_at = (time.monotonic(), left_s)
        self._live.console.print(f"{unit.label}: {outcome(ran)}")
        self._draw()

    def failed(self, unit: Unit, reason: str, kept: Path) -> None:
        self._failed += 1
        self._now = ""
        self._live.console.print(f"{unit.label} failed: {reason} (kept in {kept})", style="red")
        self._draw()

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        self._live.update(self._rendered())

    def _rendered(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        since, left_s = self._left_at
        left = max(0.0, left_s - (time.monotonic() - since))
        top = Table.grid(padding=(0, 2))
        failed = f", {self._failed} failed" if self._failed else ""
        running = 1 if self._now else 0
        top.add_row(
            ProgressBar(total=max(1, self._total), completed=self._done, width=40),
            f"{self._done} of {self._total} done, {running} running{failed}",
            f"{duration(left)} left" if left_s else "",
        )
        below = Table.grid(padding=(0, 2))
        progress = self._progress
        bar = ProgressBar(total=max(1, progress.total), completed=progress.done, width=40)
        below.add_row(bar, self._now, progress.phase if progress.phase != "running" else _current(progress))
        return Group(top, below)
