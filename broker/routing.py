"""SRT and PRT: where advertisements, subscriptions and publications go (Section 2.2); pure.

Advertisements flood into the subscription routing table (SRT). A subscription follows the
advertisements that it overlaps and is kept in the publication routing table (PRT) of every broker on
its way; one that meets no advertisement waits, and is attracted by the first that comes. Spaces have
holes: of one client's records the newest that contains an event decides, newest by stamp, because
attraction can bring records in any order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from broker.filters import (
    Event,
    Filter,
    Interval,
    OneOf,
    Overlap,
    intersection_within,
    overlaps,
    subsumes,
)
from broker.index import Index, Record
from broker.records import stamp_of
from broker.wire import AnyMessage, Forget, Operation, Stamp

Hop = str
"""A neighbour broker ("broker:b2") or a client of this broker ("client:E")."""
Sends = list[tuple[Hop, AnyMessage]]
Names = tuple[str, ...]

SCAN_MAX = 64
"""How many records of one client are looked at to find redundant ones; of more, only those that can be
found without looking at all."""


class RoutingError(Exception):
    """A record that the tables cannot take; the text says why."""


def broker_hop(broker: str) -> Hop:
    return f"broker:{broker}"


def client_hop(client: str) -> Hop:
    return f"client:{client}"


def _shape(filter_: Filter) -> Names | None:
    exact = not any(isinstance(predicate, (Interval, OneOf)) for predicate in filter_.predicates)
    return filter_.names if exact else None


class SRT:
    """Advertisements by the hop that they came from, and by client in the order of stamps."""

    def __init__(self, overlap: Overlap) -> None:
        self._overlap = overlap
        self._logs: dict[Hop, dict[str, list[Record]]] = {}

    def __iter__(self) -> Iterator[tuple[Hop, Record]]:
        for hop, clients in self._logs.items():
            for log in clients.values():
                for record in log:
                    yield hop, record

    def __len__(self) -> int:
        return sum(len(log) for clients in self._logs.values() for log in clients.values())

    def count(self, client: str, hop: Hop) -> int:
        return len(self._logs.get(hop, {}).get(client, ()))

    def add(self, record: Record, hop: Hop) -> None:
        """Store it; advertisements are flooded in order, so what it makes redundant can go at once."""
        log = self._logs.setdefault(hop, {}).setdefault(record.client, [])
        place = bisect_left(log, record.stamp, key=stamp_of)
        if place < len(log) and log[place].stamp == record.stamp:
            raise RoutingError(f"client {record.client} has two advertisements with the stamp {record.stamp}")
        log.insert(place, record)
        if len(log) > SCAN_MAX:
            return
        older = [r for r in log if r.stamp < record.stamp and not subsumes(record.filter, r.filter)]
        newer = [r for r in log if r.stamp > record.stamp]
        needed = record.positive or any(r.positive and overlaps(r.filter, record.filter) for r in older)
        self._logs[hop][record.client] = [*older, *([record] if needed else []), *newer]

    def remove_client(self, client: str) -> None:
        for clients in self._logs.values():
            clients.pop(client, None)

    def wants(self, hop: Hop, filter_: Filter) -> bool:
        """Whether somebody behind `hop` advertises something that overlaps; may err towards yes."""
        return any(self._overlaps_live(log, filter_) for log in self._logs.get(hop, {}).values())

    def _overlaps_live(self, log: list[Record], filter_: Filter) -> bool:
        for place, record in enumerate(log):
            if record.kind != "adv" or not overlaps(record.filter, filter_, self._overlap):
                continue
            withdrawn = (r.filter for r in log[place + 1 :] if r.kind == "uadv")
            if not any(intersection_within(record.filter, filter_, hole) for hole in withdrawn):
                return True
        return False


class PRT:
    """(Un)subscriptions: the matching index, and per client the newest record with each filter."""

    def __init__(self, overlap: Overlap) -> None:
        self._overlap = overlap
        self.index = Index()
        self._hops: dict[str, Hop] = {}
        self._newest: dict[str, dict[Filter, Record]] = {}
        self._older: dict[tuple[str, Filter], list[Record]] = {}
        """The others with the same client and filter: kept where a neighbour knows them and not the newest."""
        self._shapes: dict[str, Counter[Names | None]] = {}
        """Of each client's filters: the names of those that consist of equalities; None for all others."""

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[tuple[Hop, Record]]:
        for client, hop in self._hops.items():
            for record in self.index.records(client):
                yield hop, record

    def count(self, client: str) -> int:
        return len(self._newest.get(client, ()))

    def add(self, record: Record, hop: Hop) -> None:
        try:
            self.index.add(record, hop)
        except ValueError as error:
            raise RoutingError(str(error)) from None
        self._hops[record.client] = hop
        newest = self._newest.setdefault(record.client, {})
        known = newest.get(record.filter)
        if known is not None:
            older = self._older.setdefault((record.client, record.filter), [])
            older.append(min(known, record, key=stamp_of))
        if known is None or known.stamp < record.stamp:
            newest[record.filter] = record
        if known is None:
            self._shapes.setdefault(record.client, Counter())[_shape(record.filter)] += 1

    def remove(self, record: Record) -> None:
        self.index.remove(record)
        newest = self._newest[record.client]
        older = self._older.pop((record.client, record.filter), [])
        if newest[record.filter] is not record:
            older.remove(record)
        elif older:
            newest[record.filter] = max(older, key=stamp_of)
            older.remove(newest[record.filter])
        else:
            del newest[record.filter]
            self._forget_shape(record)
            if not newest:
                del self._newest[record.client], self._hops[record.client], self._shapes[record.client]
        if older:
            self._older[record.client, record.filter] = older

    def remove_client(self, client: str) -> None:
        if self._hops.pop(client, None):
            for filter_ in self._newest.pop(client):
                self._older.pop((client, filter_), None)
            del self._shapes[client]
            self.index.remove_client(client)

    def attracted(self, by: Filter, hop: Hop, bit: int) -> list[Record]:
        """What an advertisement from `hop` attracts: overlapping records, not sent there, from elsewhere."""
        found: list[Record] = []
        for client in sorted(self._hops):
            if self._hops[client] == hop:
                continue
            for record in self.index.records(client):
                if not record.sent & bit and overlaps(record.filter, by, self._overlap):
                    found.append(record)
        return found

    def covered(self, record: Record) -> list[Record]:
        """Older records that `record` shadows wholly, at every neighbour that knows them.

        Only then may they go: elsewhere an old record without the newer one would come back to life.
        """
        return [
            old
            for old in self._near(record)
            if old.stamp < record.stamp
            and not old.sent & ~record.sent
            and subsumes(record.filter, old.filter)
        ]

    def is_void(self, record: Record) -> bool:
        """Whether the client's space is the same without `record`; may err towards no."""
        if self._is_crowded(record.client) and not self._is_uniform(record):
            return False
        older = [
            r for r in self._near(record) if r.stamp < record.stamp and overlaps(r.filter, record.filter)
        ]
        if not record.positive:
            return not any(r.positive for r in older)
        for old in reversed(older):
            if not old.positive:
                return False
            if subsumes(old.filter, record.filter):
                return True
        return False

    def _near(self, record: Record) -> Sequence[Record]:
        """Where to look for redundant records, by stamp: everywhere if they are few, else the same filter."""
        client, filter_ = record.client, record.filter
        if not self._is_crowded(client):
            return self.index.records(client)
        newest = self._newest[client].get(filter_)
        same = [*self._older.get((client, filter_), ()), *(() if newest is None else (newest,))]
        return sorted(same, key=stamp_of)

    def _is_crowded(self, client: str) -> bool:
        return len(self._newest.get(client, ())) > SCAN_MAX

    def _is_uniform(self, record: Record) -> bool:
        """All of its client's filters are equalities on the same attributes: they overlap only if they are equal."""
        shape = _shape(record.filter)
        return shape is not None and self._shapes[record.client].keys() <= {shape}

    def _forget_shape(self, record: Record) -> None:
        shapes, shape = self._shapes[record.client], _shape(record.filter)
        shapes[shape] -= 1
        if not shapes[shape]:
            del shapes[shape]


class Routing:
    """Both tables of one broker, and the sends that follow from a change of them."""

    def __init__(self, neighbours: Sequence[Hop], overlap: Overlap, records_max: int) -> None:
        self.neighbours = tuple(neighbours)
        self._bits = {hop: 1 << place for place, hop in enumerate(neighbours)}
        self._records_max = records_max
        self.srt = SRT(overlap)
        self.prt = PRT(overlap)
        self.wanted_by = self.prt.index.hops
        """The hops with a subscriber to an event, where it came from included. The hot path."""
        self._lives: dict[str, tuple[int, Hop]] = {}
        """Of the clients that have records here: incarnation, and where the records come from."""

    def next_hops(self, event: Event, source: Hop) -> Collection[Hop]:
        """Where a publication goes: to every hop with a subscriber, but not back."""
        hops = self.wanted_by(event)
        if source in hops:
            return _without(hops, source)
        return hops

    def apply(self, record: Record, origin: Hop) -> Sends:
        """An adv, uadv, sub or usub from a client of this broker or from a neighbour."""
        local = origin not in self._bits
        if self.srt.count(record.client, origin) + self.prt.count(record.client) >= self._records_max:
            raise RoutingError(f"client {record.client} has {self._records_max} records here: the limit")
        life = (record.stamp[2], origin)
        if self._lives.get(record.client, life) != life:
            raise RoutingError(f"client {record.client} has records of another life, or from elsewhere")
        if record.kind in ("adv", "uadv"):
            sends = self._advertise(record, origin)
        elif local and self.prt.is_void(record):
            sends = []
        else:
            sends = self._subscribe(record, origin, local)
        self._lives[record.client] = life
        return sends

    def forget(self, client: str, stamp: Stamp) -> Sends:
        """The edge broker says that a record has no effect left; here it goes if that holds here."""
        record = self.prt.index.find(client, stamp)
        if record is None:
            return []
        self._drop_covered(record)
        return self._drop_void(record)

    def remove_client(self, client: str, incarnation: int, origin: Hop) -> None:
        """A claim that was refused has no records, and does not take those of the accepted one."""
        if self._lives.get(client) != (incarnation, origin):
            return
        del self._lives[client]
        self.srt.remove_client(client)
        self.prt.remove_client(client)

    def _advertise(self, record: Record, origin: Hop) -> Sends:
        self.srt.add(record, origin)
        sends: Sends = [(hop, _operation(record)) for hop in self.neighbours if hop != origin]
        bit = self._bits.get(origin, 0)
        if bit and record.kind == "adv":
            for attracted in self.prt.attracted(record.filter, origin, bit):
                attracted.sent |= bit
                sends.append((origin, _operation(attracted)))
        return sends

    def _subscribe(self, record: Record, origin: Hop, local: bool) -> Sends:
        self.prt.add(record, origin)
        sends: Sends = []
        for hop in self.neighbours:
            if hop != origin and self.srt.wants(hop, record.filter):
                record.sent |= self._bits[hop]
                sends.append((hop, _operation(record)))
        if self._drop_covered(record) and local:
            sends += self._drop_void(record)
        return sends

    def _drop_covered(self, record: Record) -> bool:
        covered = self.prt.covered(record)
        for old in covered:
            self.prt.remove(old)
        return bool(covered)

    def _drop_void(self, record: Record) -> Sends:
        if not self.prt.is_void(record):
            return []
        self.prt.remove(record)
        told = [hop for hop in self.neighbours if record.sent & self._bits[hop]]
        return [(hop, Forget(record.client, record.stamp)) for hop in told]


def _operation(record: Record) -> Operation:
    return Operation(record.kind, record.client, record.stamp, record.filter)


def _without(hops: Collection[Hop], source: Hop) -> tuple[Hop, ...]:
    return tuple([hop for hop in hops if hop != source])
