"""The one door for effects: nothing leaves before what it stands on is durable, and nothing overtakes."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from broker.core import Broker
from broker.gate.gate import Gate
from broker.protocol import wire
from broker.protocol.delay import Delay
from broker.protocol.filters import make_filter
from broker.protocol.messages import Accepted, Joined, Publish, Request
from broker.protocol.wire import AnyMessage
from broker.routing.joining import ClientArrived, ClientGone
from broker.routing.ready import Notice
from broker.serving.forwarding import Forwarder
from broker.serving.peer import Peer
from tests.support.journals import Disk


def test_without_entries_everything_leaves_at_once() -> None:
    left: list[int] = []
    gate = Gate()
    for number in range(3):
        gate.submit(left.append, number)
    assert left == [0, 1, 2]
    assert len(gate) == 0


def test_what_stands_on_an_entry_waits_for_it_and_so_does_all_behind() -> None:
    disk, left = Disk(), list[str]()
    gate = Gate(disk.append)
    gate.submit(left.append, "before")
    gate.enter(b"1")
    gate.enter(b"2")
    gate.submit(left.append, "stands on two")
    gate.submit(left.append, "behind")
    gate.enter(b"3")
    gate.submit(left.append, "stands on three")
    assert (left, len(gate)) == (["before"], 3)
    gate.durable(1)
    assert left == ["before"]
    gate.durable(2)
    assert left == ["before", "stands on two", "behind"]
    gate.durable(3)
    assert left[-1] == "stands on three"
    gate.submit(left.append, "after")
    assert (left[-1], len(gate)) == ("after", 0)


def test_a_journal_that_is_durable_at_once_holds_nothing_up() -> None:
    left: list[str] = []
    count = 0

    def append(*pieces: bytes) -> int:
        nonlocal count
        count += len(pieces)
        gate.durable(count)
        return count

    gate = Gate(append)
    gate.enter(b"1")
    gate.submit(left.append, "it")
    assert (left, len(gate)) == (["it"], 0)


def test_what_an_effect_submits_stands_behind_those_that_wait() -> None:
    disk, left = Disk(), list[str]()
    gate = Gate(disk.append)

    def first() -> None:
        left.append("first")
        gate.submit(left.append, "by the first")

    gate.enter(b"1")
    gate.submit(first)
    gate.submit(left.append, "second")
    gate.durable(1)
    assert left == ["first", "second", "by the first"]


def test_an_effect_that_fails_is_not_carried_out_twice() -> None:
    disk, left = Disk(), list[str]()
    gate = Gate(disk.append)

    def fail() -> None:
        raise OSError("disk full")

    gate.enter(b"1")
    gate.submit(fail)
    gate.submit(left.append, "next")
    with pytest.raises(OSError, match="disk full"):
        gate.durable(1)
    gate.durable(1)
    assert left == ["next"]


@pytest.mark.parametrize("seed", range(30))
def test_order_and_durability_hold_whenever_the_disk_writes(seed: int) -> None:
    random, disk, left = Random(seed), Disk(), list[int]()
    gate = Gate(disk.append)
    needed: list[int] = []

    def carry_out(number: int) -> None:
        assert needed[number] <= disk.durable, "an effect has left before its entry was durable"
        left.append(number)

    for number in range(200):
        for _ in range(random.choice((0, 0, 1, 3))):
            gate.enter(b"x")
        needed.append(len(disk.entries))
        gate.submit(carry_out, number)
        if random.random() < 0.3:
            disk.durable = random.randint(disk.durable, len(disk.entries))
            gate.durable(disk.durable)
    disk.durable = len(disk.entries)
    gate.durable(disk.durable)
    assert left == list(range(200))


class Nobody:
    def happened(self, notice: Notice) -> None:
        """Nobody looks."""

    def is_too_slow(self, peer: Peer) -> None:
        raise AssertionError(peer.hop)

    def failed(self, stream: object) -> None:
        raise AssertionError(stream)


class Table:
    """A forwarder with a slow disk, a publisher and a subscriber without connections."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.forwarder = Forwarder(Broker("b1", [], 1), Nobody(), 1 << 30)
        self.forwarder.keep_journal(self.disk, self.disk)
        for hop in ("client:P", "client:S"):
            self.forwarder.add(Peer(hop, "client", Delay(), 10.0))
            self.forwarder.handle(hop, ClientArrived(7))
        self.write()
        self.sent("client:P")
        self.sent("client:S")

    def hear(self, hop: str, *messages: AnyMessage) -> None:
        peer, body = self.forwarder.peers[hop], wire.body(b"".join(map(wire.encode, messages)), len(messages))
        self.forwarder.receive(peer, peer.link.received + 1, 0, wire.decode(body), body)
        self.forwarder.flush(peer)

    def sent(self, hop: str) -> list[AnyMessage]:
        """Since it was asked last."""
        peer = self.forwarder.peers[hop]
        peer.flush()
        found: list[AnyMessage] = []
        while peer.link.pending:
            messages, count = peer.link.pending.popleft()
            found += wire.decode(wire.body(messages, count))
        return found

    def processed(self, hop: str) -> int:
        return self.forwarder.peers[hop].link.processed

    def write(self) -> None:
        self.forwarder.sync()


def test_a_broker_answers_and_counts_as_processed_only_what_is_durable() -> None:
    async def run() -> None:
        table = Table()
        table.hear("client:P", Request(1, "adv", make_filter({"a": 1})))
        assert (table.sent("client:P"), table.processed("client:P")) == ([], 0)
        table.write()
        assert (table.sent("client:P"), table.processed("client:P")) == ([Accepted(1)], 1)

    asyncio.run(run())


def test_a_publication_does_not_overtake_what_its_way_depends_on() -> None:
    async def run() -> None:
        table = Table()
        table.hear("client:P", Request(1, "adv", make_filter({"a": 1})))
        table.write()
        table.sent("client:P")
        table.hear("client:S", Request(1, "sub", make_filter({"a": 1})))
        event = Publish(5, {"a": 1}, b"")
        table.hear("client:P", event)
        assert table.sent("client:S") == []
        assert (table.processed("client:P"), table.processed("client:S")) == (1, 0)
        table.write()
        assert table.sent("client:S") == [Accepted(1), event]
        assert (table.processed("client:P"), table.processed("client:S")) == (2, 1)

    asyncio.run(run())


def test_what_was_said_to_a_client_does_not_reach_the_next_of_its_name() -> None:
    async def run() -> None:
        table = Table()
        old = table.forwarder.peers["client:P"]
        table.hear("client:P", Request(1, "adv", make_filter({"a": 1})))
        table.forwarder.remove(old)
        table.forwarder.handle("client:P", ClientGone("left"))
        table.forwarder.add(Peer("client:P", "client", Delay(), 10.0))
        table.forwarder.handle("client:P", ClientArrived(8))
        table.write()
        assert table.sent("client:P") == [Joined(1)]
        assert table.forwarder.peers["client:P"] is not old

    asyncio.run(run())


def test_behind_a_sealed_gate_nothing_is_carried_out_any_more() -> None:
    done: list[str] = []
    gate = Gate(lambda *pieces: 1)
    gate.submit(done.append, "before")
    gate.enter(b"entry")
    gate.submit(done.append, "waits")
    gate.seal()
    gate.enter(b"entry")
    gate.submit(done.append, "never")
    assert done == ["before"]
    assert len(gate) == 2
