"""Scenario clients from outside: their command lines, and what is made of what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.protocol.delay import Delay
from client.scenarios.stage import Disruption
from labctl.experiment import client_processes
from labctl.experiment.cell import Cell
from labctl.experiment.client_processes import (
    DriverError,
    Instructions,
    OutputLine,
    cast,
    clients,
    command,
    counted,
    parse,
    record,
)

WAITING = Cell("dispatching", "bl-wait", step_ms=50.0)


def options(given: Instructions, role: str) -> dict[str, str]:
    client = next(each for each in cast(given.cell) if each.role == role)
    words = command(given, client, "127.0.0.1:7", Path("there"), ["python"])[3:]
    return dict((word.removeprefix("--") + "=").split("=")[:2] for word in words)


def test_coordinators_come_last_in_their_copy() -> None:
    assert clients(Cell("dispatching", "s-tx")) == ["D", "A1", "A2", "E"]
    assert clients(Cell("consolidation", "s-tx")) == ["E", "A1", "A2", "C"]
    assert [each.name for each in cast(Cell("dispatching", "s-tx", copies=2)) if each.coordinates] == [
        "E-0",
        "E-1",
    ]


def test_only_the_coordinator_is_controlled_and_warmed_up() -> None:
    given = Instructions(Cell("dispatching", "s-tx"), transactions=100, warm_up=10)
    assert "controlled" in options(given, "E")
    assert options(given, "E")["warm-up"] == "10"
    assert not {"controlled", "warm-up"} & set(options(given, "D"))
    assert options(given, "E")["transactions"] == "110"


def test_a_copy_has_names_of_its_own() -> None:
    given = Instructions(Cell("dispatching", "s-tx", copies=2, in_flight=3), transactions=10)
    found = options(given, "A1")
    assert found["suffix"] == "-0"
    assert found["history"] == "there/history/A1-0.jsonl"
    assert found["concurrency"] == "3"


def test_the_wait_and_the_delays_are_passed_on() -> None:
    found = options(Instructions(WAITING, 10, wait_ms=150.0, delay=Delay(3.3, 0.4, 5e-4, (80, 160), 7)), "E")
    assert found["wait-ms"] == "150.0"
    assert (found["delay-ms"], found["sigma"], found["seed"]) == ("3.3", "0.4", "7")
    assert (found["stall-probability"], found["stall-ms"]) == ("0.0005", "80,160")
    assert "delay-ms" not in options(Instructions(WAITING, 10, wait_ms=150.0), "E")


def test_disruption_is_told_its_load() -> None:
    cell = Cell("disruption", "s-tx", work="consolidation", load="open")
    found = options(Instructions(cell, 40, disruption=Disruption()), "C")
    assert (found["scenario"], found["work"], found["load"]) == ("disruption", "consolidation", "open")
    assert (found["rounds"], found["events"], found["instances"]) == ("10", "20000", "4")


def test_what_a_coordinator_prints_is_read_whatever_else_it_says() -> None:
    line = parse(b'{"transaction": 3, "outcome": "committed", "news": 1, "correct": true, "agent": "A1"}')
    assert (line.transaction, line.outcome) == (3, "committed")
    with pytest.raises(DriverError, match="Traceback"):
        parse(b"Traceback (most recent call last):")


def test_a_transaction_of_a_copy_is_told_without_its_suffix() -> None:
    cell = Cell("dispatching", "s-tx", copies=3)
    client = [each for each in cast(cell) if each.coordinates][2]
    line = OutputLine(transaction=2, outcome="committed", agent="A2-2", correct=True, received_by=["A2-2"])
    found = record(line, Instructions(cell, 5, warm_up=2), client)
    assert (found.copy, found.agent, found.received_by, found.warm_up) == (2, "A2", ("A2",), True)


def test_bl_wait_commits_when_it_has_published() -> None:
    line = OutputLine(transaction=3, outcome="published", agent="A1", correct=True, received_by=["A1"])
    assert record(line, Instructions(WAITING, 5, warm_up=2), cast(WAITING)[-1]).outcome == "committed"


@pytest.mark.parametrize(
    ("received_by", "fault"),
    [
        (["D"], "late-subscription"),
        ([], "late-subscription"),
        (["A1", "D"], "late-unsubscription"),
        (["A1", "A2"], "wrong-recipient"),
    ],
)
def test_a_wrong_routing_without_isolation_says_which_operation_was_late(
    received_by: list[str], fault: str
) -> None:
    line = OutputLine(transaction=1, agent="A1", correct=False, received_by=received_by)
    assert client_processes.fault(WAITING, line, received_by) == fault


def test_a_transaction_that_promises_isolation_has_missed_its_recipient() -> None:
    line = OutputLine(transaction=1, agent="A1", correct=False)
    assert client_processes.fault(Cell("dispatching", "s-tx"), line, []) == "missed"


def test_in_a_consolidation_the_consolidator_is_the_recipient() -> None:
    cell = Cell("consolidation", "bl-wait", step_ms=50.0)
    line = OutputLine(transaction=1, correct=False)
    assert client_processes.fault(cell, line, ["C", "A2"]) == "late-unsubscription"
    assert client_processes.fault(cell, line, ["A2"]) == "late-subscription"


def test_what_is_not_known_to_be_wrong_has_no_fault() -> None:
    line = OutputLine(transaction=1, outcome="unknown", agent="A1", correct=None)
    assert not client_processes.fault(WAITING, line, [])


def test_traffic_of_a_client_is_that_of_its_link_seen_from_the_other_end() -> None:
    links = [
        {"kind": "broker", "name": "b2", "sent": 10, "received": 20},
        {"kind": "client", "name": "E", "sent": 3, "received": 4},
    ]
    found = counted("b1", {"links": links})
    assert (found["b1"]["messages_in"], found["b1"]["messages_out"]) == (24, 13)
    assert (found["E"]["messages_in"], found["E"]["messages_out"]) == (3, 4)
    assert found["E"]["bytes_in"] is None
