"""Frames of many publications: what leads where, as if each had come alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from msgspec import Raw

from broker.core import Broker
from broker.protocol import wire
from broker.protocol.delay import Delay
from broker.protocol.filters import between, make_filter
from broker.protocol.messages import Publish, Refused, Request, Settle, Settled
from broker.protocol.wire import AnyMessage, WireError
from broker.serving.forwarding import Forwarder
from broker.serving.peer import Peer
from broker.serving.server import Server
from broker.transport.stream import Stream
from tests.support.journals import Disk
from tests.support.rawclients import RawWorld

HOPS = ("client:P", "client:S", "client:T", "broker:b2")


class Nobody:
    def happened(self, event: object) -> None:
        pass

    def is_too_slow(self, peer: Peer) -> None:
        raise AssertionError(f"{peer.hop} is too slow")

    def failed(self, stream: object) -> None:
        raise AssertionError


class Outboxes(Forwarder):
    """A forwarder whose peers have no connection: what would be sent stays in their outboxes."""

    def __init__(self, core: Broker) -> None:
        super().__init__(core, Nobody(), 1 << 30)
        for hop in HOPS:
            self.add(Peer(hop, "client" if hop.startswith("client") else "broker", Delay(), 10.0))

    def take(self, hop: str, messages: Sequence[AnyMessage]) -> None:
        peer, body = self.peers[hop], wire.body(b"".join(map(wire.encode, messages)), len(messages))
        self.receive(peer, peer.link.received + 1, 0, wire.decode(body), body)

    def gathered(self, hop: str) -> list[AnyMessage]:
        peer = self.peers[hop]
        peer.flush()
        pushed: list[bytes | Raw] = [messages for messages, _ in peer.link.pending]
        count = sum(count for _, count in peer.link.pending)
        return wire.decode(wire.body(b"".join(pushed), count))


def an_edge_broker() -> Broker:
    world = RawWorld([("b1", "b2")])
    for client, home in (("P", "b1"), ("S", "b1"), ("T", "b1"), ("far", "b2")):
        world.enter(client, home)
    world.run()
    world.operate("P", "adv", make_filter({"a": between(0, 50)}))
    world.run()
    wanted: list[tuple[str, dict[str, object]]] = [
        ("S", {"a": between(0, 20), "b": 1}),
        ("S", {"a": 3}),
        ("T", {"a": between(10, 30)}),
        ("far", {"b": 1}),
        ("far", {"a": 4, "b": 2}),
        ("P", {"a": 5}),
    ]
    for client, constraints in wanted:
        world.operate(client, "sub", make_filter(constraints))
    world.operate("far", "usub", make_filter({"a": 7}))
    world.run()
    world.forget_history()
    return world.brokers["b1"]


def publications(random: Random, count: int) -> list[AnyMessage]:
    messages: list[AnyMessage] = []
    for number in range(count):
        event = {"a": random.choice((1, 3, 4, 5, 7, 15, 25, 40, 60, 2**63)), "b": random.choice((1, 2))}
        if random.random() < 0.3:
            event.pop("b")
        messages.append(Publish(number, event, b"x" * random.choice((0, 8))))  # type: ignore[arg-type]
    return messages


@pytest.mark.parametrize("seed", range(20))
def test_many_publications_of_a_frame_go_where_each_goes_alone(seed: int) -> None:
    random = Random(seed)
    messages = publications(random, 40)
    for place in range(0, 40, random.choice((9, 41))):
        messages[place] = (
            Settle("P", place + 1) if place % 2 else Request(place, "sub", make_filter({"a": 1}))
        )

    async def run(source: str, *frames: list[AnyMessage]) -> dict[str, list[AnyMessage]]:
        forwarder = Outboxes(an_edge_broker())
        for frame in frames:
            forwarder.take(source, frame)
        assert forwarder.peers[source].link.processed == len(messages)
        return {hop: forwarder.gathered(hop) for hop in HOPS}

    together = asyncio.run(run("client:P", messages))
    alone = asyncio.run(run("client:P", *([message] for message in messages)))
    for hop in HOPS:
        for is_refusal in (True, False):
            assert [m for m in together[hop] if isinstance(m, Refused) is is_refusal] == [
                m for m in alone[hop] if isinstance(m, Refused) is is_refusal
            ]
    assert all(together.values())
    assert any(isinstance(message, Refused) for message in together["client:P"])


def test_what_stands_before_a_breach_of_the_protocol_is_done_and_counted() -> None:
    async def run() -> Outboxes:
        forwarder = Outboxes(an_edge_broker())
        breach = Settled("P", 1)  # only a broker says that
        publication = Publish(1, {"a": 15}, b"")
        with pytest.raises(WireError, match="does not send Settled"):
            forwarder.take("client:P", [*[publication] * 5, breach, publication])
        return forwarder

    forwarder = asyncio.run(run())
    assert len(forwarder.gathered("client:T")) == 5
    assert forwarder.peers["client:P"].link.processed == 6


def test_a_publication_alone_passes_nothing_that_waits_for_the_journal() -> None:
    async def run() -> None:
        forwarder = Outboxes(an_edge_broker())
        carried_out: list[str] = []
        disk = Disk()
        forwarder.keep_journal(disk, disk)
        forwarder.gate.enter(b"entry")
        forwarder.gate.submit(carried_out.append, "first")
        forwarder.take("client:P", [Publish(1, {"a": 15}, b"")])
        assert forwarder.peers["client:T"].outbox == [] == carried_out
        assert forwarder.peers["client:P"].link.processed == 0
        forwarder.sync()
        assert forwarder.gathered("client:T") == [Publish(1, {"a": 15}, b"")]
        assert forwarder.peers["client:P"].link.processed == 1

    asyncio.run(run())


class Wire:
    """A connection that notes what is written, by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def get_extra_info(self, name: str) -> str:
        return name

    def counts(self) -> list[int]:
        """How many messages left with each write."""
        return [len(wire.decode(data[wire.HEADER_BYTES :])) for data in self.writes]


class Process(Server):
    """A broker's process without sockets, but for what its peers are written."""

    def __init__(self, core: Broker) -> None:
        self._forwarder = Outboxes(core)
        self.wires: dict[str, Wire] = {}
        for hop, peer in self._forwarder.peers.items():
            self.wires[hop] = Wire()
            peer.stream = Stream(self, peer)
            peer.stream.connection_made(self.wires[hop])  # type: ignore[arg-type]

    def stream_opened(self, stream: Stream) -> None:
        pass

    def read(self, hop: str, *frames: list[Publish]) -> None:
        """What one read brings."""
        peer, data = self._forwarder.peers[hop], b""
        assert peer.stream is not None
        first = peer.link.received + 1
        for frame in frames:
            data += wire.frame(b"".join(map(wire.encode, frame)), len(frame), first, 0)
            first += len(frame)
        peer.stream.data_received(data)


def test_publications_in_frames_of_their_own_leave_together_if_they_were_read_together() -> None:
    async def run(source: str) -> Process:
        process = Process(an_edge_broker())
        ours, other = Publish(1, {"a": 3}, b""), Publish(2, {"a": 15}, b"")  # for S, for T
        nobodys, both = Publish(3, {"a": 40}, b""), Publish(4, {"a": 15, "b": 1}, b"")
        process.read(source, [ours])
        process.read(source, [ours], [other], [ours], [nobodys])
        process.read(source, [nobodys], [ours])
        process.read(source, [both])
        process.read(source, [ours, other, ours], [ours])
        return process

    for source in ("client:P", "broker:b2"):
        process = asyncio.run(run(source))
        assert process.wires["client:S"].counts() == [1, 2, 1, 1, 3]
        assert process.wires["client:T"].counts() == [1, 1, 1]


def test_a_publication_does_not_go_back_to_where_it_came_from() -> None:
    async def run() -> Process:
        process = Process(an_edge_broker())
        process.read("client:P", [Publish(1, {"a": 5}, b"")])
        return process

    assert not any(there.writes for there in asyncio.run(run()).wires.values())
