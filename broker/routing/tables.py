"""SRT and PRT: where advertisements, subscriptions and publications go (Section 2.2); pure.

Advertisements flood into the subscription routing table (SRT). A subscription follows the
advertisements that it overlaps and is kept in the publication routing table (PRT) of every broker on
its way; one that meets no advertisement waits, and is attracted by the first that comes. Spaces have
holes: of one client's records the newest that contains an event decides, newest by stamp, because
attraction can bring records in any order.

Records of an undecided transaction carry its tag. Everybody sees its `sub` and `adv`; its `usub` and
`uadv` count for others when it commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from broker.matching.many import hops_of_each
from broker.matching.records import Record, RoutingError
from broker.protocol.filters import Event, Overlap
from broker.protocol.hops import Hop, Sends
from broker.protocol.messages import Operation
from broker.protocol.vocabulary import Stamp
from broker.routing.compaction import Compaction
from broker.routing.prt import PRT
from broker.routing.srt import SRT


class Placement(NamedTuple):
    """Where a record goes on to, and which records it attracts to where it came from."""

    onward: list[Hop]
    attracted: list[Record]


class Routing:
    """Both tables of one broker, and the sends that follow from a change of them."""

    def __init__(self, neighbours: Sequence[Hop], overlap: Overlap, records_max: int) -> None:
        self.neighbours = tuple(neighbours)
        self._bits = {hop: 1 << place for place, hop in enumerate(neighbours)}
        self.overlap = overlap
        self._records_max = records_max
        self.srt = SRT(overlap)
        self.prt = PRT(overlap)
        self._hops = self.prt.index.hops
        self.compaction = Compaction(self.srt, self.prt, self._bits)
        self.veiled: set[str] = set()
        """Transactions that have committed here and perhaps not everywhere: their `usub`s still carry their tag,
        which hides them from everybody but isolated transactions."""
        self._lives: dict[str, tuple[int, Hop]] = {}
        """Of the clients that have records here: incarnation, and where the records come from."""
        self._tags: dict[str, int] = {}
        """How many subscriptions each undecided transaction has in the tables."""
        self._marks = 0

    @property
    def changes(self) -> int:
        """Counts them: with as many as before, the tables decide as before."""
        return self.srt.changes + self.prt.index.changes + self._marks

    def wanted_by(self, event: Event) -> Collection[Hop]:
        """The hops with a subscriber to an event, where it came from included."""
        # Regular publications pay for undecided transactions only while there are some.
        return self._hops_beside_tagged(event) if self._tags else self._hops(event)

    def next_hops(self, event: Event, source: Hop) -> Collection[Hop]:
        """Where a publication goes: to every hop with a subscriber, but not back."""
        hops = self.wanted_by(event)
        if source in hops:
            return _without(hops, source)
        return hops

    def wanted_by_each(self, events: Sequence[Event]) -> list[Collection[Hop]]:
        """`wanted_by` of many events. The hot path."""
        index = self.prt.index
        if self._tags and any(map(index.is_undecided, events)):
            return list(map(self.wanted_by, events))
        return hops_of_each(index, events)

    def hops_of_step(self, event: Event, tag: str, step: int) -> Collection[Hop]:
        """The hops that a transaction's publication is for: it sees what the transaction wrote before it."""
        return self.prt.index.hops_with(self._seen(tag, step), event)

    def apply(self, record: Record, origin: Hop) -> Sends:
        """An adv, uadv, sub or usub from a client of this broker or from a neighbour."""
        compacts = record.tag is None and self.compaction.is_free
        if compacts and origin not in self._bits and self._is_void(record, origin):
            self.compaction.raise_floor(record.client, record.stamp)
            return []
        placement = self.place(record, origin)
        sends: Sends = [(hop, self.operation(record)) for hop in placement.onward]
        sends += [(origin, self.operation(attracted)) for attracted in placement.attracted]
        if record.kind in ("sub", "usub") and compacts:
            sends += self._compact(record, origin)
        return sends

    def place(self, record: Record, origin: Hop) -> Placement:
        """Store a record; what is returned is marked as sent."""
        self.store(record, origin)
        if record.kind in ("adv", "uadv"):
            onward = [hop for hop in self.neighbours if hop != origin]
            return Placement(onward, self.attract(record, origin))
        return Placement(self.send_on(record, origin), [])

    def store(self, record: Record, origin: Hop) -> None:
        self._check_room(record, origin)
        compacts = record.tag is None and self.compaction.is_free
        if record.kind in ("adv", "uadv"):
            self.srt.add(record, origin, compacts)
            if compacts and not record.positive and origin not in self._bits:
                self.compaction.raise_floor(record.client, record.stamp)
        else:
            self.prt.add(record, origin)
            self._count_tag(record, 1)
        self._lives[record.client] = (record.stamp[2], origin)
        if record.tag is None and not compacts:
            self.compaction.note(record.kind, record.client, record.stamp, origin not in self._bits)

    def attract(self, advertisement: Record, origin: Hop) -> list[Record]:
        """What an advertisement from a neighbour attracts there and was not sent yet; marked as sent."""
        bit = self._bits.get(origin, 0)
        if not bit or advertisement.kind != "adv":
            return []
        attracted = self.prt.attracted(advertisement.filter, origin, bit)
        for record in attracted:
            record.sent |= bit
            self._marks += 1
        return attracted

    def send_on(self, record: Record, origin: Hop) -> list[Hop]:
        """The neighbours that want a record and were not sent it yet; marked as sent."""
        onward = []
        for hop in self.neighbours:
            bit = self._bits[hop]
            if hop != origin and not record.sent & bit and self.srt.wants(hop, record.filter):
                record.sent |= bit
                self._marks += 1
                onward.append(hop)
        return onward

    def find(self, record: Record, origin: Hop) -> Record | None:
        """The record with the same stamp that is in the tables."""
        if record.kind in ("adv", "uadv"):
            return self.srt.find(record.client, origin, record.stamp)
        return self.prt.index.find(record.client, record.stamp)

    def mark_sent(self, client: str, stamp: Stamp, hop: Hop) -> bool:
        """False: there is no such record."""
        record = self.prt.index.find(client, stamp)
        if record is not None:
            record.sent |= self._bits[hop]
            self._marks += 1
        return record is not None

    def was_sent(self, record: Record, hop: Hop) -> bool:
        return bool(record.sent & self._bits[hop])

    def commit(self, tag: str, veils: bool = False) -> list[tuple[Record, Hop]]:
        """A transaction's records become everybody's; `veils`: but for its `usub`s, which stay hidden."""
        committed = [*self.srt.commit(tag), *self.prt.commit(tag, not veils)]
        hidden = list(self.prt.index.tagged(tag))
        self._tags.pop(tag, None)
        if hidden:
            self._tags[tag] = len(hidden)
            self.veiled.add(tag)
        return committed + hidden

    def drop(self, tag: str) -> list[Record]:
        """A transaction's records vanish."""
        self._tags.pop(tag, None)
        subscriptions = self.prt.drop(tag)
        self.compaction.look_behind(subscriptions)
        return [*self.srt.drop(tag), *subscriptions]

    def veil(self, tx: str) -> None:
        """A transaction has committed here, perhaps not everywhere: what still carries its tag stays hidden."""
        if any(True for _ in self.prt.index.tagged(tx)):
            self.veiled.add(tx)

    def reveal(self, tx: str) -> list[tuple[Record, Hop]]:
        """All brokers have committed it: what it took back is taken back for everybody."""
        if tx not in self.veiled:
            return []
        self.veiled.discard(tx)
        return self.commit(tx)

    def veiled_records(self) -> list[tuple[Record, Hop]]:
        return [pair for tx in self.veiled for pair in self.prt.index.tagged(tx)] if self.veiled else []

    def is_committed(self, record: Record) -> bool:
        """For isolated transactions."""
        return record.tag is None or record.tag in self.veiled

    def operation(self, record: Record) -> Operation:
        """A record on its way to another broker."""
        tx = record.tag or record.writer
        decided = bool(tx) and self.is_committed(record)
        return Operation(record.kind, record.client, record.stamp, record.filter, tx, record.step, decided)

    def forget(self, client: str, stamp: Stamp) -> Sends:
        """The edge broker says that a record has no effect left; here it goes if that holds here."""
        if not self.compaction.is_free:
            self.compaction.note("usub", client, stamp, may_be_void=True)
            return []
        record = self.prt.index.find(client, stamp)
        if record is None:
            return []
        sends = self.compaction.drop_covered(record) or []
        return sends + self.compaction.drop_forgotten(record)

    def remove_client(self, client: str, incarnation: int, origin: Hop) -> None:
        """A claim that was refused has no records, and does not take those of the accepted one."""
        life = self._lives.pop(client, None)
        if life is not None and life != (incarnation, origin):
            self._lives[client] = life
            return
        self.compaction.forget_client(client)
        if life is None:
            return
        for record in self.prt.index.records(client) if self._tags else ():
            self._count_tag(record, -1)
        self.srt.remove_client(client)
        self.prt.remove_client(client)

    def check(self, record: Record, origin: Hop) -> None:
        """Raise if the tables cannot take it."""
        if self.find(record, origin) is not None:
            raise RoutingError(f"client {record.client} has two records with the stamp {record.stamp}")
        self._check_room(record, origin)

    def _check_room(self, record: Record, origin: Hop) -> None:
        if self.srt.count(record.client, origin) + self.prt.count(record.client) >= self._records_max:
            raise RoutingError(f"client {record.client} has {self._records_max} records here: the limit")
        life = (record.stamp[2], origin)
        if self._lives.get(record.client, life) != life:
            raise RoutingError(f"client {record.client} has records of another life, or from elsewhere")

    # Records of undecided transactions

    def _seen(self, tag: str = "", step: int = 0) -> Iterator[tuple[Record, Hop]]:
        """Tagged records that a publication sees: another transaction's `sub`, and what its own wrote before."""
        for record, hop in self.prt.index.tagged():
            if record.tag == tag:
                if not step or record.step < step:
                    yield record, hop
            elif record.positive:
                yield record, hop

    def _hops_beside_tagged(self, event: Event) -> Collection[Hop]:
        if self.prt.index.is_undecided(event):
            return self.prt.index.hops_with(self._seen(), event)
        return self._hops(event)

    def _count_tag(self, record: Record, change: int) -> None:
        if record.tag is None:
            return
        self._tags[record.tag] = self._tags.get(record.tag, 0) + change
        if not self._tags[record.tag]:
            del self._tags[record.tag]

    # Records without effect

    def _is_void(self, record: Record, origin: Hop) -> bool:
        if record.kind in ("adv", "uadv"):
            return False
        self.check(record, origin)
        return self.prt.is_void(record)

    def _compact(self, record: Record, origin: Hop) -> Sends:
        sends = self.compaction.drop_covered(record)
        if sends is None or origin in self._bits:
            return sends or []
        return sends + self.compaction.drop_void(record)


def _without(hops: Collection[Hop], source: Hop) -> tuple[Hop, ...]:
    return tuple([hop for hop in hops if hop != source])
