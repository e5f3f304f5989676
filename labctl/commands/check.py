"""`labctl check`: did a run keep its promises? By what its brokers and clients have told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from labctl.checks.verdict import lines_of, strongest, worst
from labctl.commands.options import Json
from labctl.exits import CHECK_FAILED, OUTCOME_UNKNOWN, USAGE
from labctl.output import Output

if TYPE_CHECKING:
    from labctl.checks.repetition import Judged
    from labctl.checks.verdict import Answer, Verdict
    from labctl.results.histories import Result

SHOWN_MAX = 10


def check(
    result: Annotated[
        Path, typer.Argument(help="The histories of a run (*.jsonl), or the result of an experiment.")
    ],
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Also replay the brokers' cores; needs histories at the level all."),
    ] = False,
    json: Json = False,
) -> None:
    """Decide whether a run kept its promises, from what its brokers and clients have told.

    One verdict per property: valid, invalid (with the operations that show it), or unknown (nothing to judge by, or
    a part is missing). Ends with 1 if a property is invalid, with 3 if none is valid. Of the result of an
    experiment every repetition is judged, as `run` and `report` do: also by whether everything is there and
    whether anything has committed. It ends with 1 if one of them is invalid, with 3 if one could not be judged.

    With --replay one property more: every broker did what its core does when it is given the same, in the same
    order (`labctl simulate replay --from`, for each repetition).
    """
    from labctl.results import layout
    from labctl.results.problem import ending_with

    out = Output(json)
    with ending_with(USAGE):
        if parts := layout.present(result):
            answer = _check_all(out, result, [result / part.path for part in parts], replay)
        elif (result / layout.CELL).exists():
            answer = _check_one(out, result, replay)
        else:
            answer = _check_histories(out, result, replay)
    if answer != "valid":
        raise typer.Exit(CHECK_FAILED if answer == "invalid" else OUTCOME_UNKNOWN)


def _check_all(out: Output, result: Path, parts: list[Path], replays: bool) -> Answer:
    judged = [(part.parent.name, part.name, _judged(part, replays)) for part in parts]
    answer = worst([each.answer for _, _, each in judged])
    columns = ("cell", "repetition", "verdict", "transactions", "committed", "faults", "anomalies")
    rows = [
        (
            *(cell, number, each.answer, each.transactions, each.committed),
            sum(len(v.faults) for v in each.verdicts),
            sum(len(v.anomalies) for v in each.verdicts),
        )
        for cell, number, each in judged
    ]
    told = [
        {**dict(zip(columns, row, strict=True)), "reasons": each.reasons}
        for row, (_, _, each) in zip(rows, judged, strict=True)
    ]
    out.document({"result": str(result), "answer": answer, "repetitions": told})
    if not out.json:
        out.table(str(result), columns, rows)
        for cell, number, each in judged:
            for text in each.reasons[:SHOWN_MAX]:
                for line in lines_of(f"{cell} #{number}", text):
                    out.say(line)
        replayed = [v for *_, each in judged for v in each.verdicts if v.property == "replay"]
        if replays and not any(verdict.faults for verdict in replayed):
            count = sum(verdict.checked for verdict in replayed)
            out.say(f"replayed: all {count:,} messages and decisions are those of the brokers' cores")
    return answer


def _judged(part: Path, replays: bool) -> Judged:
    from labctl.checks import repetition
    from labctl.results import accounts

    account = accounts.load(part)
    judged = repetition.judge(account)
    if not replays:
        return judged
    replayed = _replayed(account.result, part)
    answer: Answer = "invalid" if replayed.answer == "invalid" else judged.answer
    return replace(judged, answer=answer, verdicts=(*judged.verdicts, replayed))


def _replayed(loaded: Result, part: Path) -> Verdict:
    from labctl.simulate.recorded import reading, repetition
    from labctl.simulate.views import recorded

    return recorded.verdict(repetition.replay(reading.of(loaded, part)), repetition.is_of_other_code(part))


def _check_one(out: Output, part: Path, replays: bool) -> Answer:
    judged = _judged(part, replays)
    _tell(out, part, judged.answer, [], judged.verdicts)
    return judged.answer


def _check_histories(out: Output, result: Path, replays: bool) -> Answer:
    from labctl.checks.judge import judge
    from labctl.results.histories import load

    loaded = load(result)
    verdicts = [*judge(loaded), *([_replayed(loaded, result)] if replays else [])]
    answer = strongest([verdict.answer for verdict in verdicts])
    _tell(out, result, answer, loaded.gaps, verdicts)
    return answer


def _tell(
    out: Output, result: Path, answer: Answer, gaps: Sequence[str], verdicts: Sequence[Verdict]
) -> None:
    out.document({"result": str(result), "answer": answer, "gaps": gaps, "properties": verdicts})
    if out.json:
        return
    rows = [(v.property, v.answer, v.checked, len(v.faults), len(v.anomalies)) for v in verdicts]
    out.table(str(result), ("property", "verdict", "checked", "faults", "anomalies"), rows)
    for verdict in verdicts:
        for text in (*verdict.faults, *verdict.anomalies)[:SHOWN_MAX]:
            for line in lines_of(verdict.property, text):
                out.say(line)
    for gap in gaps:
        out.say(f"missing: {gap}")
