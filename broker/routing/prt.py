"""The publication routing table: subscriptions, and what was taken back of them; pure.

The matching index answers who wants an event. Beside it, per client, the newest record with each filter
is known, so that records without effect are found and dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from broker.matching.buckets import RANGES
from broker.matching.index import Index
from broker.matching.records import Record, RoutingError, stamp_of
from broker.protocol.filters import Filter, Overlap, overlaps, subsumes
from broker.protocol.hops import Hop

Names = tuple[str, ...]

SCAN_MAX = 64
"""How many records of one client are looked at to find redundant ones; of more, only those that can be
found without looking at all."""


def _shape(filter_: Filter) -> Names | None:
    return filter_.names if RANGES.isdisjoint(map(type, filter_.predicates)) else None


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

    def hop_of(self, client: str) -> Hop | None:
        """Behind which a client lies, if it has records."""
        return self._hops.get(client)

    def count(self, client: str) -> int:
        return len(self._newest.get(client, ()))

    def add(self, record: Record, hop: Hop) -> None:
        try:
            self.index.add(record, hop)
        except ValueError as error:
            raise RoutingError(str(error)) from None
        self._hops[record.client] = hop
        newest = self._newest.get(record.client)
        if newest is None:
            newest = self._newest[record.client] = {}
            self._shapes[record.client] = Counter()
        known = newest.get(record.filter)
        if known is not None:
            older = self._older.setdefault((record.client, record.filter), [])
            older.append(min(known, record, key=stamp_of))
        if known is None or known.stamp < record.stamp:
            newest[record.filter] = record
        if known is None:
            self._shapes[record.client][_shape(record.filter)] += 1

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

    def commit(self, tag: str, holes_too: bool) -> list[tuple[Record, Hop]]:
        return [(record, self._hops[record.client]) for record in self.index.commit(tag, holes_too)]

    def drop(self, tag: str) -> list[Record]:
        """A transaction's records vanish."""
        dropped = [record for record, _ in self.index.tagged(tag)]
        for record in dropped:
            self.remove(record)
        return dropped

    def covered(self, record: Record) -> list[Record]:
        """Older records that `record` shadows wholly, at every neighbour that knows them.

        Only then may they go: elsewhere an old record without the newer one would come back to life.
        """
        return [old for old in self._near(record) if _covers(record, old)]

    def taken_back_before(self, record: Record) -> list[Record]:
        """Everybody's older `usub`s that `record` contains."""
        return [
            old
            for old in self._near(record)
            if old.stamp < record.stamp and old.tag is None and not old.positive
            if subsumes(record.filter, old.filter)
        ]

    def answers_to(self, record: Record) -> list[Record]:
        """The newer ones of its client that take back what it says, or say again what it takes back."""
        return [
            other
            for other in self._near(record)
            if other.positive is not record.positive
            and other.stamp > record.stamp
            and overlaps(other.filter, record.filter)
        ]

    def is_hidden(self, record: Record) -> bool:
        """Whether a newer record covers this one."""
        return any(_covers(newer, record) for newer in self._near(record))

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
            if old.tag is None and subsumes(old.filter, record.filter):
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


def _covers(newer: Record, older: Record) -> bool:
    """Both are everybody's; what an undecided transaction wrote covers nothing, and stays for its end."""
    return (
        older.stamp < newer.stamp
        and newer.tag is None is older.tag
        and not older.sent & ~newer.sent
        and subsumes(newer.filter, older.filter)
    )
