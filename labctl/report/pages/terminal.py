"""The short version, for a terminal or a log file."""

from __future__ import annotations

from collections.abc import Sequence

from labctl.output import Output
from labctl.report.judgement.claims import Judgement
from labctl.report.judgement.compare import Difference
from labctl.report.judgement.model import Report
from labctl.report.pages.html import estimate, links, number, tally

PROBLEMS_SHOWN = 10


def show(out: Output, report: Report) -> None:
    run = report.run
    out.say(
        f"{run.get('experiment')}, profile {run.get('profile')}, started {run.get('started')}; {links(report)}"
    )
    judged = [j for j in report.judgements if j.is_measured]
    if judged:
        rows = [(j.id, j.text, j.verdict, _measured(j), j.paper) for j in judged]
        out.table("Claims", ("claim", "says", "verdict", "measured", "paper"), rows)
        for j in judged:
            out.say(f"{j.id}, measured is {j.value}: {j.reason}")
    absent = [j.id for j in report.judgements if not j.is_measured]
    if absent:
        out.say(f"Not measured in this result: {', '.join(absent)}")
    out.table(
        "Cells",
        ("cell", "valid", "repetitions", "latency ms", "p95", "transactions/s", "anomalies"),
        [
            (
                cell.id,
                cell.answer,
                len(cell.repetitions),
                estimate(cell.estimates.get("latency_ms")),
                number(cell.percentiles.get("p95")),
                estimate(cell.estimates.get("throughput")),
                cell.anomalies,
            )
            for cell in report.cells.values()
        ],
    )
    if report.disturbed:
        _show_faults(out, report)
    counts = ", ".join(f"{count} {word}" for word, count in tally(report).items())
    out.say(f"Claims: {counts}")
    show_doubts(out, report)


def _show_faults(out: Output, report: Report) -> None:
    out.table(
        "Faults",
        ("cell", "fault", "at s", "stopped s", "recovery s", "aborted", "unknown", "lost"),
        [
            (
                f"{each.cell} #{each.repetition}",
                effect.what,
                number(effect.begun_s),
                number(effect.stopped_s),
                number(effect.recovery_s),
                effect.aborted,
                effect.unknown,
                effect.lost,
            )
            for each in report.disturbed
            for effect in each.effects
        ],
    )


def show_doubts(out: Output, report: Report) -> None:
    for text in report.warnings:
        out.say(f"warning: {text}")
    same: dict[str, list[str]] = {}
    for cell in report.cells.values():
        for text in cell.warnings:
            same.setdefault(text, []).append(cell.id)
    for text, cells in same.items():
        whose = cells[0] if len(cells) == 1 else f"{len(cells)} of {len(report.cells)} cells"
        out.say(f"warning: {whose}: {text}")
    for text in report.problems[:PROBLEMS_SHOWN]:
        out.say(f"input: {text}")
    if len(report.problems) > PROBLEMS_SHOWN:
        out.say(f"input: and {len(report.problems) - PROBLEMS_SHOWN} more, all on the page")


def _measured(judgement: Judgement) -> str:
    if judgement.interval is None:
        return number(judgement.measured)
    return (
        f"{number(judgement.measured)} ({number(judgement.interval[0])} to {number(judgement.interval[1])})"
    )


def show_differences(out: Output, differences: Sequence[Difference], one: str, other: str) -> None:
    out.say(f"A is {one}")
    out.say(f"B is {other}")
    out.table(
        "B against A",
        ("cell", "metric", "A", "B", "B / A", "95 % interval", "more than noise"),
        [
            (
                d.cell,
                d.metric,
                number(d.a),
                number(d.b),
                number(d.ratio),
                f"{number(d.interval[0])} to {number(d.interval[1])}" if d.interval else None,
                d.answer,
            )
            for d in differences
        ],
    )
