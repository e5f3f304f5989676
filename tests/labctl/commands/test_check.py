"""`labctl check` on what experiments leave: one repetition, and all of a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labctl.cli import app
from labctl.report.judgement import claims
from labctl.results.histories import load
from labctl.results.layout import repetition
from tests.support import damage, synthetic
from tests.support.damage import Damage
from tests.support.synthetic import Spec


@pytest.fixture
def result(tmp_path: Path) -> Path:
    cells = (claims.cell("d-tx"), claims.cell("s-tx"))
    return synthetic.write(tmp_path / "result", Spec(cells, repetitions=2, transactions=3, warm_up=0))


def first(result: Path) -> Path:
    return result / repetition(claims.cell("d-tx").id, 1)


def test_a_repetition_is_read_from_its_histories_and_not_from_its_other_logs(result: Path) -> None:
    found = load(first(result))
    assert {Path(file.path).parent.name for file in found.files} == {"history"}


def test_of_a_result_every_repetition_is_judged(result: Path) -> None:
    done = CliRunner().invoke(app, ["check", str(result), "--json"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["answer"]) == (0, "valid")
    judged = {(part["cell"], part["repetition"]): part["verdict"] for part in document["repetitions"]}
    assert judged == {
        (f"dispatching-{approach}-b3-k1-c1", number): "valid"
        for approach in ("d-tx", "s-tx")
        for number in ("01", "02")
    }


def test_one_repetition_that_broke_its_promise_makes_the_result_invalid(result: Path) -> None:
    part = first(result)
    history = part / "history" / "A1.jsonl"
    kept = [line for line in history.read_text().splitlines() if '"delivered"' not in line]
    lines = [{**json.loads(line), "number": number} for number, line in enumerate(kept, 1)]
    history.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    done = CliRunner().invoke(app, ["check", str(result), "--json"])
    assert done.exit_code == 1
    verdicts = [part["verdict"] for part in json.loads(done.stdout)["repetitions"]]
    assert verdicts == ["invalid", "valid", "valid", "valid"]


@pytest.mark.parametrize(
    ("spoil", "code", "answer", "says"),
    [
        (damage.UNKNOWN["half the lines of transactions"], 3, "unknown", "where 3 were to be"),
        (damage.UNKNOWN["every line of transactions twice"], 3, "unknown", "that have one already"),
        (damage.UNKNOWN["a coordinator's history of garbage"], 3, "unknown", "there is no history of E"),
        (lambda part: (part / "cell.json").unlink(), 3, "unknown", "does not say what was to be done"),
        (
            damage.INVALID["nothing committed"],
            1,
            "invalid",
            "0 of 3 transactions committed (3 aborted: it is",
        ),
    ],
)
def test_what_is_wrong_with_one_repetition_is_said(
    result: Path, spoil: Damage, code: int, answer: str, says: str
) -> None:
    spoil(first(result))
    for folder in (result, first(result)):
        told = CliRunner().invoke(app, ["check", str(folder), "--json"])
        assert (told.exit_code, json.loads(told.stdout)["answer"]) == (code, answer)
        shown = CliRunner().invoke(app, ["check", str(folder)])
        assert (shown.exit_code, says in " ".join(shown.stdout.split())) == (code, True), shown.stdout
        if not (first(result) / "cell.json").exists():
            break  # a folder of histories, and no repetition any more
    document = json.loads(CliRunner().invoke(app, ["check", str(result), "--json"]).stdout)
    assert [part["verdict"] for part in document["repetitions"]] == [answer, "valid", "valid", "valid"]
    assert says in " ".join(document["repetitions"][0]["reasons"])
