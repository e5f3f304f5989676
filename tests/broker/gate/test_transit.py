"""The way of frames through a node, around a core that a test plays: order, bytes, counting, waiting."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from broker.gate.peer import Peer
from broker.gate.transit import EXPIRE_S, Transit
from broker.journal.failures import JournalFailed
from broker.protocol import wire
from broker.protocol.filters import make_filter
from broker.protocol.hops import Hop
from broker.protocol.messages import Accepted, Publish, Refused, Request
from broker.protocol.vocabulary import Message
from broker.protocol.wire import HEADER_BYTES, AnyMessage, WireError
from broker.routing.publications import Decision
from broker.routing.ready import Notice, Ready


class ManualClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> ManualClock:
        self.due.append((self.now + delay, lambda: callback(*args)))
        return self

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> None:
        callback(*args)

    def cancel(self) -> None: ...


class Wire:
    """A connection that keeps what is written to it, a frame at a time."""

    heard = 0.0

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.faults: list[str] = []

    def write(self, data: bytes) -> None:
        self.frames.append(data)

    def say(self, message: Message) -> None: ...

    def fail(self, reason: str) -> None:
        self.faults.append(reason)

    def abort(self, reason: str = "") -> None: ...

    def messages(self) -> list[AnyMessage]:
        return [message for frame in self.frames for message in wire.decode(frame[HEADER_BYTES:])]


class Scripted:
    """A core that sends every publication to `hops`, and answers a request with what a test says."""

    def __init__(self) -> None:
        self.hops: Collection[Hop] = ("client:S",)
        self.refuses = ""
        self.asked: list[int] = []
        """How many publications were decided on together."""
        self.looks = 0
        self.has_open_transactions = False

    def decide_one(self, source: Hop, message: Publish) -> tuple[Collection[Hop], str]:
        decision = self.decide(source, [message])
        return decision.hops[0], decision.refused.get(0, "")

    def decide(self, source: Hop, messages: Sequence[Publish]) -> Decision:
        self.asked.append(len(messages))
        if self.refuses:
            return Decision([()] * len(messages), dict.fromkeys(range(len(messages)), self.refuses))
        return Decision([self.hops] * len(messages), {})

    def handle(self, now: float, source: Hop, message: Request) -> Ready:
        if message.number < 0:
            raise WireError("a number below 0")
        return Ready([(source, Accepted(message.number))], [Notice("told", {})])

    def expire(self, now: float) -> Ready:
        self.looks += 1
        return Ready([("client:gone", Accepted(98)), ("client:S", Accepted(99))], [])


class Node:
    """Its peers P and S, each with a connection; it is told what the owner would be."""

    def __init__(self) -> None:
        self.clock, self.core = ManualClock(), Scripted()
        self.told: list[object] = []
        self.transit: Transit[Peer] = Transit(self.core, self, self.clock, 1 << 20)
        self.wires: dict[str, Wire] = {}
        for hop in ("client:P", "client:S"):
            peer = Peer(self.clock, hop, "client")
            self.transit.add(peer)
            stream = self.wires[hop] = Wire()
            self.transit.resume(peer, stream, 0)

    def happened(self, notice: Notice) -> None:
        self.told.append((notice.name, len(self.wires["client:P"].frames)))

    def is_too_slow(self, peer: Peer) -> None:
        self.told.append(peer.hop)

    def failed(self, stream: object) -> None:
        self.told.append(stream)

    def hear(self, *messages: AnyMessage) -> None:
        peer = self.transit.peers["client:P"]
        body = wire.body(b"".join(map(wire.encode, messages)), len(messages))
        self.transit.receive(peer, peer.link.received + 1, 0, wire.decode(body), body)

    def got(self, hop: str) -> list[AnyMessage]:
        return self.wires[f"client:{hop}"].messages()

    def looks(self) -> list[Callable[[], object]]:
        return [callback for due, callback in self.clock.due if due == EXPIRE_S]

    @property
    def processed(self) -> int:
        return self.transit.peers["client:P"].link.processed


ANY = make_filter({"a": 1})
EVENTS = [Publish(number, {"a": 1}, bytes([number])) for number in range(1, 6)]


def test_publications_of_one_frame_are_decided_on_together_and_leave_with_the_turn() -> None:
    node = Node()
    node.hear(*EVENTS)
    assert node.core.asked == [5]
    assert (node.got("S"), node.processed) == ([], 5)
    node.transit.flush()
    assert node.got("S") == EVENTS
    assert len(node.wires["client:S"].frames) == 1


def test_what_is_between_publications_keeps_its_place_and_leaves_at_once() -> None:
    node = Node()
    node.hear(EVENTS[0], Request(1, "sub", ANY), *EVENTS[1:3])
    assert node.core.asked == [1, 2]
    assert node.got("P") == [Accepted(1)]
    assert node.got("S") == EVENTS[:1]
    node.transit.flush()
    assert (node.got("S"), node.processed) == (EVENTS[:3], 4)


def test_what_the_core_tells_is_told_after_its_answer_has_left() -> None:
    node = Node()
    node.hear(Request(1, "sub", ANY))
    assert node.told == [("told", 1)]


def test_a_publication_never_goes_back_to_where_it_came_from() -> None:
    node = Node()
    node.core.hops = ("client:P", "client:S")
    node.hear(EVENTS[0])
    node.hear(*EVENTS[1:])
    node.transit.flush()
    assert (node.got("P"), node.got("S")) == ([], EVENTS)


@pytest.mark.parametrize("count", [1, 3])
def test_a_refusal_goes_to_the_publisher_by_the_number_of_the_publication(count: int) -> None:
    node = Node()
    node.core.refuses = "no"
    node.hear(*EVENTS[:count])
    node.transit.flush()
    assert node.got("P") == [Refused(event.id, "no") for event in EVENTS[:count]]
    assert (node.got("S"), node.processed) == ([], count)


def test_a_breach_of_the_protocol_counts_what_stands_before_it_and_itself() -> None:
    node = Node()
    with pytest.raises(WireError, match="below 0"):
        node.hear(EVENTS[0], Request(-1, "sub", ANY), EVENTS[1])
    assert (node.got("S"), node.processed) == (EVENTS[:1], 2)


def test_a_full_destination_holds_its_sources_until_it_has_room() -> None:
    node = Node()
    full = node.transit.peers["client:S"]
    full.hold_bytes = 10
    node.hear(*EVENTS[:2])
    node.transit.flush(node.transit.peers["client:P"])
    node.hear(*EVENTS[2:])
    assert (node.core.asked, node.processed) == ([2], 2), "the second frame is kept as it came"
    full.link.acknowledge(full.link.sent)
    full.drained(node.transit.release)
    assert (node.core.asked, node.processed, node.got("S")) == ([2, 3], 5, EVENTS)


def test_a_source_whose_connection_is_lost_sends_again_what_was_held() -> None:
    node = Node()
    publisher, full = node.transit.peers["client:P"], node.transit.peers["client:S"]
    full.hold_bytes = 10
    node.hear(*EVENTS[:2])
    node.transit.flush(publisher)
    node.hear(*EVENTS[2:])
    node.transit.interrupt(publisher)
    assert not publisher.held.frames
    assert publisher.link.processed == 2


def test_time_is_looked_at_only_while_something_is_open() -> None:
    node = Node()
    node.hear(Request(1, "sub", ANY))
    assert node.looks() == []
    node.core.has_open_transactions = True
    node.hear(Request(2, "sub", ANY))
    (look,) = node.looks()
    node.clock.due.clear()
    look()
    assert (node.core.looks, node.got("S")) == (1, [Accepted(99)])
    assert len(node.looks()) == 1, "it is open still"


class Closed:
    """A journal that has been closed, and a keeper who remembers what is due."""

    def __init__(self) -> None:
        self.is_closed = False
        self.due: list[Callable[[], None]] = []
        self.entries = 0

    def append(self, *_: bytes) -> int:
        assert not self.is_closed
        self.entries += 1
        return self.entries

    def sync(self) -> int:
        assert not self.is_closed
        return self.entries

    def sync_soon(self, sync: Callable[[], None]) -> None:
        self.due.append(sync)

    def journal_failed(self, error: JournalFailed) -> None:
        raise error

    def rested(self) -> None: ...


def test_when_all_is_over_nothing_more_is_asked_of_the_journal_and_nothing_leaves() -> None:
    node, journal = Node(), Closed()
    node.transit.keep_journal(journal, journal)
    node.hear(Request(1, "sub", ANY))
    assert len(journal.due) == 1
    node.transit.close()
    journal.is_closed = True
    for sync in journal.due:
        sync()
    node.hear(Request(2, "sub", ANY))
    node.hear()
    assert (node.got("P"), node.processed) == ([], 0)


def test_behind_a_journal_that_has_failed_nothing_leaves_and_its_keeper_is_told_each_time() -> None:
    class Failed(Closed):
        def append(self, *_: bytes) -> int:
            raise JournalFailed("the disk is full")

        def journal_failed(self, error: JournalFailed) -> None:
            told.append(str(error))

    told: list[str] = []
    node, journal = Node(), Failed()
    node.transit.keep_journal(journal, journal)
    node.hear(Request(1, "sub", ANY))
    node.hear(Request(2, "sub", ANY))
    assert set(told) == {"the disk is full"}
    assert (node.got("P"), node.processed) == ([], 0)
