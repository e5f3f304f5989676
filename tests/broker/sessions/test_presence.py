"""Who is let in, waited for and parted with, where greetings wait in a gate for the journal."""

from __future__ import annotations

from typing import Any

import pytest

from broker.core import Broker
from broker.gate.peer import Peer
from broker.gate.transit import Transit
from broker.protocol.hops import Hop, is_client
from broker.protocol.limits import Limits
from broker.protocol.messages import Announce, Goodbye, Hello, Welcome
from broker.protocol.wire import PROTOCOL_VERSION, encode, frame, read_header
from broker.routing.ready import Notice
from broker.sessions.presence import PeerSessions
from broker.sessions.saved import Saved
from tests.support.journals import Disk, Hand

NEIGHBOUR = "broker:b2"
GRACE_MS = 100.0


class Line:
    """A connection, and what was written on it."""

    def __init__(self) -> None:
        self.heard = 0.0
        self.is_open = True
        self.said: list[Any] = []
        self.frames: list[bytes] = []

    def write(self, data: bytes, /) -> None:
        self.frames.append(data)

    def say(self, message: Any, /) -> None:
        self.said.append(message)

    def fail(self, reason: str, /) -> None:
        raise AssertionError(reason)

    def abort(self, _reason: str = "", /) -> None:
        self.is_open = False


class Node(PeerSessions[Peer]):
    def __init__(self, saved: Saved | None = None) -> None:
        self.clock, self.disk = Hand(), Disk()
        self.core = Broker("b1", ["b2"], 7) if saved is None else saved.core
        transit: Transit[Peer] = Transit(self.core, self, self.clock, 1 << 30)
        super().__init__("b1", 7, transit, self.clock, GRACE_MS, None if saved is None else saved.departed)
        transit.add(Peer(self.clock, NEIGHBOUR, "broker"))
        self.refused: list[tuple[Line, Goodbye]] = []

    def live(self) -> Node:
        self.transit.keep_journal(self.disk, self.disk)
        return self

    def made_peer(self, hop: Hop, incarnation: int) -> Peer:
        peer = Peer(self.clock, hop, "client" if is_client(hop) else "broker")
        peer.incarnation = incarnation
        return peer

    def greeting_to(self, peer: Peer) -> Welcome:
        return Welcome("b1", 7, peer.link.processed, Limits())

    def address_of(self, stream: Line) -> str:
        return "somewhere"

    def is_lost(self, stream: Line) -> bool:
        return not stream.is_open

    def refuse(self, stream: Line, goodbye: Goodbye) -> None:
        self.refused.append((stream, goodbye))
        stream.is_open = False

    def attached(self, peer: Peer, stream: Line) -> None:
        """It is in `peer.stream`."""

    def happened(self, notice: Notice) -> None:
        """Nobody listens."""

    def is_too_slow(self, peer: Peer) -> None:
        raise AssertionError(peer.hop)

    def failed(self, stream: object) -> None:
        raise AssertionError(stream)

    def greet(self, received: int = 0) -> Line:
        line = Line()
        self.greet_client(line, Hello(PROTOCOL_VERSION, "client", "E", "b1", 5, 0, received, "all"))
        return line


@pytest.fixture
def node() -> Node:
    return Node().live()


def test_a_client_is_welcomed_when_its_session_is_durable(node: Node) -> None:
    line = node.greet()
    assert (line.said, node.peers["client:E"].stream) == ([], None)
    node.transit.sync()
    assert isinstance(line.said[0], Welcome)
    assert node.peers["client:E"].stream is line


def test_a_neighbour_that_has_welcomed_us_is_heard_at_once_whatever_waits(node: Node) -> None:
    """It speaks right behind its welcome, perhaps in the same packet."""
    node.greet()
    assert len(node.transit.gate)
    line, peer = Line(), node.peers[NEIGHBOUR]
    node.welcomed(peer, line, Welcome("b2", 9, 0, Limits()))
    assert peer.stream is line
    data = frame(encode(Announce("b2", 9, "")), 1, 1, 0)
    node.transit.receive(peer, *read_header(data)[1:], [Announce("b2", 9, "")], data[20:])
    node.transit.sync()
    assert peer.link.processed == 1


def test_who_is_back_in_time_is_not_given_up_while_its_welcome_waits(node: Node) -> None:
    first = node.greet()
    node.transit.sync()
    first.is_open = False
    node.lost(node.peers["client:E"])
    second = node.greet()
    node.clock.advance(GRACE_MS)
    node.transit.sync()
    assert node.peers["client:E"].stream is second
    assert node.refused == []


def test_who_was_parted_with_while_its_welcome_waited_is_told_so(node: Node) -> None:
    line = node.greet()
    node.gone(node.peers["client:E"], Goodbye("state-lost", "another one has come"))
    node.transit.sync()
    assert node.refused == [(line, Goodbye("state-lost", "another one has come"))]
    assert line.said == []
    assert "client:E" not in node.peers


def test_whose_connection_is_lost_while_its_welcome_waits_is_waited_for(node: Node) -> None:
    line = node.greet()
    line.is_open = False
    node.transit.sync()
    peer = node.peers["client:E"]
    assert peer.stream is None
    node.transit.sync()
    node.clock.advance(GRACE_MS)
    node.transit.sync()
    assert "client:E" not in node.peers


def test_who_comes_back_with_what_it_cannot_know_is_refused_and_waited_for_as_before(node: Node) -> None:
    first = node.greet()
    node.transit.sync()
    first.is_open = False
    node.lost(node.peers["client:E"])
    node.greet(received=77)
    node.transit.sync()
    assert [goodbye.code for _, goodbye in node.refused] == ["protocol"]
    node.clock.advance(GRACE_MS)
    node.transit.sync()
    assert "client:E" not in node.peers


def test_who_is_welcomed_need_not_come_back(node: Node) -> None:
    """The old connection may be noticed as lost when the next one has greeted, and before that is welcomed."""
    first = node.greet()
    node.transit.sync()
    node.transit.met(node.peers[NEIGHBOUR], 9)
    second = node.greet()
    first.is_open = False
    node.lost(node.peers["client:E"])
    node.transit.sync()
    node.clock.advance(GRACE_MS)
    assert node.peers["client:E"].stream is second
