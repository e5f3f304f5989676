"""Faults in an experiment: which cells they make, whom they may meet, and the plan of each repetition."""

from __future__ import annotations

from pathlib import Path

import pytest

from labctl.conduct import conductor
from labctl.conduct.conductor import RunOrder
from labctl.conduct.request import RunRequest
from labctl.experiment import experiment, faulted
from labctl.experiment.cell import Cell
from labctl.experiment.experiment import ExperimentError, find, load
from labctl.experiment.schedule import PROFILES
from labctl.faults.plan import plan_of

MATRIX = "matrix: {scenario: dispatching, approach: [s-tx-safe, d-tx], durable: [os, fsync]}\n"
KILL = "faults: {lasts_s: 9, events: [{at_s: 5, kill: broker b2, restart_after_s: 1}]}\n"
RANDOM = "faults: {lasts_s: 60, random: {every_s: 5, kinds: [pause, cut]}}\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def order(folder: Path, text: str, **others: object) -> RunOrder:
    path = written(folder, text)
    return conductor.order(
        RunRequest(name=str(path), profile=PROFILES["quick"], repeat=2, **others)  # type: ignore[arg-type]
    )


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ExperimentError) as caught:
        load(written(folder, text))
    return str(caught.value)


def test_cells_with_faults_are_cells_of_their_own(tmp_path: Path) -> None:
    [found] = find(str(written(tmp_path, MATRIX + KILL)))
    assert [cell.id for cell in found.cells] == [
        "dispatching-s-tx-safe-b3-k1-c1-os-mine",
        "dispatching-s-tx-safe-b3-k1-c1-fsync-mine",
        "dispatching-d-tx-b3-k1-c1-os-mine",
        "dispatching-d-tx-b3-k1-c1-fsync-mine",
    ]
    assert found.cells[0].parameters()["durable"] == "os"
    assert found.cells[0].parameters()["faults"] == "mine"
    assert found.resolved()["faults"]["lasts_s"] == 9


def test_a_cell_without_either_says_nothing_of_them(tmp_path: Path) -> None:
    [found] = find(str(written(tmp_path, "matrix: {scenario: dispatching, approach: d-tx, durable: none}\n")))
    assert found.cells == (Cell("dispatching", "d-tx"),)
    assert not {"durable", "faults"} & found.cells[0].parameters().keys()
    assert "faults" not in found.resolved()


def test_a_fault_is_checked_in_every_cell(tmp_path: Path) -> None:
    text = MATRIX.replace("[os, fsync]", "[fsync, none]") + KILL
    assert "broker b2 cannot be killed in dispatching-s-tx-safe-b3-k1-c1: it keeps nothing" in refusal(
        tmp_path, text
    )
    text = "matrix: {scenario: dispatching, approach: d-tx, brokers: [3, 1], durable: os}\n" + KILL
    assert "there is no 'broker b2' in dispatching-d-tx-b1-k1-c1-os" in refusal(tmp_path, text)


def test_bl_wait_has_no_place_beside_faults(tmp_path: Path) -> None:
    text = "matrix: {scenario: dispatching, approach: bl-wait, durable: os}\n" + KILL
    assert "line 2: 'bl-wait' has no place beside faults" in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("scenario", "client", "complaint"),
    [
        ("dispatching", "E", "it coordinates"),
        ("consolidation", "C", "it coordinates"),
        ("disruption", "A1", "it counts regular events"),
    ],
)
def test_a_client_that_cannot_take_its_part_up_again_is_not_killed(
    tmp_path: Path, scenario: str, client: str, complaint: str
) -> None:
    fault = f"faults: {{lasts_s: 9, events: [{{at_s: 5, kill: client {client}, restart_after_s: 1}}]}}\n"
    text = refusal(tmp_path, f"matrix: {{scenario: {scenario}, approach: d-tx}}\n{fault}")
    assert f"client {client} cannot be killed in {scenario}-d-tx-b3-k1-c1: {complaint}" in text


def test_others_may_be_killed() -> None:
    def spared(cell: Cell) -> set[str]:
        return {name for name, reason in faulted.setting(cell).clients.items() if reason}

    assert spared(Cell("dispatching", "d-tx", copies=2)) == {"E-0", "E-1"}
    assert spared(Cell("consolidation", "d-tx")) == {"C"}
    assert spared(Cell("disruption", "d-tx", work="dispatching", load="closed")) == {"E", "A1", "A2"}
    assert spared(Cell("disruption", "d-tx", work="consolidation", load="closed")) == {"C", "E", "A1", "A2"}


def test_random_faults_are_the_same_for_all_approaches_and_others_in_each_repetition(tmp_path: Path) -> None:
    what = order(tmp_path, MATRIX + RANDOM)
    plans = {unit.key: what.plan(unit) for unit in what.units()}
    assert len({repr(plan) for plan in plans.values()}) == 2
    assert len({repr(plan) for (_, number), plan in plans.items() if number == 1}) == 1
    other = order(tmp_path, MATRIX + RANDOM, seed=2)
    assert {repr(other.plan(unit)) for unit in other.units()}.isdisjoint(map(repr, plans.values()))


def test_a_job_brings_its_plan_and_a_run_tells_what_is_drawn(tmp_path: Path) -> None:
    what = order(tmp_path, MATRIX + RANDOM)
    job = what.job(what.units()[0])
    assert job.plan is not None
    assert plan_of(job.plan.document()) == job.plan
    assert what.run()["resolved"]["experiments"]["mine"]["faults"]["random"]["every_s"] == 5


def test_a_repetition_with_faults_takes_as_long_as_they_say(tmp_path: Path) -> None:
    what = order(tmp_path, MATRIX + RANDOM)
    assert 60 < what.estimate_s(what.cells[0]) < 65


def test_all_has_no_experiment_with_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, MATRIX + KILL)
    (tmp_path / "other.yaml").write_text(MATRIX)
    monkeypatch.setattr(experiment, "folder", lambda: tmp_path)
    assert [found.name for found in find("all")] == ["other"]
