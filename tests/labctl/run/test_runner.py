"""Experiments with real brokers and clients: short ones, interrupted ones, killed ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labctl.host import processes
from tests.support.brokers import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

TINY = """
matrix:
  scenario: dispatching
  approach: [bl-wait, s-tx]
  brokers: 3
  step_ms: 50
delay: {client_ms: 1, broker_ms: 1, sigma: 0.1}
"""
MAIN = "from labctl.cli import main; main()"
LIMIT_S = 1500
"""A calibration tries more and longer waits where a hypervisor stops the machine for half a second now and then:
200 transactions that wait for a second each take four minutes."""


class Lab:
    """labctl in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "tiny.yaml"
        self.file.write_text(TINY)
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", MAIN, *arguments, "--results", str(self.folder / "results")]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == code, err
        return out if "--json" in arguments else err

    def experiment(self, *arguments: str) -> tuple[str, ...]:
        return ("run", "experiment", str(self.file), "--profile", "quick", *arguments)

    @property
    def result(self) -> Path:
        return self.folder / "results" / "tiny" / "latest"

    def repetitions(self) -> list[Path]:
        return sorted(path.parent for path in self.result.glob("cells/*/*/cell.json"))

    def left(self) -> list[int]:
        """Processes that name our folder."""
        found = processes.find(lambda p: any(str(self.folder) in word for word in p.arguments))
        return [process.pid for process in found]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for_clients(lab: Lab) -> None:
    """Until a repetition is under way."""
    wait_for("a client", lambda: list(lab.result.glob(".running/*/nodes/E.jsonl")), 60)


def test_a_repetition_leaves_everything_that_the_report_needs(lab: Lab) -> None:
    report = json.loads(lab.run(*lab.experiment("--only", "approach=s-tx", "--json")))
    assert (report["done"], report["total"], report["failed"]) == (1, 1, [])
    [repetition] = lab.repetitions()
    cell = json.loads((repetition / "cell.json").read_text())
    transactions = lines(repetition / "transactions.jsonl")
    assert [t["number"] for t in transactions] == list(range(1, 56))
    assert sum(t["warm_up"] for t in transactions) == cell["warm_up"] == 5
    assert all(
        t["outcome"] == "committed" and t["correct"] and t["ack_s"] > t["start_s"] for t in transactions
    )
    nodes = {"b1", "b2", "b3", "E", "D", "A1", "A2"}
    assert {path.stem for path in (repetition / "history").iterdir()} == nodes
    assert {path.stem for path in (repetition / "nodes").glob("*.jsonl")} == nodes
    assert {path.stem for path in (repetition / "tables").iterdir()} == {"b1", "b2", "b3"}
    assert set(json.loads((repetition / "messages.json").read_text())) == nodes
    assert set(cell["placement"]) == {"E", "D", "A1", "A2"}
    assert set(cell["probe_ms"]) == {"b1>b2", "b2>b1", "b2>b3", "b3>b2"}
    assert lab.left() == []


def test_disruption_counts_events_with_and_without_a_transaction(lab: Lab) -> None:
    lab.file.write_text(
        "matrix: {scenario: disruption, approach: d-tx, load: [closed, open], work: [dispatching, consolidation]}\n"
        "disruption: {rounds: 2, events: 8000, instances: 1, window_ms: 20}\n"
    )
    lab.run(*lab.experiment())
    assert len(lab.repetitions()) == 4
    for repetition in lab.repetitions():
        windows = lines(repetition / "rates.jsonl")
        assert {window["agent"] for window in windows} == {"A1", "A2"}
        assert {window["transaction"] for window in windows} == {True, False}
        assert sum(window["events"] for window in windows) > 1000
        assert all(sample["latency_ms"] > 0 for sample in lines(repetition / "latencies.jsonl"))
        assert [t["warm_up"] for t in lines(repetition / "transactions.jsonl")] == [True, False, False]


def test_bl_wait_is_calibrated_run_and_not_calibrated_again(lab: Lab) -> None:
    first = lab.run(*lab.experiment("--only", "approach=bl-wait"))
    assert "calibrating 1 of 1" in first
    [calibration] = (lab.result / "calibrations").iterdir()
    made = json.loads(calibration.read_text())
    assert made["correct"] == 200
    assert made["wait_ms"] - made["failed_at_ms"] == 50
    [repetition] = lab.repetitions()
    assert json.loads((repetition / "cell.json").read_text())["wait_ms"] == made["wait_ms"]
    assert "calibrating" not in lab.run(*lab.experiment("--only", "approach=bl-wait"))


def test_an_interrupt_loses_the_running_repetition_and_nothing_else(lab: Lab) -> None:
    options = ("--only", "approach=s-tx", "--repeat", "2")
    with lab.start(*lab.experiment(*options)) as process:
        wait_for_clients(lab)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "--resume goes on" in err
    assert lab.left() == []
    before = lab.repetitions()
    lab.run(*lab.experiment(*options, "--resume"))
    assert len(lab.repetitions()) == 2
    assert set(before) <= set(lab.repetitions())


def test_a_killed_run_leaves_nothing_running_and_the_next_one_goes_on(lab: Lab) -> None:
    options = ("--only", "approach=s-tx")
    with lab.start(*lab.experiment(*options)) as process:
        wait_for_clients(lab)
        process.kill()
        process.wait(10)
    wait_for("its agent to stop everything", lambda: not lab.left(), 30)
    lab.run(*lab.experiment(*options, "--resume"))
    assert lab.left() == []
    assert len(lab.repetitions()) == 1
    assert not (lab.result / ".running").exists()


def test_a_changed_experiment_is_not_resumed(lab: Lab) -> None:
    options = ("--only", "approach=s-tx")
    lab.run(*lab.experiment(*options))
    lab.file.write_text(TINY.replace("client_ms: 1", "client_ms: 2"))
    assert "has changed" in lab.run(*lab.experiment(*options, "--resume"), code=2)
