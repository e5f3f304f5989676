"""The one judgement on a repetition: whether it is whole, whether it did anything, and whether promises were kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labctl.checks.repetition import Judged, judge, overall
from labctl.report.judgement import claims
from labctl.results import accounts
from labctl.results.layout import repetition
from tests.support import damage, synthetic
from tests.support.synthetic import Spec

APPROACHES = ("d-tx", "s-tx", "bl-wait")


def made(folder: Path, approach: str = "d-tx", copies: int = 1) -> Path:
    cell = claims.cell(approach, copies=copies)
    root = synthetic.write(folder / approach, Spec((cell,), repetitions=1, transactions=6))
    return root / repetition(cell.id, 1)


def judged(part: Path) -> Judged:
    return judge(accounts.load(part))


@pytest.mark.parametrize("approach", APPROACHES)
def test_a_repetition_that_is_whole_and_kept_its_promises_is_valid(tmp_path: Path, approach: str) -> None:
    found = judged(made(tmp_path, approach, copies=2))
    assert (found.answer, found.reasons) == ("valid", [])
    assert (found.committed, found.transactions) == (12, 12), "without the warm-up"


@pytest.mark.parametrize("approach", APPROACHES)
@pytest.mark.parametrize("name", damage.UNKNOWN)
def test_of_one_that_is_damaged_nothing_is_known(tmp_path: Path, name: str, approach: str) -> None:
    part = made(tmp_path, approach)
    damage.UNKNOWN[name](part)
    found = judged(part)
    assert found.answer == "unknown"
    assert found.reasons
    assert {verdict.answer for verdict in found.verdicts if verdict.property == "whole"} == {"unknown"}


@pytest.mark.parametrize("name", damage.OF_MEASUREMENTS)
def test_measurements_are_what_was_measured_or_nothing_is_known(tmp_path: Path, name: str) -> None:
    cell = claims.cell("d-tx", scenario="disruption")
    root = synthetic.write(tmp_path, Spec((cell,), repetitions=1, transactions=6))
    part = root / repetition(cell.id, 1)
    assert judged(part).answer == "valid"
    damage.OF_MEASUREMENTS[name](part)
    found = judged(part)
    assert (found.answer, len(found.reasons)) == ("unknown", 1)
    assert "lines that can be read, where" in found.reasons[0]


@pytest.mark.parametrize("name", damage.INVALID)
def test_a_repetition_that_measured_nothing_or_went_wrong_is_invalid(tmp_path: Path, name: str) -> None:
    part = made(tmp_path)
    damage.INVALID[name](part)
    assert judged(part).answer == "invalid"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"parameters": {}}', '{"parameters": null}'])
def test_without_what_was_to_be_done_nothing_is_known(tmp_path: Path, text: str) -> None:
    part = made(tmp_path)
    (part / "cell.json").write_text(text)
    found = judged(part)
    assert (found.answer, found.reasons) == ("unknown", ["whole: cell.json does not say what was to be done"])


def test_an_empty_folder_is_unknown_and_no_error(tmp_path: Path) -> None:
    assert judged(tmp_path).answer == "unknown"


# Whether anything committed


def failed(part: Path, reasons: list[str], copy: int = 0) -> None:
    """The transactions of one coordinator do not commit, for these reasons in turn."""

    def change(lines: list[str]) -> list[str]:
        rows = [json.loads(line) for line in lines]
        mine = [row for row in rows if row["copy"] == copy]
        for place, row in enumerate(mine):
            row |= {"outcome": "aborted", "reason": reasons[place % len(reasons)], "correct": None}
        return [json.dumps(row) + "\n" for row in rows]

    damage.edit(part / "transactions.jsonl", change)


def test_how_many_committed_and_why_not_is_said(tmp_path: Path) -> None:
    part = made(tmp_path)
    failed(part, ["a conflict", "a conflict", "too late"])
    found = judged(part)
    assert found.answer == "invalid"
    assert found.reasons == [
        "commits: 0 of 6 transactions committed (4 aborted: a conflict; 2 aborted: too late)"
    ]


def test_each_coordinator_has_to_commit_something(tmp_path: Path) -> None:
    part = made(tmp_path, copies=3)
    failed(part, ["starved"], copy=1)
    found = judged(part)
    assert (found.answer, found.committed) == ("invalid", 12)
    assert found.reasons == [
        "commits: 12 of 18 transactions committed, none of 1 of the 3 coordinators (6 aborted: starved)"
    ]


def test_a_few_that_abort_are_told_and_break_nothing(tmp_path: Path) -> None:
    part = made(tmp_path)

    def change(lines: list[str]) -> list[str]:
        return [
            *lines[:-1],
            json.dumps(json.loads(lines[-1]) | {"outcome": "aborted", "reason": "late"}) + "\n",
        ]

    damage.edit(part / "transactions.jsonl", change)
    found = judged(part)
    (commits,) = [verdict for verdict in found.verdicts if verdict.property == "commits"]
    assert (found.answer, commits.note) == ("valid", "5 of 6 transactions committed (1 aborted: late)")


def test_a_reason_that_only_the_history_has_is_told(tmp_path: Path) -> None:
    part = made(tmp_path)
    failed(part, [""])
    fields = '"outcome":"aborted","reason":"no attribute"'
    for node in ("E", "A1", "A2"):
        damage.edit(
            part / "history" / f"{node}.jsonl",
            lambda lines: [line.replace('"outcome":"committed","reason":""', fields) for line in lines],
        )
    (reason,) = [text for text in judged(part).reasons if text.startswith("commits")]
    assert reason == "commits: 0 of 6 transactions committed (8 aborted: no attribute)"


def test_a_coordinator_that_gave_up_with_its_first_transaction_did_not_just_lose_lines(
    tmp_path: Path,
) -> None:
    part = made(tmp_path)
    failed(part, ["no attribute"])
    damage.edit(part / "transactions.jsonl", lambda lines: lines[:2])
    assert judged(part).answer == "unknown", "histories say that something has committed"
    damage.edit(
        part / "history" / "E.jsonl",
        lambda lines: [line.replace('"outcome":"committed"', '"outcome":"aborted"') for line in lines],
    )
    assert judged(part).answer == "invalid"


# Where messages went


@pytest.mark.parametrize(
    ("approach", "answer", "faults", "anomalies"), [("s-tx", "invalid", 2, 0), ("bl-wait", "valid", 0, 2)]
)
def test_wrong_routing_is_a_fault_of_s_tx_and_an_anomaly_of_bl_wait(
    tmp_path: Path, approach: str, answer: str, faults: int, anomalies: int
) -> None:
    part = made(tmp_path, approach)

    def change(lines: list[str]) -> list[str]:
        late = {"correct": False, "fault": "late-subscription"}
        return [*lines[:-2], *(json.dumps(json.loads(line) | late) + "\n" for line in lines[-2:])]

    damage.edit(part / "transactions.jsonl", change)
    found = judged(part)
    (routing,) = [verdict for verdict in found.verdicts if verdict.property == "routing"]
    assert (found.answer, routing.answer) == (answer, answer)
    assert (len(routing.faults), len(routing.anomalies)) == (faults, anomalies)
    assert "late-subscription" in (*routing.faults, *routing.anomalies)[0]


# The answer to all


@pytest.mark.parametrize(
    ("changed", "answer"),
    [
        ({}, "valid"),
        ({"links": "unknown"}, "valid"),
        ({"links": "invalid"}, "invalid"),
        ({"atomicity": "unknown"}, "unknown"),
        ({"whole": "unknown", "commits": "invalid"}, "invalid"),
    ],
)
def test_a_broken_promise_outweighs_what_is_not_known(changed: dict[str, str], answer: str) -> None:
    good = dict.fromkeys(("whole", "commits", "routing", "atomicity", "liveness"), "valid")
    assert overall("d-tx", good | changed) == answer  # type: ignore[arg-type]
    assert overall("d-tx", {}) == "unknown"
