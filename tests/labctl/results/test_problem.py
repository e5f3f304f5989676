"""A result that is damaged: one error for every command, with the exit code of each (3 for a report)."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from labctl.cli import app
from labctl.results.writing import create


def test_a_result_of_another_version_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = create(tmp_path, {"experiment": "base"})
    (folder.path / "run.json").write_text('{"format": 0}')
    command = ["run", "experiment", "base", "--profile", "quick", "--resume", "--results", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, "was made by an older labctl (format 0)" in done.stderr) == (4, True)


def test_a_damaged_history_is_a_mistake_of_who_names_it(tmp_path: Path) -> None:
    (tmp_path / "b1.jsonl").write_text("{}\n")
    done = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert (done.exit_code, "line 1, is no line of a history" in done.stderr) == (2, True)
