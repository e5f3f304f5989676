"""Parts of the report that need no Spark: folders, the cost model, what is doubted, the comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labctl.exits import OUTCOME_UNKNOWN, USAGE, LabError
from labctl.report.judgement import cost
from labctl.report.judgement.compare import compare
from labctl.report.judgement.model import (
    Bin,
    CalibrationResult,
    CellResult,
    NodeVitals,
    RepetitionResult,
    Report,
    estimates_of,
)
from labctl.report.judgement.stats import Resampler
from labctl.report.judgement.warnings import of_cell, of_run, of_waits
from labctl.report.pages.html import number, sparkline
from labctl.report.tables import session
from labctl.results import documents, layout, reading
from labctl.results.problem import ResultProblem


def result(path: Path, **run: Any) -> Path:
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"format": 1, "experiment": "base"} | run))
    return path


def cell(values: list[float], answer: Any = "valid", **changes: Any) -> CellResult:
    repetitions = tuple(
        RepetitionResult(
            n, answer, (), {}, {"latency_ms": value}, None, changes.get("send_lag_ms"), None, stolen
        )
        for n, (value, stolen) in enumerate(
            zip(values, changes.get("stolen", [0.0] * len(values)), strict=True)
        )
    )
    return CellResult(
        "dispatching-s-tx-b3-k1-c1",
        {"scenario": "dispatching", "approach": "s-tx", "step_ms": None, "stalls": False},
        changes.get("wanted", len(values)),
        repetitions,
        answer,
        estimates_of("cell", repetitions, answer, Resampler(1)),
        {},
        nodes=changes.get("nodes", ()),
    )


def report(of: CellResult) -> Report:
    return Report("", {"seed": 1}, {of.id: of}, (), {}, (), (), {})


# Folders


def test_the_newest_result_is_meant_when_none_is_named(tmp_path: Path) -> None:
    result(tmp_path / "base" / "20260101T000000Z-aaaaaa")
    newest = result(tmp_path / "overlay" / "20260301T000000Z-bbbbbb")
    assert reading.find(None, tmp_path) == str(newest)


@pytest.mark.parametrize("is_link", [True, False])
def test_latest_is_followed_as_a_link_and_as_a_file(tmp_path: Path, is_link: bool) -> None:
    run = result(tmp_path / "base" / "20260101T000000Z-aaaaaa")
    latest = tmp_path / "base" / "latest"
    if is_link:
        latest.symlink_to(run.name)
    else:
        latest.write_text(run.name + "\n")
    assert Path(reading.find(str(tmp_path / "base"))) == run


def test_no_result_at_all_is_a_usage_problem(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no result under") as error:
        reading.find(None, tmp_path)
    assert error.value.exit_code == USAGE


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ({"format": 0}, "an older labctl"),
        ({"format": 2}, "a newer labctl"),
        ({"format": "one"}, "does not say its format"),
    ],
)
def test_a_result_of_another_version_is_refused_in_a_sentence(
    tmp_path: Path, run: dict[str, Any], text: str
) -> None:
    with pytest.raises(ResultProblem, match=text) as error:
        reading.read_run(str(result(tmp_path / "r", **run)))
    assert error.value.exit_code == OUTCOME_UNKNOWN


def test_an_empty_folder_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(ResultProblem, match=r"has no run\.json: it is empty") as error:
        reading.read_run(str(tmp_path))
    assert error.value.exit_code == OUTCOME_UNKNOWN


def test_repetitions_are_told_from_their_paths() -> None:
    files = ["run.json", "cells/a/01/cell.json", "cells/a/01/history/b1.jsonl", "cells/a/02/nodes/E.jsonl"]
    one, two = layout.repetitions(files)
    assert (one.cell, one.number, one.nodes("history")) == ("a", 1, {"b1"})
    assert (two.number, two.nodes("nodes"), two.nodes("history")) == (2, {"E"}, set())


def test_a_log_in_several_files_is_that_of_one_node() -> None:
    folder = "cells/a/01/nodes/"
    (one,) = layout.repetitions(
        [folder + name for name in ("b1.jsonl.2", "b1.jsonl", "b1.toml", "A.1.jsonl", "E.err")]
    )
    assert one.nodes("nodes") == {"b1", "A.1"}


def test_a_path_with_a_scheme_is_not_of_this_machine() -> None:
    assert documents.is_local("results/base")
    assert not documents.is_local("hdfs://name/results")


# Java


def test_a_java_that_does_not_run_counts_as_none(tmp_path: Path) -> None:
    fake = tmp_path / "java"
    fake.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    fake.chmod(0o755)
    assert session.java_version(fake) == 11
    assert session.java_version(tmp_path / "absent") == 0


def test_the_java_in_front_of_the_wheel_drops_one_option_and_keeps_the_others(tmp_path: Path) -> None:
    import subprocess

    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    echo.chmod(0o755)
    java = session.make_java_home(tmp_path / "home", echo) / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    done = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["<-cp>", "<a b>", "<>", "<Main>"]


def test_a_master_that_is_none_is_refused() -> None:
    with pytest.raises(LabError, match="is not a Spark master"), session.start("lokal"):
        pass


# The cost model


@pytest.mark.parametrize(
    ("approach", "expected"),
    [("d-tx", 6 * 1 + 16 + 4 + 2), ("s-tx", 14 + 2), ("bl-wait", 10 + 2), ("s-tx-safe", None)],
)
def test_on_one_broker_only_client_links_count(approach: str, expected: float | None) -> None:
    assert cost.messages(approach, 1, dict.fromkeys(("E", "D", "A1", "A2"), "b1")) == expected


def test_the_model_is_the_mean_over_both_agents() -> None:
    near = cost.messages("bl-wait", 3, {"E": "b1", "D": "b2", "A1": "b1", "A2": "b1"})
    far = cost.messages("bl-wait", 3, {"E": "b1", "D": "b2", "A1": "b3", "A2": "b3"})
    both = cost.messages("bl-wait", 3, {"E": "b1", "D": "b2", "A1": "b1", "A2": "b3"})
    assert near is not None
    assert far is not None
    assert both == (near + far) / 2


def test_copies_are_told_apart_by_their_number() -> None:
    one = {"E.0": "b1", "D.0": "b1", "A1.0": "b1", "A2.0": "b1"}
    other = {"E.1": "b1", "D.1": "b3", "A1.1": "b1", "A2.1": "b1"}
    values = [cost.messages("s-tx", 3, placement) for placement in (one, other, one | other)]
    assert values[2] == (values[0] + values[1]) / 2  # type: ignore[operator]


def test_a_placement_of_other_clients_has_no_model() -> None:
    assert cost.messages("s-tx", 3, {"C": "b1", "X": "b2"}) is None


# Doubts


def test_a_good_cell_is_not_doubted() -> None:
    assert of_cell(cell([50, 51, 50, 49, 50])) == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (cell([50, 51]), "too few repetitions: 2"),
        (cell([50] * 5, wanted=6), "5 of 6 repetitions"),
        (cell([50] * 5, "invalid"), "broke its promise"),
        (cell([50] * 5, "unknown"), "could not be checked"),
        (cell([50, 90, 20, 140, 10]), "repetitions differ widely"),
        (cell([50] * 5, send_lag_ms=200.0), "load generator was late by 200 ms"),
        (
            cell([50] * 5, stolen=[0.0, 0.3, 0.05, 0.06, 0.0]),
            "up to 30 % of the processors to others, in 2 of 5",
        ),
        (cell([50] * 5, nodes=(NodeVitals("b1", 5, 9, 80.0, 99, None),)), "noisy machine"),
        (cell([50] * 5, nodes=(NodeVitals("b1", 99, 100, 1.0, 2, None),)), "saturated: b1"),
    ],
)
def test_what_should_not_be_believed_is_said(changed: CellResult, text: str) -> None:
    assert any(text in warning for warning in of_cell(changed))


def test_an_invalid_cell_has_no_mean() -> None:
    assert cell([50] * 5, "invalid").estimates == {}


def test_a_quick_run_says_how_many_transactions_it_had() -> None:
    resolved = {"profile": {"name": "quick", "transactions": 20}}
    found = of_run({"profile": "quick", "resolved": resolved, "testbed": {"delay": {}}, "cells": []}, {}, 0)
    assert "quick profile: 20 transactions" in found[0]


def test_a_quick_run_without_delay_is_marked_as_such() -> None:
    found = of_run({"profile": "quick", "testbed": {"delay": None}, "cells": [{"id": "x"}]}, {}, 2)
    assert len(found) == 4
    assert "quick profile: 50 transactions" in found[0]
    assert "not run: x" in found[3]


# Comparison


def test_a_clear_difference_is_more_than_noise_and_a_small_one_is_not() -> None:
    base = report(cell([50, 51, 49, 50, 50]))
    (slower,) = compare(base, report(cell([80, 82, 81, 79, 80])))
    (same,) = compare(base, report(cell([51, 50, 49, 50, 51])))
    assert (slower.answer, same.answer) == ("yes", "no")
    assert slower.ratio == pytest.approx(1.608)


def test_an_invalid_cell_is_not_compared() -> None:
    assert compare(report(cell([50, 51])), report(cell([50, 51], "invalid"))) == []


# Presentation


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0"), (1234.5, "1,234"), (12.345, "12.3"), (0.01234, "0.0123"), (float("nan"), "-")],
)
def test_numbers_have_as_many_digits_as_say_something(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_distribution_has_its_highest_bar_where_most_transactions_are() -> None:
    drawn = sparkline((Bin(10.0, 1), Bin(100.0, 4)), (10.0, 1000.0), "#000")
    assert drawn.count("<rect") == 2
    assert 'x="90.0" y="0.0"' in drawn


@pytest.mark.parametrize(("load", "warnings"), [(0.7, 0), (2.5, 1), (None, 0)])
def test_a_wait_that_was_found_on_a_busy_machine_is_doubted(load: float | None, warnings: int) -> None:
    one = cell([1.0])
    wait = CalibrationResult(one.id, 100.0, 50.0, 200, 50.0, 0.015, 3, "", load)
    of_waits([wait], {one.id: one}, processors=2)
    assert len(one.warnings) == warnings
