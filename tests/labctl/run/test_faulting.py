"""Faults in a repetition: what agents are told, what is written down, and whole runs of real brokers that meet some."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from labctl.experiment.cell import Cell
from labctl.experiment.client_processes import PATIENCE_S, Instructions, TransactionLine
from labctl.faults.plan import FaultyNode, LinkFault, NodeFault, made
from labctl.faults.steps import FaultStep, steps
from labctl.host import processes
from labctl.run import faulting
from labctl.run.faulting import Faulting
from labctl.run.station import Struck
from tests.support.brokers import wait_for

A1 = FaultyNode("client", "A1")
PLAN = made(
    20,
    [
        NodeFault(kind="kill", node=A1, at_s=2, for_s=1),
        LinkFault(kind="cut", links=(("b1", "b2"),), at_s=8, for_s=2),
    ],
)


def test_an_agent_is_told_where_everything_is_that_a_step_needs() -> None:
    asked = faulting.request(FaultStep(2, 1, "begun", "A1", "kill"), "/runs/x", is_broker=False)
    assert asked["files"] == ["/runs/x/history/A1.jsonl", "/runs/x/nodes/A1.jsonl"]
    assert asked["apart"] == ["/runs/x/history/A1.jsonl"]
    assert asked["more"] == ["--returns"]
    asked = faulting.request(steps(PLAN)[2], "/runs/x", is_broker=True)
    assert (asked["control"], asked["data"]) == ("/runs/x/control/b1.json", "/runs/x/data/b1.data")
    assert (asked["more"], asked["apart"]) == ([], [])


def test_transactions_go_on_as_long_as_faults_do_and_wait_for_the_longest() -> None:
    given = faulting.endless(Instructions(Cell("dispatching", "d-tx"), 50), PLAN)
    assert given.transactions == faulting.TRANSACTIONS_MAX
    assert given.patience_s == PATIENCE_S + 2


def test_what_happens_is_written_down_at_once(tmp_path: Path) -> None:
    news = [Struck(1, "begun", "A1", 2.01, ""), Struck(2, "begun", "b1", 8.01, "")]
    found = Faulting(PLAN, tmp_path, lambda: [news.pop(0)] if news else [])
    assert (tmp_path / "faults.jsonl").read_text() == ""
    found.keep()
    found.keep()
    lines = [json.loads(line) for line in (tmp_path / "faults.jsonl").read_text().splitlines()]
    assert lines == [
        {"fault": 1, "phase": "begun", "node": "A1", "time_s": 2.01, "what": "kill client A1"},
        {"fault": 2, "phase": "begun", "node": "b1", "time_s": 8.01, "what": "cut b1 - b2"},
    ]


def record(start_s: float, end_s: float) -> TransactionLine:
    return TransactionLine(
        0,
        1,
        "t",
        False,
        "A1",
        start_s,
        end_s,
        None,
        outcome="committed",
        reason="",
        correct=False,
        fault="missed",
    )


def test_beside_the_kill_of_a_client_nothing_is_wrong_for_certain(tmp_path: Path) -> None:
    found = Faulting(PLAN, tmp_path, list)
    found.begin({"E": 100.0, "A1": 100.0})
    assert found.excused(record(101.9, 102.1)).correct is None
    assert found.excused(record(104.0, 104.1)).correct is None
    assert found.excused(record(101.0, 101.5)).correct is False
    assert found.excused(record(108.0, 108.5)).correct is False


# Real brokers

FAULTS = """
matrix: {scenario: SCENARIO, approach: s-tx-safe, DURABLE}
disruption: {events: 2000, instances: 2}
faults:
  lasts_s: 6
  events:
"""
NOTHING_KEPT = """
    - {at_s: 0.5, pause: broker b2, for_s: 1}
    - {at_s: 2, cut: [b1, b2], for_s: 1}
    - {at_s: 4, slow: [b2, b3], by_ms: 50, for_s: 1}
"""
MAIN = "from labctl.cli import main; main()"


class Lab:
    """labctl in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "tiny.yaml"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}

    def write(self, events: str, scenario: str = "disruption", durable: str = "none") -> None:
        text = FAULTS.replace("SCENARIO", scenario).replace("DURABLE", f"durable: {durable}")
        if scenario != "disruption":
            text = "\n".join(line for line in text.split("\n") if not line.startswith("disruption"))
        self.file.write_text(text + events)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", MAIN, *arguments]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def begin(self) -> subprocess.Popen[str]:
        where = ("--results", str(self.folder / "results"))
        return self.start("run", "experiment", str(self.file), "--profile", "quick", "--json", *where)

    def run(self) -> dict[str, Any]:
        return self.document(self.begin())

    def document(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        with process:
            out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    @property
    def result(self) -> Path:
        return self.folder / "results" / "tiny" / "latest"

    @property
    def repetition(self) -> Path:
        [found] = self.result.glob("cells/*/*/cell.json")
        return found.parent

    def left(self) -> list[int]:
        """Processes that name our folder."""
        found = processes.find(lambda p: any(str(self.folder) in word for word in p.arguments))
        return [process.pid for process in found]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_brokers_are_paused_and_links_cut_and_slowed_and_the_report_shows_it(lab: Lab) -> None:
    lab.write(NOTHING_KEPT)
    told = lab.run()
    assert (told["done"], told["answer"]) == (1, "valid")
    done = lines(lab.repetition / "faults.jsonl")
    assert [line["node"] for line in done if line["phase"] == "begun"] == [
        "b2",
        *done_nodes(done, 2),
        *done_nodes(done, 3),
    ]
    for line in done:
        planned = {1: (0.5, 1.5), 2: (2, 3), 3: (4, 5)}[line["fault"]][line["phase"] == "ended"]
        assert planned <= line["time_s"] < planned + 0.5
    cell = json.loads((lab.repetition / "cell.json").read_text())
    written = lines(lab.repetition / "transactions.jsonl")
    assert cell["transactions"] == sum(not line["warm_up"] for line in written)
    assert cell["measured"]["transactions.jsonl"] == len(written)
    assert {path.name for path in lab.repetition.iterdir()}.isdisjoint({"control", "data"})

    report = lab.document(lab.start("report", str(lab.result), "--json"))
    assert [each["what"] for each in report["faults"]] == [
        "pause broker b2",
        "cut b1 - b2",
        "slow b2 - b3 by 50 ms",
    ]
    assert all(each["stopped_s"] > 0.9 for each in report["faults"][:2])
    assert all(each["lost"] == 0 for each in report["faults"])
    assert report["faults"][1]["events_stopped_s"] > 0.5
    assert [Path(path).stem for path in report["outputs"]["figures"]] == ["faults", "faults"]


def done_nodes(done: list[dict[str, Any]], fault: int) -> list[str]:
    """In whatever order they told."""
    found = [line["node"] for line in done if line["fault"] == fault and line["phase"] == "begun"]
    assert sorted(found) == {2: ["b1", "b2"], 3: ["b2", "b3"]}[fault]
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_client_that_is_killed_comes_back_and_takes_up_its_part(lab: Lab) -> None:
    kill = "    - {at_s: 1, kill: client A1, restart_after_s: 0.5}\n"
    lab.write(kill, "dispatching")
    assert lab.run()["answer"] == "valid"
    assert (lab.repetition / "history" / "A1.1.jsonl").exists()
    late = [line for line in lines(lab.repetition / "transactions.jsonl")[-10:] if line["agent"] == "A1"]
    assert late
    assert {line["outcome"] for line in late} == {"committed"}
    assert all(line["received_by"] == ["A1"] for line in late)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_interrupt_while_a_broker_is_paused_leaves_nothing_behind(lab: Lab) -> None:
    lab.write("    - {at_s: 0.2, pause: broker b2, for_s: 5}\n", "dispatching")
    with lab.begin() as process:
        wait_for("the pause", lambda: "begun" in running(lab), 60)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert lab.left() == []


def running(lab: Lab) -> str:
    """What has been written down of the faults of the repetition that is run."""
    return "".join(path.read_text() for path in lab.result.glob(".running/*/faults.jsonl"))
