"""`labctl simulate replay`: a seed or a real run, and what is said about a run that cannot be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from labctl.cli import app
from labctl.exits import USAGE
from tests.support import recordings


def replay(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["simulate", "replay", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a SEED, or a real run by --from"),
        (("1", "--from", "."), "a SEED or --from RESULT, not both"),
    ],
)
def test_it_is_either_a_seed_or_a_real_run(arguments: tuple[str, ...], said: str) -> None:
    done = replay(*arguments)
    assert done.exit_code == USAGE
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("detail", ["transactions", "outcomes"])
@pytest.mark.parametrize("command", [["simulate", "replay", "--from"], ["check", "--replay"]])
def test_a_run_that_kept_less_is_refused_with_how_to_record_one(
    tmp_path: Path, detail: str, command: list[str]
) -> None:
    done = CliRunner().invoke(app, [*command, str(recordings.write(tmp_path, recordings.life(detail)))])
    text = " ".join(done.stderr.split())
    assert done.exit_code == USAGE
    assert f"has the detail {detail!r}, without what came to the broker" in text
    assert "labctl run experiment NAME --history all" in text
