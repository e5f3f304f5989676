"""`labctl check`: did a run keep its promises? By the histories of its brokers and clients alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labctl.commands.options import Json
from labctl.exits import CHECK_FAILED, OUTCOME_UNKNOWN, USAGE
from labctl.output import Output

if TYPE_CHECKING:
    from labctl.checks.verdict import Answer, Verdict

SHOWN_MAX = 10


def check(
    result: Annotated[
        Path, typer.Argument(help="The histories of a run (*.jsonl), or the result of an experiment.")
    ],
    json: Json = False,
) -> None:
    """Decide from the histories of a run whether it kept its promises.

    One verdict per property: valid, invalid (with the operations that show it), or unknown (nothing to
    judge by, or a history is missing). Ends with 1 if a property is invalid, with 3 if none is valid. Of the
    result of an experiment every repetition is judged.
    """
    from labctl.results.layout import finished
    from labctl.results.problem import ending_with

    out = Output(json)
    with ending_with(USAGE):
        parts = [result / part.path for part in finished(result)]
        answer = _check_all(out, result, parts) if parts else _check_one(out, result)
    if answer != "valid":
        raise typer.Exit(CHECK_FAILED if answer == "invalid" else OUTCOME_UNKNOWN)


def _check_all(out: Output, result: Path, parts: list[Path]) -> Answer:
    from labctl.checks.judge import judge
    from labctl.results.histories import load

    rows: list[tuple[str, str, Answer, int, int]] = []
    for part in parts:
        verdicts = judge(load(part))
        faults, anomalies = sum(len(v.faults) for v in verdicts), sum(len(v.anomalies) for v in verdicts)
        rows.append((part.parent.name, part.name, _answer(verdicts), faults, anomalies))
    answer: Answer = _worst([row[2] for row in rows])
    columns = ("cell", "repetition", "verdict", "faults", "anomalies")
    parts_told = [dict(zip(columns, row, strict=True)) for row in rows]
    out.document({"result": str(result), "answer": answer, "repetitions": parts_told})
    if not out.json:
        out.table(str(result), columns, rows)
    return answer


def _worst(answers: list[Answer]) -> Answer:
    """One broken promise is enough; where nothing is promised, nothing is broken."""
    return "invalid" if "invalid" in answers else "valid" if "valid" in answers else "unknown"


def _answer(verdicts: list[Verdict]) -> Answer:
    return _worst([verdict.answer for verdict in verdicts])


def _check_one(out: Output, result: Path) -> Answer:
    from labctl.checks.judge import judge
    from labctl.checks.verdict import lines_of
    from labctl.results.histories import load

    loaded = load(result)
    verdicts = judge(loaded)
    answer = _answer(verdicts)
    out.document({"result": str(result), "answer": answer, "gaps": loaded.gaps, "properties": verdicts})
    if not out.json:
        rows = [(v.property, v.answer, v.checked, len(v.faults), len(v.anomalies)) for v in verdicts]
        out.table(str(result), ("property", "verdict", "checked", "faults", "anomalies"), rows)
        for verdict in verdicts:
            for text in (*verdict.faults, *verdict.anomalies)[:SHOWN_MAX]:
                for line in lines_of(verdict.property, text):
                    out.say(line)
        for gap in loaded.gaps:
            out.say(f"missing: {gap}")
    return answer
