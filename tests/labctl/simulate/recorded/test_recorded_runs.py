"""Real runs on this machine, of each protocol, are reproduced by the cores: message by message."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labctl.paths import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TINY = """
matrix:
  scenario: dispatching
  approach: [d-tx, d-tx-ni, s-tx, d-tx-optimistic, s-tx-safe]
  brokers: 3
delay: {client_ms: 1, broker_ms: 1, sigma: 0.3}
"""
CELL = "dispatching-{}-b3-k1-c1"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tiny.yaml").write_text(TINY)
    done = labctl(
        folder, "run", "experiment", str(folder / "tiny.yaml"), "--profile", "quick", "--transactions", "5",
        "--history", "all", "--results", str(folder / "results"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "results" / "tiny"


def labctl(state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from labctl.cli import main; main()", *arguments]
    environment = {**os.environ, "XDG_STATE_HOME": str(state / "state")}
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False, timeout=500
    )


def test_each_protocol_is_reproduced(result: Path) -> None:
    done = labctl(result.parent, "check", "--replay", str(result / "latest"), "--json")
    assert done.returncode == 0, done.stdout
    verdicts = {part["cell"]: part["verdict"] for part in json.loads(done.stdout)["repetitions"]}
    assert verdicts == {
        CELL.format(approach): "valid"
        for approach in ("d-tx", "d-tx-ni", "s-tx", "d-tx-optimistic", "s-tx-safe")
    }


def test_people_are_told_how_much_was_replayed(result: Path) -> None:
    done = labctl(result.parent, "check", "--replay", str(result / "latest"))
    said = re.search(
        r"replayed: all ([\d,]+) messages and decisions are those of the brokers' cores", done.stdout
    )
    assert said is not None, done.stdout
    assert int(said[1].replace(",", "")) > 1000


def test_a_message_that_is_taken_out_of_the_recording_is_named(result: Path) -> None:
    """As if the broker had forgotten to send it."""
    folder = next((result / "latest" / "cells" / CELL.format("s-tx")).iterdir())
    file = folder / "history" / "b2.jsonl"
    kept = file.read_text()
    lines = [json.loads(line) for line in kept.splitlines()]
    puts = [place for place, line in enumerate(lines) if line["name"] == "put"]
    del lines[puts[len(puts) // 2]]
    file.write_text("".join(f"{json.dumps({**line, 'number': n})}\n" for n, line in enumerate(lines, 1)))
    try:
        where = ("--from", str(result), "--cell", CELL.format("s-tx"))
        done = labctl(result.parent, "simulate", "replay", *where, "--json")
    finally:
        file.write_text(kept)
    document = json.loads(done.stdout)
    assert (done.returncode, document["answer"]) == (1, "invalid")
    assert " of b2, at " in document["differences"][0]
    assert "b2 sent " in document["differences"][0]
    assert {row["broker"]: row["state"] for row in document["brokers"]}["b2"] == "different"
