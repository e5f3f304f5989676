"""Whoever conflicts with nobody and loses nobody commits: who is disturbed, and by what."""

from __future__ import annotations

import pytest

from broker.protocol.filters import Event, Filter, between, make_filter
from broker.protocol.vocabulary import D_TX
from labctl.checks.history import History, Operation, Transaction
from labctl.checks.properties import liveness

LATE = "it comes too late for its place in the order"


def a_history(reason: str = LATE) -> tuple[History, Transaction]:
    """t1 publishes 0 and advertises 1, and is aborted; t2 has committed."""
    history = History({}, {}, {}, [], dict.fromkeys("abcd", "b1"), set(), {}, set())
    for name, outcome in (("t1", "aborted"), ("t2", "committed")):
        found = history.transactions[name] = Transaction(name, D_TX, "a", outcome, began=0, ended=9)
        (found.committed_at if outcome == "committed" else found.aborted_at).add("b1")
    first = history.transactions["t1"]
    first.reason = reason
    first.operations = {1: publication("a", 0), 2: change("a", "adv", 1)}
    return history, history.transactions["t2"]


def publication(client: str, value: int) -> Operation:
    event: Event = {"x": value}
    return Operation(client, 1, "pub", None, event, 1)


def change(client: str, kind: str, low: int, high: int | None = None) -> Operation:
    filter_: Filter = make_filter({"x": low if high is None else between(low, high)})
    return Operation(client, 2, kind, filter_, None, 2)


def is_blamed(history: History, is_patient: bool = False) -> bool:
    return any("in nobody's way" in text for text in liveness(history, [], "all", is_patient).faults)


def test_nobody_is_in_its_way() -> None:
    history, other = a_history()
    other.operations = {3: change("b", "sub", 2), 4: publication("b", 3)}
    assert is_blamed(history)


@pytest.mark.parametrize(
    "operation",
    [change("b", "sub", 0), change("b", "uadv", 0, 3), change("b", "sub", 1), publication("b", 1)],
    ids=["it reads that", "it reads a part of that", "it writes that", "that reads what it writes"],
)
def test_another_transaction_is_in_its_way(operation: Operation) -> None:
    history, other = a_history()
    other.operations = {3: operation}
    assert not is_blamed(history)


def test_what_both_attract_is_in_their_way() -> None:
    """A subscription from before that overlaps the advertisements of both: a broker that gets it cannot know."""
    history, other = a_history()
    other.operations = {3: change("b", "adv", 2)}
    assert is_blamed(history)
    history.spaces = None
    history.setup["c"] = [change("c", "sub", 1, 2)]
    assert not is_blamed(history)


def test_a_regular_operation_is_in_its_way_and_a_publication_is_not() -> None:
    history, _ = a_history()
    history.regular["b"] = [publication("b", 1)]
    assert is_blamed(history)
    history.regular["b"] = [change("b", "sub", 0)]
    assert not is_blamed(history)


def test_what_a_client_takes_with_it_when_it_goes_is_in_its_way() -> None:
    history, _ = a_history()
    history.gone.add("d")
    assert is_blamed(history)
    history.setup["d"] = [change("d", "sub", 0)]
    assert not is_blamed(history)


def test_whoever_loses_somebody_may_abort() -> None:
    history, _ = a_history()
    history.transactions["t1"].operations[1].receivers.add("c")
    history.gone.add("c")
    assert not is_blamed(history)


def test_a_lifetime_is_no_fault_of_brokers_where_messages_are_slow() -> None:
    history, _ = a_history("its lifetime is over")
    assert not is_blamed(history)
    assert is_blamed(history, is_patient=True)


def test_its_client_may_have_forgotten_what_it_has_changed_itself() -> None:
    history, other = a_history("its client has changed the same since")
    other.operations = {3: change("b", "sub", 3)}
    assert is_blamed(history)
    other.operations = {3: change("a", "sub", 3)}
    assert not is_blamed(history)
