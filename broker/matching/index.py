"""Which hops want this event: the matching index.

A client's space is its `sub`s minus its later `usub`s (Section 2.2; the same for `adv` and `uadv`):
of its records that contain an event, the one with the largest stamp decides. A hop wants an event
when at least one client behind it does.

What clients want lies in one table. What a client took back (its holes) lies in a table of its own
(`broker.matching.holes`), which is asked only when the client would otherwise be in; so a client without holes
never pays for them, and one with a million pays for one more look-up. Records of undecided transactions are in
neither: each transaction has a short list, and a third table has what all of these want.

Pure: no I/O, no clock. `broker.matching.table` and `broker.matching.boxes` find records; this module decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct

from broker.matching.boxes import FEW_RECORDS, Pile, contains
from broker.matching.buckets import Names
from broker.matching.holes import Holes
from broker.matching.records import NOWHERE, ClientRecords, Few, Home, Record, stamp_of
from broker.matching.table import NOWHERE_TO_ASK, Crowd, Table
from broker.protocol.filters import Event
from broker.protocol.vocabulary import NO_KEY, Key, Stamp

__all__ = ["Index", "Record"]

ANSWERS_MAX = 1024
SPARE_SHAPES = 8
"""What undecided transactions want comes and goes, and nearly always looks alike."""
SCAN_MAX = 64
"""Up to so many records of one client it is faster to ask each than to search for them among all."""

Memo = dict[Home, Record | None]
"""The newest hole around one event, for the clients that had to be asked."""


class Hop(Struct, gc=False, eq=False):
    alone: tuple[str, ...]
    """The answer when only this hop is in, shared by all clients behind it."""
    clients: int = 0


class Index:
    """The records of all clients, in the committed view and beside it."""

    def __init__(self) -> None:
        self._wanted = Table()
        self.plans = self._wanted.plans
        self._plan_for = self.plans.get
        """Faster than to ask for `plans[...]`, and nearly always there is one."""
        self._clients: dict[str, ClientRecords] = {}
        self._hops: dict[str, Hop] = {}
        self._tagged: dict[str, list[Record]] = {}
        self.undecided = Table(spare_shapes=SPARE_SHAPES)
        """What undecided transactions want: so an event learns with one look whether it concerns any of them."""
        self._undecided_plan = self.undecided.plans.get
        self._answers: dict[tuple[str, ...], Home] = {}
        """What crowds answer while nobody's first hole comes and nobody's last one goes."""
        self._in_doubt = Home("", "", (), Few())
        """Marks the crowds that have to be asked client by client."""
        self._last_key: Key = NO_KEY
        self._count = 0
        self.changes = 0
        """Counts them: with as many as before, every answer is the same as before."""

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        for client in self._clients.values():
            yield from client.in_order()

    def add(self, record: Record, hop: str) -> None:
        """File a record of a client that lies behind `hop`, which is the same for all its records."""
        client = self._clients.get(record.client)
        if client is None:
            home = self._new_home(record.client, hop)
            self._share(record, home)
            self._clients[home.client] = ClientRecords(home, record)
        else:
            home = client.home
            if home.hop != hop:
                raise ValueError(f"client {record.client!r} lies behind {home.hop!r}, not behind {hop!r}")
            if client.get(record.stamp) is not None:
                raise ValueError(f"client {record.client!r} has two records with the stamp {record.stamp}")
            self._share(record, home)
            client.add(record)
        self._count += 1
        self.changes += 1
        if record.tag is None:
            self._file(record, home)
        else:
            self._tagged.setdefault(record.tag, []).append(record)
            if record.positive:
                self.undecided.add(record)

    def remove(self, record: Record) -> None:
        client = self._clients[record.client]
        if client.get(record.stamp) is not record:
            raise KeyError(f"no such record of client {record.client!r}: {record.stamp}")
        self._count -= 1
        self.changes += 1
        if record.tag is None:
            self._unfile(record, client.home)
        else:
            self._untag(record)
        if not client.remove(record):
            self._forget(client.home)

    def remove_client(self, client: str) -> list[Record]:
        """Forget a client and all its records, which are returned in the order of their stamps."""
        entry = self._clients.get(client)
        if entry is None:
            return []
        records, home = entry.in_order(), entry.home
        for record in records:  # but for the holes: they go with the client's home, all at once
            if record.tag is not None:
                self._untag(record)
            elif record.positive:
                self._unfile(record, home)
        self._count -= len(records)
        self.changes += 1
        self._forget(home)
        return records

    def commit(self, tag: str, holes_too: bool = True) -> list[Record]:
        """A transaction's records join the committed view, all or those that want something."""
        records = self._tagged.pop(tag, [])
        self.changes += 1
        if not holes_too:
            left = [record for record in records if not record.positive]
            records = [record for record in records if record.positive]
            if left:
                self._tagged[tag] = left
        for record in records:
            if record.positive:
                self.undecided.remove(record)
            record.tag = None
            self._file(record, self._clients[record.client].home)
        return records

    def drop(self, tag: str) -> list[Record]:
        """A transaction's records vanish."""
        records = list(self._tagged.get(tag, ()))
        for record in records:
            self.remove(record)
        return records

    def find(self, client: str, stamp: Stamp) -> Record | None:
        entry = self._clients.get(client)
        return None if entry is None else entry.get(stamp)

    def records(self, client: str) -> list[Record]:
        """A client's records, committed and tagged, in the order of their stamps."""
        entry = self._clients.get(client)
        return [] if entry is None else entry.in_order()

    def newer(self, client: str, stamp: Stamp) -> list[Record]:
        """A client's records, committed and tagged, with larger stamps, the newest first."""
        entry = self._clients.get(client)
        return [] if entry is None else entry.newer(stamp)

    def hops(self, event: Event) -> Collection[str]:
        """The hops behind which some client is in, in the committed view."""
        names = tuple(event)
        steps, piles, _ = self._plan_for(names) or self.plans[names]
        found: tuple[str, ...] = ()
        for key_of, find, find_pile in steps:
            key = key_of(event)
            if find is not None and (cell := find(key)) is not None:
                home = cell.home
                hops = home.hops if home.holes is None else self.ask(cell, event, names)
                found = hops if not found or found is hops else united(found, hops)
            if find_pile is not None and (pile := find_pile(key)) is not None:
                piles = (*piles, pile)
        return self._add_ranged(piles, event, names, found) if piles else found

    def hops_with(self, extra: Iterable[tuple[Record, str]], event: Event) -> Collection[str]:
        """The same for the committed view plus other records, such as a transaction's, each with its client's hop."""
        own: dict[str, tuple[Record, str]] = {}
        for record, hop in extra:
            if contains(record.filter, event):
                rival = own.get(record.client)
                if rival is None or rival[0].stamp < record.stamp:
                    own[record.client] = (record, hop)
        if not own:
            return self.hops(event)
        names = tuple(event)
        found: set[str] = set()
        memo: Memo = {}
        for record in self._wanted.matching(event, names):
            rival = own.get(record.client)
            if rival is not None:
                if rival[0].stamp < record.stamp:
                    own[record.client] = (record, rival[1])
            elif record.home.hop not in found and _holds(record, event, memo):
                found.add(record.home.hop)
        for client, (record, hop) in own.items():
            if record.positive and hop not in found:
                entry = self._clients.get(client)
                holes = None if entry is None else entry.home.holes
                hole = None if holes is None else holes.newest(event, names)
                if hole is None or hole.stamp < record.stamp:
                    found.add(hop)
        return found

    def is_undecided(self, event: Event) -> bool:
        """Whether an undecided transaction subscribes to the event."""
        names = tuple(event)
        return self._undecided_plan(names) is not NOWHERE_TO_ASK and self.undecided.has_any(event, names)

    def tagged(self, tag: str | None = None) -> Iterator[tuple[Record, str]]:
        """The records of one undecided transaction, or of all, each with its client's hop."""
        lists = self._tagged.values() if tag is None else (self._tagged.get(tag, ()),)
        return ((r, self._clients[r.client].home.hop) for records in lists for r in records)

    def subscribed(self, client: str, event: Event, tag: str | None = None) -> bool:
        """Whether one client is in: in the committed view, or in that plus a transaction's own records."""
        decides = self.newest(client, event, tag)
        return decides is not None and decides.positive

    def newest(self, client: str, event: Event, tag: str | None = None) -> Record | None:
        """Of a client's records that contain the event, committed or of one transaction, the one that decides."""
        entry = self._clients.get(client)
        if entry is None:
            return None
        if len(entry) <= SCAN_MAX:
            deciding = [r for r in entry.in_order() if r.tag in (None, tag) and contains(r.filter, event)]
        else:
            own = self._tagged.get(tag, ()) if tag is not None else ()
            names = tuple(event)
            holes = entry.home.holes
            hole = None if holes is None else holes.newest(event, names)
            deciding = [r for r in own if r.client == client and contains(r.filter, event)]
            deciding += [r for r in self._wanted.matching(event, names) if r.client == client]
            deciding += [hole] if hole is not None else []
        return max(deciding, key=stamp_of, default=None)

    def _add_ranged(
        self, piles: tuple[Pile, ...], event: Event, names: Names, exact: tuple[str, ...]
    ) -> Collection[str]:
        """The hops found without ranges, and those behind records with ranges."""
        everywhere = len(self._hops)
        found = set(exact)
        memo: Memo = {}
        for pile in piles:
            for record in pile.collect(event, names, found):
                if record.home.hop not in found and _holds(record, event, memo):
                    found.add(record.home.hop)
            if len(found) == everywhere:
                break
        return found

    def ask(self, cell: Record | Crowd, event: Event, names: Names) -> tuple[str, ...]:
        """The hops behind a cell that contains the event and whose clients may have holes."""
        if type(cell) is Crowd:
            return self._ask_crowd(cell, event)
        assert type(cell) is Record
        home = cell.home
        holes, first = home.holes, home.first_hole
        assert holes is not None
        assert first is not None
        if (key_of := holes.key_of) is not None:
            try:
                if key_of(event) not in holes.keys:
                    return home.hops
            except KeyError:  # the event lacks what every hole names
                return home.hops
            if cell.stamp < first:
                return ()
        elif cell.stamp < first:
            return () if holes.has_any(event, names) else home.hops
        hole = holes.newest(event, names)
        return home.hops if hole is None or hole.stamp < cell.stamp else ()

    def _ask_crowd(self, cell: Crowd, event: Event) -> tuple[str, ...]:
        """Apart from `ask`, which is faster without the variables that this shares with its inner loops."""
        if cell.home is not self._in_doubt:
            self._settle(cell)
        if cell.home.holes is None:
            return cell.home.hops
        memo: Memo = {}
        return tuple(
            hop for hop, lane in cell.lanes.items() if any(_holds(record, event, memo) for record in lane)
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
            answer.holes = Few()
        self._answers.clear()
        self._in_doubt = Home("", "", (), Few())

    def _file(self, record: Record, home: Home) -> None:
        """Make a record part of the committed view."""
        holes = home.holes
        if record.positive:
            record.home = home
            self._wanted.add(record)
            return
        if home.first_hole is None or record.stamp < home.first_hole:
            home.first_hole = record.stamp
        if holes is None:
            home.holes = Few((record,))
            self._retire_answers()
        else:
            holes.add(record)
            if isinstance(holes, Few) and len(holes) > FEW_RECORDS:
                home.holes = Holes(holes)

    def _unfile(self, record: Record, home: Home) -> None:
        if record.positive:
            self._wanted.remove(record)
            record.home = NOWHERE
            return
        assert home.holes is not None
        home.holes.remove(record)
        if not home.holes:
            home.holes = home.first_hole = None
            self._retire_answers()

    def _untag(self, record: Record) -> None:
        assert record.tag is not None
        if record.positive:
            self.undecided.remove(record)
        own = self._tagged[record.tag]
        own.remove(record)
        if not own:
            del self._tagged[record.tag]

    def _new_home(self, client: str, hop: str) -> Home:
        entry = self._hops.setdefault(hop, Hop((hop,)))
        entry.clients += 1
        return Home(client, entry.alone[0], entry.alone)

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
    if home.holes is None:
        return True
    if home not in memo:
        memo[home] = home.holes.newest(event, tuple(event))
    hole = memo[home]
    return hole is None or hole.stamp < record.stamp


def united(hops: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return hops + tuple([hop for hop in others if hop not in hops])
