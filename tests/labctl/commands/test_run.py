"""`labctl run experiment` and `calibrate-wait` as far as they start nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from labctl.cli import app
from labctl.experiment.schedule import profile_of


@pytest.fixture(autouse=True)
def nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def start(*arguments: object, **_: object) -> None:
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(subprocess, "Popen", start)


def labctl(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def document(*arguments: str) -> dict[str, Any]:
    code, out, _ = labctl(*arguments, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_list_says_what_each_experiment_varies() -> None:
    code, out, _ = labctl("run", "experiment", "--list")
    assert code == 0
    assert "in_flight 1/2/5/10" in out
    assert {e["name"] for e in document("run", "experiment", "--list")["experiments"]} >= {"base", "overlay"}


def test_a_dry_run_tells_cells_processes_and_time_and_leaves_nothing(tmp_path: Path) -> None:
    found = document("run", "experiment", "overlay", "--dry-run", "--results", str(tmp_path / "results"))
    assert len(found["cells"]) == 16
    assert {(c["brokers"], c["clients"]) for c in found["cells"]} == {(1, 4), (3, 4), (5, 4), (9, 4)}
    assert found["calibrations"] == 4
    assert found["estimate_s"] > found["calibration_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_all_counts_shared_cells_once() -> None:
    found = document("run", "experiment", "all", "--dry-run")
    ids = [cell["id"] for cell in found["cells"]]
    assert len(ids) == len(set(ids)) == 72


def test_the_number_of_repetitions_and_the_choice_of_cells_show_in_a_dry_run() -> None:
    found = document("run", "experiment", "overlay", "--dry-run", "--repeat", "7", "--only", "brokers=9")
    assert {cell["repetitions"] for cell in found["cells"]} == {7}
    assert len(found["cells"]) == 4


def test_the_number_of_transactions_is_the_profiles_or_the_users() -> None:
    usual = document("run", "experiment", "base", "--profile", "quick", "--dry-run")
    fewer = document("run", "experiment", "base", "--profile", "quick", "--dry-run", "--transactions", "20")
    assert [cell["id"] for cell in fewer["cells"]] == [cell["id"] for cell in usual["cells"]]
    assert fewer["estimate_s"] < usual["estimate_s"]
    assert profile_of("quick").transactions == 50
    assert profile_of("quick", 20) == replace(profile_of("quick"), transactions=20)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "experiment"], "which experiment?"),
        (["run", "experiment", "bas"], "did you mean 'base'?"),
        (["run", "experiment", "base", "--only", "aproach=s-tx"], "did you mean 'approach'?"),
        (["run", "experiment", "base", "--resume", "--results", "nowhere"], "without --resume"),
        (["run", "experiment", "base", "--testbed", "local"], "`labctl provision --testbed KIND` makes one"),
        (["run", "experiment", "--testbed=netns", "--list"], "on this machine, or with --lab NAME on a lab"),
        (["calibrate-wait", "--step", "soon"], "write milliseconds"),
        (["calibrate-wait", "--step", "0"], "above 0"),
        (["calibrate-wait", "disruption"], "no cell has approach 'bl-wait'"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(arguments: list[str], complaint: str) -> None:
    code, _, err = labctl(*arguments)
    assert code == 2
    assert complaint in err
    assert len(err.strip().splitlines()) == 1


def test_there_is_no_testbed_to_choose_in_the_help_of_a_run() -> None:
    code, out, _ = labctl("run", "experiment", "--help")
    assert code == 0
    assert "--lab" in out
    assert "--testbed" not in out
