"""The way of messages through a node that keeps a journal: what is done when that takes no more, or is slow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.core import Broker
from broker.gate import ledger
from broker.gate.peer import Peer
from broker.gate.recovery import restore, state_of
from broker.gate.transit import EXPIRE_S, Transit
from broker.journal import graph
from broker.journal.failures import JournalFailed
from broker.protocol import wire
from broker.protocol.filters import make_filter
from broker.protocol.hops import Hop, is_client
from broker.protocol.messages import Announce, Join, JoinAnswer, Operation, Publish, Request
from broker.protocol.wire import AnyMessage
from broker.routing.joining import ClientArrived, ClientGone
from broker.routing.ready import Notice
from tests.support.journals import Disk, Hand

NEIGHBOUR, CLIENT = "broker:b2", "client:P"


class Failing(Disk):
    """A journal that takes no more as soon as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.fails_at = ""
        self.failures: list[JournalFailed] = []

    def append(self, *pieces: bytes) -> int:
        self._fail_at("append")
        return super().append(*pieces)

    def sync(self) -> int:
        self._fail_at("sync")
        return super().sync()

    def rested(self) -> None:
        self._fail_at("rested")

    def journal_failed(self, error: Exception) -> None:
        assert isinstance(error, JournalFailed)
        self.failures.append(error)

    def _fail_at(self, place: str) -> None:
        if self.fails_at == place:
            raise JournalFailed(place)


class Node:
    """A broker without sockets, that keeps a journal."""

    def __init__(self, core: Broker | None = None) -> None:
        self.clock, self.disk = Hand(), Failing()
        self.core = core or Broker("b1", ["b2"], 7)
        self.transit: Transit[Peer] = Transit(self.core, self, self.clock, 1 << 30)
        self.transit.add(self.made_peer(NEIGHBOUR, 5))

    def live(self) -> None:
        self.transit.keep_journal(self.disk, self.disk)
        self.transit.begin(ledger.FirstEntry(0.0, b""), self.core.start())
        self.hear(NEIGHBOUR, Announce("b2", 9, ""))
        self.transit.add(self.made_peer(CLIENT, 100))
        self.transit.handle(CLIENT, ClientArrived(100))
        self.hear(NEIGHBOUR, JoinAnswer("P", 100, "b1", ""))
        self.transit.sync()

    def made_peer(self, hop: Hop, incarnation: int) -> Peer:
        peer = Peer(self.clock, hop, "client" if is_client(hop) else "broker")
        peer.incarnation = incarnation
        peer.hold_bytes = 100
        return peer

    def told(self, hop: Hop, message: object) -> None:
        raise AssertionError(hop)

    def hear(self, hop: Hop, *messages: AnyMessage) -> None:
        peer = self.transit.peers[hop]
        body = wire.body(b"".join(map(wire.encode, messages)), len(messages))
        link = peer.link
        self.transit.receive(peer, link.received + 1, link.sent_processed, list(messages), body)

    def happened(self, notice: Notice) -> None:
        """Nobody listens."""

    def is_too_slow(self, peer: Peer) -> None:
        raise AssertionError(peer.hop)

    def failed(self, stream: object) -> None:
        raise AssertionError(stream)


@pytest.fixture
def node() -> Node:
    found = Node()
    found.live()
    return found


def goes_on(node: Node) -> None:
    node.hear(CLIENT, Request(1, "adv", make_filter({"x": 1})))


def loses_a_client(node: Node) -> None:
    node.transit.handle(CLIENT, ClientGone("it has left"))


@pytest.mark.parametrize("act", [goes_on, loses_a_client])
@pytest.mark.parametrize("place", ["append", "sync", "rested"])
def test_wherever_the_journal_fails_its_keeper_is_told_and_nothing_more_leaves(
    node: Node, place: str, act: Callable[[Node], None]
) -> None:
    """A snapshot is begun at rest: that fails too, and not in whoever has called."""
    node.disk.fails_at = place
    neighbour = node.transit.peers[NEIGHBOUR]
    act(node)
    node.transit.sync()
    assert node.disk.failures
    sent = neighbour.link.taken
    act(node)
    node.transit.sync()
    assert neighbour.link.taken == sent


def test_what_cannot_be_entered_is_not_handled(node: Node) -> None:
    node.disk.fails_at = "append"
    goes_on(node)
    assert not list(node.core.routing.srt)


def test_nobody_waits_for_a_client_that_was_gone_when_something_for_it_left(node: Node) -> None:
    """What was said to it before it went waits for the journal, and fills a queue that nobody empties any more."""
    node.hear(CLIENT, Request(1, "sub", make_filter({"x": 1})))
    node.hear(NEIGHBOUR, Join("Q", 3, "b2"), Operation("adv", "Q", ((0, ""), 1, 3, 1), make_filter({"x": 1})))
    node.transit.sync()
    node.hear(NEIGHBOUR, Publish(1, {"x": 1}, bytes(1000)))
    node.transit.remove(node.transit.peers[CLIENT])
    loses_a_client(node)
    node.transit.sync()
    assert not node.transit.peers[NEIGHBOUR].waits_for


def test_what_is_open_in_a_snapshot_is_looked_at_though_nothing_else_happens() -> None:
    """A broker without clients, to which nobody speaks: lifetimes end all the same."""
    node = Node()
    node.live()
    node.core.retirement.ended("P/100/1")
    core = graph.thaw(graph.freeze(node.core), ("broker", "msgspec"))
    again = Node(core)
    restore(again.transit, [state for state in state_of(node.transit) if state.hop == NEIGHBOUR], again)
    assert core.has_open_transactions
    again.transit.keep_journal(again.disk, again.disk)
    again.clock.advance(2e3 * EXPIRE_S)
    assert not core.has_open_transactions
