"""Which hops want this event: the matching index.

A client's space is its `sub`s minus its later `usub`s (Section 2.2; the same for `adv` and `uadv`):
of its records that contain an event, the one with the largest stamp decides. A hop wants an event
when at least one client behind it does.

What clients want lies in one table. What a client took back (its holes) lies in a table of its own,
which is asked only when the client would otherwise be in; so a client without holes never pays for
them, and one with a million pays for one more look-up. Records of undecided transactions are in
neither: each transaction has a short list, which is read from end to end.

Pure: no I/O, no clock. `broker.table` and `broker.boxes` find records; this module decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec import Struct

from broker.boxes import FEW_RECORDS, contains
from broker.filters import Event
from broker.table import NOWHERE, Crowd, Home, RangedStep, Record, Table, newest
from broker.wire import NO_KEY, Key, Stamp

__all__ = ["Index", "Record"]

ANSWERS_MAX = 1024

Memo = dict[Home, Stamp | None]
"""The newest hole around one event, for the clients that had to be asked."""


class Client(Struct, gc=False, eq=False):
    home: Home
    records: dict[Stamp, Record]
    ordered: bool = True
    """Whether the records came in the order of their stamps."""


class Hop(Struct, gc=False, eq=False):
    alone: tuple[str, ...]
    """The answer when only this hop is in, shared by all clients behind it."""
    clients: int = 0


class Index:
    """The records of all clients, in the committed view and beside it."""

    def __init__(self) -> None:
        self._wanted = Table()
        self._plans = self._wanted.plans
        self._clients: dict[str, Client] = {}
        self._hops: dict[str, Hop] = {}
        self._tagged: dict[str, list[Record]] = {}
        self._answers: dict[tuple[str, ...], Home] = {}
        """What crowds answer while nobody's first hole comes and nobody's last one goes."""
        self._in_doubt = Home("", "", (), [])
        """Marks the crowds that have to be asked client by client."""
        self._last_key: Key = NO_KEY
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        for client in self._clients.values():
            yield from client.records.values()

    def add(self, record: Record, hop: str) -> None:
        """File a record of a client that lies behind `hop`, which is the same for all its records."""
        client = self._clients.get(record.client)
        if client is None:
            client = self._new_client(record.client, hop)
        elif client.home.hop != hop:
            raise ValueError(f"client {record.client!r} lies behind {client.home.hop!r}, not behind {hop!r}")
        records, stamp = client.records, record.stamp
        if stamp in records:
            raise ValueError(f"client {record.client!r} has two records with the stamp {stamp}")
        if records and stamp < next(reversed(records)):
            client.ordered = False
        self._share(record, client.home)
        records[record.stamp] = record
        self._count += 1
        if record.tag is None:
            self._file(record, client.home)
        else:
            self._tagged.setdefault(record.tag, []).append(record)

    def remove(self, record: Record) -> None:
        client = self._clients[record.client]
        if client.records.get(record.stamp) is not record:
            raise KeyError(f"no such record of client {record.client!r}: {record.stamp}")
        del client.records[record.stamp]
        self._count -= 1
        if record.tag is None:
            self._unfile(record, client.home)
        else:
            self._untag(record)
        if not client.records:
            self._forget(client.home)

    def remove_client(self, client: str) -> list[Record]:
        """Forget a client and all its records, which are returned in the order of their stamps."""
        if client not in self._clients:
            return []
        records = self.records(client)
        home = self._clients[client].home
        if home.holes is not None:
            home.holes = None  # all at once, however many
            self._retire_answers()
        for record in records:
            if record.tag is not None:
                self._untag(record)
            elif record.positive:
                self._unfile(record, home)
        self._count -= len(records)
        self._forget(home)
        return records

    def commit(self, tag: str) -> list[Record]:
        """A transaction's records join the committed view."""
        records = self._tagged.pop(tag, [])
        for record in records:
            record.tag = None
            self._file(record, self._clients[record.client].home)
        return records

    def drop(self, tag: str) -> list[Record]:
        """A transaction's records vanish."""
        records = list(self._tagged.get(tag, ()))
        for record in records:
            self.remove(record)
        return records

    def records(self, client: str) -> list[Record]:
        """A client's records, committed and tagged, in the order of their stamps."""
        entry = self._clients.get(client)
        if entry is None:
            return []
        if not entry.ordered:
            entry.records = dict(sorted(entry.records.items()))
            entry.ordered = True
        return list(entry.records.values())

    def hops(self, event: Event) -> Collection[str]:
        """The hops behind which some client is in, in the committed view."""
        exact, ranged = self._plans[tuple(event)]
        found: tuple[str, ...] = ()
        for key_of, find in exact:
            cell = find(key_of(event))
            if cell is not None:
                home = cell.home
                hops = home.hops if home.holes is None else self._ask(cell, event)
                if not found:
                    found = hops
                elif hops is not found:
                    found += tuple([hop for hop in hops if hop not in found])
        return self._hops_by_range(ranged, event, set(found)) if ranged else found

    def hops_within(self, tag: str, event: Event) -> Collection[str]:
        """The same for the committed view plus the transaction's own records."""
        own = {r.client for r in self._tagged.get(tag, ()) if contains(r.filter, event)}
        if not own:
            return self.hops(event)
        inside: set[str] = set()
        outside: set[str] = set()
        for client in own:
            (inside if self.subscribed(client, event, tag) else outside).add(self._clients[client].home.hop)
        outside -= inside
        found = inside.union(self.hops(event)) - outside
        memo: Memo = {}
        if outside:  # a client that the transaction takes out may not be the only one behind its hop
            for record in self._wanted.matching(event):
                if record.home.hop in outside and record.client not in own and _holds(record, event, memo):
                    found.add(record.home.hop)
        return found

    def subscribed(self, client: str, event: Event, tag: str | None = None) -> bool:
        """Whether one client is in: in the committed view, or in that plus a transaction's own records."""
        entry = self._clients.get(client)
        if entry is None:
            return False
        own = self._tagged.get(tag, ()) if tag is not None else ()
        deciding = [r for r in own if r.client == client and contains(r.filter, event)]
        deciding += [record for record in self._wanted.matching(event) if record.client == client]
        hole = _newest_hole(entry.home, event)
        if hole is not None:
            deciding.append(hole)
        last = newest(deciding)
        return last is not None and last.positive

    def _hops_by_range(self, steps: tuple[RangedStep, ...], event: Event, found: set[str]) -> set[str]:
        everywhere = len(self._hops)
        memo: Memo = {}
        for key_of, find, point_of in steps:
            pile = find(key_of(event))
            if pile is None:
                continue
            for record in pile.collect(event, point_of, found):
                if record.home.hop not in found and _holds(record, event, memo):
                    found.add(record.home.hop)
            if len(found) == everywhere:
                break
        return found

    def _ask(self, cell: Record | Crowd, event: Event) -> tuple[str, ...]:
        """The hops behind a cell that contains the event and whose clients may have holes."""
        if type(cell) is Record:
            hole = _newest_hole(cell.home, event)
            return cell.home.hops if hole is None or hole.stamp < cell.stamp else ()
        assert type(cell) is Crowd
        if cell.home is not self._in_doubt:
            self._settle(cell)
        if cell.home.holes is None:
            return cell.home.hops
        memo: Memo = {}
        return tuple(
            hop
            for hop, lane in cell.lanes.items()
            if any(record.home.holes is None or _holds(record, event, memo) for record in lane)
        )

    def _settle(self, crowd: Crowd) -> None:
        """Give a crowd its answer, if there is a client without holes behind each of its hops."""
        for lane in crowd.lanes.values():
            if all(record.home.holes is not None for record in lane):
                crowd.home = self._in_doubt
                return
        hops = tuple(crowd.lanes)
        if hops not in self._answers:
            if len(self._answers) >= ANSWERS_MAX:
                self._retire_answers()
            self._answers[hops] = Home("", "", hops)
        crowd.home = self._answers[hops]

    def _retire_answers(self) -> None:
        """A client's first hole has come or its last one has gone: every crowd has to be looked at again."""
        for answer in self._answers.values():
            answer.holes = []
        self._answers.clear()
        self._in_doubt = Home("", "", (), [])

    def _file(self, record: Record, home: Home) -> None:
        """Make a record part of the committed view."""
        holes = home.holes
        if record.positive:
            record.home = home
            self._wanted.add(record)
        elif holes is None:
            home.holes = [record]
            self._retire_answers()
        elif isinstance(holes, Table):
            holes.add(record)
        elif len(holes) < FEW_RECORDS:
            holes.append(record)
        else:
            table = home.holes = Table()
            for hole in (*holes, record):
                table.add(hole)

    def _unfile(self, record: Record, home: Home) -> None:
        if record.positive:
            self._wanted.remove(record)
            record.home = NOWHERE
            return
        assert home.holes is not None
        home.holes.remove(record)
        if not home.holes:
            home.holes = None
            self._retire_answers()

    def _untag(self, record: Record) -> None:
        assert record.tag is not None
        own = self._tagged[record.tag]
        own.remove(record)
        if not own:
            del self._tagged[record.tag]

    def _new_client(self, name: str, hop: str) -> Client:
        entry = self._hops.setdefault(hop, Hop((hop,)))
        entry.clients += 1
        client = self._clients[name] = Client(Home(name, hop, entry.alone), {})
        return client

    def _forget(self, home: Home) -> None:
        del self._clients[home.client]
        entry = self._hops[home.hop]
        entry.clients -= 1
        if not entry.clients:
            del self._hops[home.hop]
            self._retire_answers()

    def _share(self, record: Record, home: Home) -> None:
        """Decoded from the wire, each record brings its own copy of what many have in common."""
        record.client = home.client
        key = record.stamp[0]
        if key != self._last_key:
            self._last_key = key
        elif key is not self._last_key:
            record.stamp = (self._last_key, *record.stamp[1:])


def _holds(record: Record, event: Event, memo: Memo) -> bool:
    """Whether no newer hole of its client contains the event that this record contains."""
    home = record.home
    if home not in memo:
        hole = _newest_hole(home, event)
        memo[home] = None if hole is None else hole.stamp
    stamp = memo[home]
    return stamp is None or stamp < record.stamp


def _newest_hole(home: Home, event: Event) -> Record | None:
    holes = home.holes
    if holes is None:
        return None
    if isinstance(holes, Table):
        return newest(holes.matching(event))
    return newest(hole for hole in holes if contains(hole.filter, event))
