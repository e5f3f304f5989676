"""What a broker goes on from: a snapshot of everything, and the entries behind it."""

from __future__ import annotations

import pytest

from broker.gate import ledger
from broker.journal.failures import FolderRefused
from broker.protocol.messages import Goodbye
from broker.routing.joining import ClientArrived
from broker.sessions.saved import Saved, freeze, recover, thaw, whole_state
from tests.broker.sessions.test_presence import Node


def begun(at: float) -> Node:
    """With a client that is here and one that is gone, at this time."""
    node = Node().live()
    node.clock.now = at
    node.transit.begin(ledger.FirstEntry(at, b"made of this"), node.core.start())
    node.greet()
    node.transit.sync()
    node.gone(node.peers["client:E"], Goodbye("state-lost", "it was away for too long"))
    node.greet()
    node.transit.sync()
    return node


def recovered(snapshot: bytes | None, entries: list[bytes], now: float = 0.0) -> tuple[Node, list[bytes]]:
    state, made_of = thaw(snapshot), list[bytes]()
    node = Node(state)
    node.clock.now = now
    recover(node.transit, node.core, state, entries, node, made_of.append)
    return node, made_of


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_broker_goes_on_with_its_clients_and_knows_who_has_departed(has_snapshot: bool) -> None:
    node = begun(50.0)
    entries = node.disk.entries
    snapshot = freeze(whole_state(node.core, node, 3)) if has_snapshot else None
    again, made_of = recovered(snapshot, [] if has_snapshot else entries)
    assert again.peers["client:E"].incarnation == 5
    assert again.departed.as_list() == node.departed.as_list() != []
    assert made_of == ([] if has_snapshot else [b"made of this"])


def test_time_goes_on_whatever_the_clock_says() -> None:
    for at, now, expected in ((50.0, 3.0, 50.0), (50.0, 60.0, 60.0), (-50.0, -80.0, -50.0)):
        again, _ = recovered(None, begun(at).disk.entries, now)
        assert again.transit.time() == pytest.approx(expected)


def test_where_there_is_no_snapshot_there_is_no_state() -> None:
    assert thaw(None) is None


def test_what_is_no_state_of_a_broker_is_refused() -> None:
    with pytest.raises(FolderRefused):
        thaw(b"something")


def test_the_lines_of_the_history_are_counted() -> None:
    state = thaw(freeze(whole_state(begun(1.0).core, begun(1.0), 17)))
    assert isinstance(state, Saved)
    assert state.lines == 17


def test_who_is_told_of_in_the_journal_is_here() -> None:
    node = Node()
    node.told("client:F", ClientArrived(9))
    assert node.peers["client:F"].incarnation == 9
