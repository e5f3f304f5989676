"""A node that is given the same again is the same: its tables, its transactions, every link with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from broker import status
from broker.core import Broker
from broker.gate import ledger
from broker.gate.peer import Peer
from broker.gate.recovery import PeerState, replay, restore, state_of
from broker.gate.transit import Transit
from broker.journal import graph
from broker.protocol import wire
from broker.protocol.dtx import Begin, Begun, Commit, Ended, Prepare, Prepared, TxRequest
from broker.protocol.filters import between, make_filter
from broker.protocol.hops import Hop, is_client
from broker.protocol.messages import Announce, Join, JoinAnswer, Operation, Publish, Request, Settle
from broker.protocol.vocabulary import NO_KEY
from broker.protocol.wire import AnyMessage, WireError
from broker.routing.joining import ClientArrived, ClientAway, ClientBack, ClientGone
from broker.routing.ready import Notice
from tests.support.journals import Disk, NoClock

NEIGHBOUR = "broker:b2"
CLIENTS = ("client:P", "client:Q")


class Saved(Struct):
    core: Broker
    peers: tuple[PeerState, ...]


class Node:
    """A broker without sockets, and the journal that it keeps."""

    def __init__(self, core: Broker | None = None) -> None:
        self.clock = NoClock()
        self.core = core or Broker("b1", ["b2"], 7)
        self.transit: Transit[Peer] = Transit(self.core, self, self.clock, 1 << 30)
        self.transit.add(self.made_peer(NEIGHBOUR, 0))
        self.disk = Disk()
        self.notices: list[Notice] = []

    def live(self, is_new: bool = True) -> None:
        self.transit.keep_journal(self.disk, self.disk)
        if is_new:
            self.transit.begin(ledger.FirstEntry(0.0, b""), self.core.start())
            self.transit.met(self.transit.peers[NEIGHBOUR], 5)
            self.hear(NEIGHBOUR, Announce("b2", 9, ""), Join("far", 3, "b2"))

    def made_peer(self, hop: Hop, incarnation: int) -> Peer:
        peer = Peer(self.clock, hop, "client" if is_client(hop) else "broker")
        peer.incarnation = incarnation
        return peer

    def told(self, hop: Hop, message: Any) -> None:
        if isinstance(message, ClientArrived):
            self.transit.add(self.made_peer(hop, message.incarnation))
        elif isinstance(message, ClientGone):
            self.transit.remove(self.transit.peers[hop])

    def tell(self, hop: Hop, message: Any) -> None:
        self.told(hop, message)
        self.transit.handle(hop, message)

    def hear(self, hop: Hop, *messages: AnyMessage, processed: int | None = None) -> None:
        peer = self.transit.peers[hop]
        body = wire.body(b"".join(map(wire.encode, messages)), len(messages))
        link = peer.link
        while link.take() is not None:
            """Everything that is sent is on its way."""
        said = link.sent_processed if processed is None else min(processed, link.sent)
        try:
            self.transit.receive(
                peer, link.received + 1, max(said, link.sent_processed), list(messages), body
            )
        except WireError:
            if is_client(hop):
                self.tell(hop, ClientGone("it broke the protocol"))
        self.transit.flush(self.transit.peers.get(hop))

    def happened(self, notice: Notice) -> None:
        self.notices.append(notice)

    def is_too_slow(self, peer: Peer) -> None:
        raise AssertionError(peer.hop)

    def failed(self, stream: object) -> None:
        raise AssertionError(stream)

    def shown(self) -> object:
        """All that somebody else can learn of it."""
        peers = {
            peer.hop: (peer.incarnation, peer.link.processed, *_messages(state.link))
            for peer, state in zip(self.transit.peers.values(), state_of(self.transit), strict=True)
        }
        return peers, msgspec.json.encode(status.describe(self.core, dump=True), order="sorted")

    def saved(self) -> bytes:
        return graph.freeze(Saved(self.core, state_of(self.transit)))


def _messages(link: Any) -> tuple[int, Sequence[AnyMessage]]:
    """How many the peer has processed, and those behind."""
    pieces = b"".join(messages for messages, _ in link.kept)
    return link.sent_processed, wire.decode(wire.body(pieces, sum(count for _, count in link.kept)))


def recovered(entries: Sequence[bytes], snapshot: bytes | None = None) -> Node:
    saved = None if snapshot is None else graph.thaw(snapshot, ("broker", "msgspec", "tests"))
    node = Node(None if saved is None else saved.core)
    if saved is not None:
        restore(node.transit, saved.peers, node)
    replay(node.transit, node.core, entries, node, lambda made_of: None)
    return node


def acts(random: Random, node: Node) -> Iterator[None]:
    """Whatever clients and a neighbour can do, without end."""
    numbers, incarnation = iter(range(1, 1 << 30)), 100
    away: set[Hop] = set()
    while True:
        hop = random.choice(CLIENTS)
        name, number = hop[7:], next(numbers)
        if hop not in node.transit.peers:
            incarnation += 1
            node.tell(hop, ClientArrived(incarnation))
            node.hear(NEIGHBOUR, JoinAnswer(name, incarnation, "b1", ""))
            yield
            continue
        life = node.transit.peers[hop].incarnation
        filter_ = make_filter({"x": between(random.randrange(9), random.randrange(9, 20))})
        tx = f"{name}/{life}/{random.randrange(1, 4)}"
        processed = random.choice((None, number // 2, 1 << 40))
        kind = random.choice(("adv", "uadv", "sub", "usub"))
        messages: list[AnyMessage] = [
            Request(number, kind, filter_),  # type: ignore[arg-type]
            Publish(number, {"x": random.randrange(20)}, b"payload"),
            Settle(name, number),
        ]
        begin = Begin(tx, random.choice(("d-tx", "d-tx-ni")), NO_KEY, 5000)
        inside: list[AnyMessage] = [TxRequest(tx, number, kind, filter_), Prepare(tx), Commit(tx)]  # type: ignore[arg-type]
        is_open = tx in node.core.transactions.dtx.contexts
        if not is_open:
            messages.append(begin)
        elif random.random() < 0.2:
            messages.append(random.choice(inside))
        act = random.randrange(14)
        if act == 0:
            node.tell(hop, ClientAway() if hop not in away else ClientBack())
            away ^= {hop}
        elif act == 1 and random.random() < 0.3:
            node.tell(hop, ClientGone("it has left"))
            away.discard(hop)
        elif act == 2:
            node.transit._expire()
        elif act == 3:
            stamp = ((0, ""), 1, 3, number)
            node.hear(NEIGHBOUR, Operation("sub", "far", stamp, filter_), processed=processed)
        elif act == 4:
            node.hear(NEIGHBOUR, *[Publish(number, {"x": n}, b"") for n in range(random.randrange(1, 40))])
        elif act == 12:
            answers: list[AnyMessage] = [Begun(tx), Prepared(tx), Ended(tx, committed=True)]
            node.hear(NEIGHBOUR, random.choice(answers))
        elif act == 5:
            node.hear(random.choice((NEIGHBOUR, hop)), processed=processed)
        else:
            chosen = random.sample(messages, k=random.randrange(1, 4))
            node.hear(hop, *chosen, processed=processed)
        yield


@pytest.mark.parametrize("seed", range(25))
def test_from_its_entries_alone(seed: int) -> None:
    random, node = Random(seed), Node()
    node.live()
    for _, _ in zip(range(200), acts(random, node), strict=False):
        node.clock.now += random.random()
        if random.random() < 0.4:
            node.transit.sync()
    node.transit.sync()
    again = recovered(node.disk.entries)
    assert again.shown() == node.shown()
    assert again.notices == node.notices


@pytest.mark.parametrize("seed", range(25))
def test_from_a_snapshot_and_what_came_behind_it(seed: int) -> None:
    random, node = Random(seed), Node()
    node.live()
    acting = acts(random, node)
    for _ in range(random.randrange(150)):
        next(acting)
    node.transit.sync()
    snapshot, begin = node.saved(), len(node.disk.entries)
    for _ in range(random.randrange(150)):
        next(acting)
    node.transit.sync()
    again = recovered(node.disk.entries[begin:], snapshot)
    assert again.shown() == node.shown()


def test_time_and_lives_go_on() -> None:
    node = Node()
    node.live()
    node.clock.now = 77.0
    node.tell("client:P", ClientArrived(1000))
    again = Node()
    newest = replay(again.transit, again.core, node.disk.entries, again, lambda made_of: None)
    assert newest == 77.0
    assert again.transit.peers[NEIGHBOUR].incarnation == 5
    assert again.transit.peers["client:P"].incarnation == 1000


def test_what_the_core_was_made_of_is_looked_at_before_it_is_given_anything() -> None:
    node, seen = Node(), list[bytes]()
    node.live()
    again = Node()
    replay(again.transit, again.core, node.disk.entries[:1], again, seen.append)
    assert seen == [b""]
