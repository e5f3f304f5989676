"""Experiments: what a file may say, which cells it means, and what is refused with file, line and nearest word."""

from __future__ import annotations

from pathlib import Path

import pytest

from labctl.experiment import experiment
from labctl.experiment.cell import Cell, Links
from labctl.experiment.experiment import ExperimentError, find, load, names
from labctl.experiment.selection import cells_of, modules, only

MATRIX = """matrix:
  scenario: dispatching
  approach: [bl-wait, s-tx]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ExperimentError) as caught:
        load(written(folder, text))
    assert str(folder / "mine.yaml") in str(caught.value)
    return str(caught.value)


def ids(name: str) -> list[str]:
    return [cell.id for each in find(name) for cell in each.cells]


def test_the_papers_experiments_are_there() -> None:
    assert names() == ["base", "clients", "concurrency", "consolidation", "disruption", "failover", "overlay"]


def test_base_shows_bl_wait_with_both_steps_with_and_without_stalls() -> None:
    assert sorted(each for each in ids("base") if "bl-wait" in each) == [
        "dispatching-bl-wait-b3-k1-c1",
        "dispatching-bl-wait-b3-k1-c1-stalls",
        "dispatching-bl-wait-b3-k1-c1-step1",
        "dispatching-bl-wait-b3-k1-c1-step1-stalls",
    ]


def test_a_list_of_matrices_has_the_cells_of_all_each_once(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        "matrix:\n"
        "  - {scenario: dispatching, approach: [d-tx, s-tx]}\n"
        "  - {scenario: dispatching, approach: s-tx, brokers: [3, 9]}\n"
    )
    assert [cell.id for cell in load(path).cells] == [
        "dispatching-d-tx-b3-k1-c1",
        "dispatching-s-tx-b3-k1-c1",
        "dispatching-s-tx-b9-k1-c1",
    ]
    path.write_text("matrix: []\n")
    with pytest.raises(ExperimentError, match=r"two\.yaml, line 1: an empty matrix"):
        load(path)


def test_modules_of_others_are_scenarios_and_approaches_by_their_dotted_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "eager.py").write_text("async def carry_out(coordinator, attempt): ...\n")
    path = tmp_path / "own.yaml"
    path.write_text("matrix: {scenario: dispatching, approach: theirs.eager}\n")
    experiment = load(path)
    assert [cell.id for cell in experiment.cells] == ["dispatching-theirs.eager-b3-k1-c1"]
    assert [module.__name__ for module in modules(experiment.cells)] == ["theirs.eager"]


@pytest.mark.parametrize(
    ("matrix", "complaint"),
    [
        ("{scenario: json.decoder, approach: d-tx}", "is no scenario: it has no function cast and no role"),
        ("{scenario: no.such, approach: d-tx}", "the scenario 'no.such' cannot be imported"),
        ("{scenario: dispatching, approach: json.decoder}", "is no approach: it has no function carry_out"),
    ],
)
def test_a_module_that_is_none_of_it_is_refused(tmp_path: Path, matrix: str, complaint: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"matrix: {matrix}\n")
    with pytest.raises(ExperimentError, match=complaint):
        load(path)


def test_a_step_means_nothing_to_other_approaches_and_does_not_double_their_cells() -> None:
    assert [each for each in ids("base") if "-d-tx-b3" in each] == [
        "dispatching-d-tx-b3-k1-c1",
        "dispatching-d-tx-b3-k1-c1-stalls",
    ]


@pytest.mark.parametrize(
    ("name", "cells"), [("overlay", 16), ("concurrency", 16), ("clients", 24), ("disruption", 12)]
)
def test_a_matrix_is_the_product_of_its_axes(name: str, cells: int) -> None:
    assert len(set(ids(name))) == cells


def test_disruption_tells_its_work_and_load_in_the_id() -> None:
    assert "disruption-s-tx-b3-k1-c1" in ids("disruption")
    assert "disruption-s-tx-b3-k1-c1-consolidation-open" in ids("disruption")


def test_cells_that_experiments_share_are_there_once_with_the_names_of_all() -> None:
    shared = cells_of(find("all"))
    [cell] = [each for each in shared if each.id == "dispatching-s-tx-b3-k1-c1"]
    assert set(shared[cell]) == {"base", "clients", "concurrency", "overlay"}
    assert len({each.id for each in shared}) == len(shared)


def test_different_cells_have_different_ids() -> None:
    cells = [
        Cell("dispatching", "bl-wait", step_ms=step, stalls=stalls, brokers=brokers)
        for step in (50.0, 1.0, 10.0)
        for stalls in (False, True)
        for brokers in (1, 3)
    ]
    assert len({cell.id for cell in cells}) == len(cells)


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_valid_one(tmp_path: Path) -> None:
    text = refusal(tmp_path, MATRIX + "  broker: 3\n")
    assert "line 4" in text
    assert "did you mean 'brokers'?" in text


def test_an_unknown_word_is_named_with_its_line_and_the_nearest_valid_one(tmp_path: Path) -> None:
    text = refusal(tmp_path, "matrix:\n  scenario: dispatching\n  approach: [s-tx,\n    dtx-ni]\n")
    assert "line 4" in text
    assert "did you mean 'd-tx-ni'?" in text


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("  brokers: 0", "brokers is 0; it must be at least 1 and at most 1000"),
        ("  brokers: three", "expected a whole number"),
        ("  copies: [1, 1]", "1 is there twice"),
        ("  stalls: 1", "expected true or false"),
        ("  step_ms: -5", "step_ms is -5; it must be more than 0 and at most 60000"),
        ("  brokers: []", "an empty matrix"),
        ("  load: open", "only for the scenario 'disruption'"),
        ("  work: consolidation", "only for the scenario 'disruption'"),
    ],
)
def test_a_bad_value_is_refused_where_it_stands(tmp_path: Path, line: str, complaint: str) -> None:
    text = refusal(tmp_path, MATRIX + line + "\n")
    assert "line 4" in text
    assert complaint in text


@pytest.mark.parametrize("text", ["figure: 5\n", "matrix: {}\n", "matrix: {scenario: dispatching}\n"])
def test_an_experiment_without_cells_is_refused(tmp_path: Path, text: str) -> None:
    assert "an empty matrix" in refusal(tmp_path, text)


def test_a_wait_cannot_be_calibrated_under_load(tmp_path: Path) -> None:
    text = "matrix:\n  scenario: disruption\n  approach: [bl-wait]\n"
    assert "'bl-wait' has no place in 'disruption'" in refusal(tmp_path, text)


def test_a_step_without_bl_wait_is_refused(tmp_path: Path) -> None:
    text = "matrix:\n  scenario: dispatching\n  approach: s-tx\n  step_ms: 1\n"
    assert "only for the approach 'bl-wait'" in refusal(tmp_path, text)


def test_delays_can_be_set_and_are_checked(tmp_path: Path) -> None:
    found = load(written(tmp_path, MATRIX + "delay: {client_ms: 10, sigma: 0}\n"))
    assert found.links == Links(client_ms=10, sigma=0)
    assert found.links.client(False, 7).delay_ms == 10
    assert "sigma is -1" in refusal(tmp_path, MATRIX + "delay: {sigma: -1}\n")
    assert "did you mean 'broker_ms'?" in refusal(tmp_path, MATRIX + "delay: {brokers_ms: 1}\n")


def test_stalls_happen_only_where_they_are_switched_on() -> None:
    assert Links().broker(False, 1).stall_probability == 0
    assert Links().broker(True, 1).stall_probability > 0


def test_settings_of_disruption_need_a_cell_of_it(tmp_path: Path) -> None:
    assert "no cell has the scenario" in refusal(tmp_path, MATRIX + "disruption: {rounds: 3}\n")


def test_an_unknown_experiment_is_named_with_the_nearest() -> None:
    with pytest.raises(ExperimentError, match="did you mean 'overlay'"):
        find("overlai")


def test_a_file_anywhere_is_an_experiment(tmp_path: Path) -> None:
    [found] = find(str(written(tmp_path, MATRIX)))
    assert found.name == "mine"


def test_experiments_with_different_delays_do_not_share_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.yaml").write_text(MATRIX)
    (tmp_path / "two.yaml").write_text(MATRIX + "delay: {client_ms: 1}\n")
    monkeypatch.setattr(experiment, "folder", lambda: tmp_path)
    with pytest.raises(ExperimentError, match="one and two have different delays"):
        find("all")


def test_only_lets_through_what_has_all_of_the_values() -> None:
    cells = list(cells_of(find("overlay")))
    chosen = only(cells, ["approach=s-tx,bl-wait", "brokers=9"])
    assert [cell.id for cell in chosen] == ["dispatching-bl-wait-b9-k1-c1", "dispatching-s-tx-b9-k1-c1"]


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        ("approach", "write key=value"),
        ("aproach=s-tx", "did you mean 'approach'"),
        ("approach=stx", "did you mean 's-tx'"),
        ("brokers=4", "no cell has brokers '4'"),
    ],
)
def test_only_refuses_what_lets_nothing_through(choice: str, complaint: str) -> None:
    with pytest.raises(ExperimentError, match=complaint):
        only(list(cells_of(find("overlay"))), [choice])


def test_only_refuses_a_combination_that_no_cell_has() -> None:
    cells = list(cells_of(find("base")))
    with pytest.raises(ExperimentError, match="an empty matrix"):
        only(cells, ["approach=s-tx", "step_ms=1"])
