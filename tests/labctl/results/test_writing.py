"""The result folder: what appears when, what is finished, and when a run may not go on in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from labctl.results.documents import NotWritten, read_json, write_json
from labctl.results.problem import ResultProblem
from labctl.results.resuming import ResumeRefused, latest, refuse_changes
from labctl.results.writing import ResultFolder, create

RUN: dict[str, Any] = {
    "experiment": "base",
    "profile": "quick",
    "seed": 1,
    "resolved": {"repetitions": 2},
    "cells": [{"id": "a", "repetitions": 2}],
    "testbed": {"kind": "local", "delay": {"client_ms": 3.3, "stall_ms": (80.0, 160.0)}},
    "code": {"broker": "1", "client": "2", "runner": "3"},
    "git": {"commit": "c", "diff_sha256": None},
}


def finish(folder: ResultFolder, cell: str, repetition: int) -> Path:
    staged = folder.start(cell, repetition)
    write_json(staged / "cell.json", {"cell": cell})
    return folder.finish(staged, cell, repetition)


def test_a_new_result_says_what_is_meant_to_be_run_and_is_the_latest(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    assert folder.path.parent == tmp_path / "base"
    assert folder.run["format"] == 1
    assert folder.run["started"]
    assert latest(tmp_path, "base").path == folder.path
    assert (tmp_path / "base" / "latest").is_symlink()
    assert not os.path.isabs(os.readlink(tmp_path / "base" / "latest"))


def test_latest_moves_on_with_every_new_result(tmp_path: Path) -> None:
    create(tmp_path, RUN)
    second = create(tmp_path, RUN)
    assert latest(tmp_path, "base").path == second.path


def test_without_a_result_there_is_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(ResumeRefused, match="without --resume"):
        latest(tmp_path, "base")


def test_a_repetition_appears_only_when_it_is_finished(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    staged = folder.start("a", 1)
    (staged / "transactions.jsonl").write_text("{}\n")
    assert folder.finished() == set()
    assert not (folder.path / "cells").exists()
    write_json(staged / "cell.json", {})
    target = folder.finish(staged, "a", 1)
    assert target == folder.path / "cells" / "a" / "01"
    assert (target / "transactions.jsonl").exists()
    assert folder.finished() == {("a", 1)}


def test_what_has_no_description_cannot_be_finished(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    with pytest.raises(NotWritten, match="not finished"):
        folder.finish(folder.start("a", 1), "a", 1)


def test_a_finished_repetition_is_not_replaced(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    target = finish(folder, "a", 1)
    (target / "mark").touch()
    with pytest.raises(NotWritten, match="cannot be made"):
        finish(folder, "a", 1)
    assert (target / "mark").exists()


def test_a_repetition_is_started_with_an_empty_folder(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    (folder.start("a", 1) / "rubbish").touch()
    assert list(folder.start("a", 1).iterdir()) == []


def test_what_failed_is_kept_with_the_reason_and_does_not_count(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    kept = [folder.keep_failed(folder.start("a", 1), "a", 1, "no news") for _ in range(2)]
    assert [path.name for path in kept] == ["01-1", "01-2"]
    assert read_json(kept[0] / "failure.json")["reason"] == "no news"
    assert folder.finished() == set()


def test_the_same_run_may_go_on(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    refuse_changes(folder, RUN)


def test_another_commit_alone_does_not_hinder(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    refuse_changes(folder, RUN | {"git": {"commit": "later", "diff_sha256": "x"}})


@pytest.mark.parametrize("part", ["broker", "client", "runner"])
def test_other_code_of_what_is_measured_is_refused_by_name(tmp_path: Path, part: str) -> None:
    folder = create(tmp_path, RUN)
    with pytest.raises(ResumeRefused, match=f"the code of the {part} has changed"):
        refuse_changes(folder, RUN | {"code": {**RUN["code"], part: "other"}})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("resolved", {"repetitions": 3}, r"the experiment has changed .* \(repetitions\)"),
        ("cells", [], r"the experiment has changed .* \(1 cells then, 0 now\)"),
        ("seed", 2, r"the seed has changed .* \(1 then, 2 now\)"),
        ("profile", "paper", r"the profile has changed"),
        ("testbed", {"kind": "local", "delay": None}, r"the testbed has changed .* \(delay\)"),
    ],
)
def test_another_experiment_is_refused_with_what_differs(
    tmp_path: Path, name: str, value: object, complaint: str
) -> None:
    folder = create(tmp_path, RUN)
    with pytest.raises(ResumeRefused, match=complaint):
        refuse_changes(folder, RUN | {name: value})


def test_a_calibration_that_was_touched_is_refused(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    folder.add_calibration("a", {"wait_ms": 50})
    assert folder.run["calibrations"] == ["calibrations/a.json"]
    refuse_changes(folder, RUN)
    (folder.path / "calibrations" / "a.json").write_text('{"wait_ms": 51}')
    with pytest.raises(ResumeRefused, match=r"calibration .* has changed"):
        refuse_changes(folder, RUN)


def test_calibrations_add_up(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    folder.add_calibration("a", {"wait_ms": 50})
    folder.add_calibration("b", {"wait_ms": 100})
    assert folder.run["calibrations"] == ["calibrations/a.json", "calibrations/b.json"]
    assert folder.calibration("b") == {"wait_ms": 100}
    assert folder.calibration("c") is None


def test_a_result_of_another_format_is_named(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    write_json(folder.path / "run.json", {"format": 0})
    with pytest.raises(ResultProblem, match="format 0"):
        refuse_changes(folder, RUN)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = create(tmp_path, RUN)
    (folder.path / "run.json").write_text("{")
    with pytest.raises(ResultProblem, match=r"run\.json is damaged"):
        refuse_changes(folder, RUN)
