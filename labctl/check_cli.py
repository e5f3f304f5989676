"""`labctl check`: did a run keep its promises? By the histories of its brokers and clients alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labctl.exits import CHECK_FAILED, OUTCOME_UNKNOWN
from labctl.output import Output

SHOWN_MAX = 10


def check(
    result: Annotated[Path, typer.Argument(help="A folder with the histories of a run (*.jsonl).")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Decide from the histories of a run whether it kept its promises.

    One verdict per property: valid, invalid (with the operations that show it), or unknown (nothing to
    judge by, or a history is missing). Ends with 1 if a property is invalid, with 3 if none is valid.
    """
    from labctl.checks.files import load
    from labctl.checks.judge import judge

    out = Output(json)
    loaded = load(result)
    verdicts = judge(loaded)
    answers = [verdict.answer for verdict in verdicts]
    answer = "invalid" if "invalid" in answers else "valid" if "valid" in answers else "unknown"
    out.document({"result": str(result), "answer": answer, "gaps": loaded.gaps, "properties": verdicts})
    if not json:
        rows = [(v.property, v.answer, v.checked, len(v.faults), len(v.anomalies)) for v in verdicts]
        out.table(str(result), ("property", "verdict", "checked", "faults", "anomalies"), rows)
        for verdict in verdicts:
            for text in (*verdict.faults, *verdict.anomalies)[:SHOWN_MAX]:
                out.say(f"{verdict.property}: {text}")
        for gap in loaded.gaps:
            out.say(f"missing: {gap}")
    if answer != "valid":
        raise typer.Exit(CHECK_FAILED if answer == "invalid" else OUTCOME_UNKNOWN)
