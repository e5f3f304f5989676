"""A lab with fewer hosts than brokers and clients: several processes on each, and nothing else is different."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.labs import Command, require_namespaces

pytestmark = pytest.mark.slow


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    require_namespaces()
    labctl = Command(tmp_path, "10.79.2.0/24")
    yield labctl
    assert json.loads(labctl("destroy", "--lab", "l", "--yes", "--json"))["left"] == []


@pytest.mark.parametrize(
    ("machines", "brokers", "clients"), [(2, "broker-1", "client-1"), (1, "broker-1", "broker-1")]
)
def test_three_brokers_and_four_clients_share_what_there_is(
    command: Command, machines: int, brokers: str, clients: str
) -> None:
    wanted = ("--experiment", str(command.experiment), "--machines", str(machines))
    said = command("provision", "--testbed", str(command.testbed), "--lab", "l", *wanted)
    assert f"3 brokers and 4 clients share {machines} hosts" in said
    status = json.loads(command("status", "--lab", "l", "--json"))
    assert status["may_share"] is True
    assert [host["name"] for host in status["hosts"]] == list(dict.fromkeys((brokers, clients)))

    shown = command(*command.run("--dry-run"))
    parts = {part.split(":")[0].strip(): part for part in shown.split("\n\n")}
    assert all(f"broker {name}" in parts[brokers] for name in ("b1", "b2", "b3"))
    assert all(f"client {name}" in parts[clients] for name in ("E", "D", "A1", "A2"))

    command(*command.run("--transactions", "5"))
    [repetition] = command.result.glob("cells/*/01")
    nodes = {"b1", "b2", "b3", "E", "D", "A1", "A2"}
    assert {path.stem for path in (repetition / "history").iterdir()} == nodes
    assert {path.stem for path in (repetition / "nodes").glob("*.jsonl")} == nodes
    records = [json.loads(line) for line in (repetition / "transactions.jsonl").read_text().splitlines()]
    assert len(records) == 10
    assert all(record["correct"] for record in records)
    run = json.loads((command.result / "run.json").read_text())
    assert run["testbed"]["packed"] is True
    assert run["testbed"]["hosts"] == [host["name"] for host in status["hosts"]]
    assert "valid" in command("check", str(command.result))
