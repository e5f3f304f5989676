"""The subscription routing table: advertisements, and what was taken back of them; pure.

Who may publish what, by the hop that it lies behind: subscriptions follow it. Of one client's records
the newest that contains an event decides. What an undecided transaction takes back counts for nobody: an
`uadv` takes effect when its transaction commits, or the way for others would close on a maybe.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from broker.matching.boxes import contains
from broker.matching.records import Record, RoutingError, stamp_of
from broker.protocol.filters import Event, Filter, Overlap, intersection_within, overlaps, subsumes
from broker.protocol.hops import Hop
from broker.protocol.vocabulary import Stamp
from broker.routing.prt import SCAN_MAX

Own = Sequence[tuple[Record, Hop]]
"""Records of one transaction that are not in the tables, each with the hop that it came from."""


ANSWERS_MAX = 1024


class SRT:
    """Advertisements by the hop that they came from, and by client in the order of stamps."""

    def __init__(self, overlap: Overlap) -> None:
        self._overlap = overlap
        self._logs: dict[Hop, dict[str, list[Record]]] = {}
        self._tagged = 0
        self._answers: dict[tuple[Hop, Filter], bool] = {}
        """Of `wants`, as long as nothing changes: the brokers of a transaction ask the same again and again."""
        self.changes = 0
        """Counts them: what waits for an advertisement need not look again before there is another."""

    def __iter__(self) -> Iterator[tuple[Hop, Record]]:
        for hop, clients in self._logs.items():
            for log in clients.values():
                for record in log:
                    yield hop, record

    def __len__(self) -> int:
        return sum(len(log) for clients in self._logs.values() for log in clients.values())

    def count(self, client: str, hop: Hop) -> int:
        return len(self.log(client, hop))

    def log(self, client: str, hop: Hop) -> Sequence[Record]:
        """A client's records, committed and tagged, in the order of their stamps."""
        return self._logs.get(hop, {}).get(client, ())

    def find(self, client: str, hop: Hop, stamp: object) -> Record | None:
        return next((r for r in self.log(client, hop) if r.stamp == stamp), None)

    def add(self, record: Record, hop: Hop, compacts: bool = True) -> None:
        """Store it, and drop what it makes redundant, if all that is older has come."""
        log = self._logs.setdefault(hop, {}).setdefault(record.client, [])
        place = bisect_left(log, record.stamp, key=stamp_of)
        if place < len(log) and log[place].stamp == record.stamp:
            raise RoutingError(f"client {record.client} has two advertisements with the stamp {record.stamp}")
        log.insert(place, record)
        self._changed()
        self._tagged += record.tag is not None
        if len(log) > SCAN_MAX or not compacts:
            return
        older = [r for r in log if r.stamp < record.stamp and not subsumes(record.filter, r.filter)]
        newer = [r for r in log if r.stamp > record.stamp]
        needed = record.positive or any(r.positive and overlaps(r.filter, record.filter) for r in older)
        self._logs[hop][record.client] = [*older, *([record] if needed else []), *newer]

    def tidy(self, client: str, stamp: Stamp) -> bool:
        """Drop what has no effect beside this record, or itself if it has none; whether anything was dropped."""
        for hop, clients in self._logs.items():
            log = clients.get(client, ())
            record = next((r for r in log if r.stamp == stamp and r.tag is None), None)
            if record is not None:
                kept = _without_effectless(log, record)
                if len(kept) < len(log):
                    self._logs[hop][client] = kept
                    self._changed()
                    return True
        return False

    def remove_client(self, client: str) -> None:
        self._changed()
        for clients in self._logs.values():
            gone = clients.pop(client, ())
            self._tagged -= sum(record.tag is not None for record in gone)

    def commit(self, tag: str) -> list[tuple[Record, Hop]]:
        """A transaction's records count as everybody's."""
        committed = self._of(tag)
        if committed:
            self._changed()
        for record, _ in committed:
            record.tag = None
        self._tagged -= len(committed)
        return committed

    def drop(self, tag: str) -> list[Record]:
        """A transaction's records vanish."""
        dropped = self._of(tag)
        if dropped:
            self._changed()
        for record, hop in dropped:
            self._logs[hop][record.client].remove(record)
        self._tagged -= len(dropped)
        return [record for record, _ in dropped]

    def _of(self, tag: str) -> list[tuple[Record, Hop]]:
        return [(record, hop) for hop, record in self if record.tag == tag] if self._tagged else []

    def wants(self, hop: Hop, filter_: Filter) -> bool:
        """Whether somebody behind `hop` advertises something that overlaps; may err towards yes.

        Advertisements of undecided transactions count.
        """
        answer = self._answers.get((hop, filter_))
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            logs = self._logs.get(hop, {}).values()
            answer = any(self._overlaps_live(log, filter_) for log in logs)
            self._answers[hop, filter_] = answer
        return answer

    def wants_isolated(self, hop: Hop, filter_: Filter, own: Own) -> bool:
        """The same for a transaction that sees what is committed, and its own records."""
        own = [pair for pair in own if pair[1] == hop and pair[0].kind in ("adv", "uadv")]
        if not own and not self._tagged:
            return self.wants(hop, filter_)
        logs = {c: [r for r in log if r.tag is None] for c, log in self._logs.get(hop, {}).items()}
        for record, _ in own:
            logs.setdefault(record.client, []).append(record)
        return any(self._overlaps_live(sorted(log, key=stamp_of), filter_) for log in logs.values())

    def wants_beyond(self, hop: Hop, filter_: Filter) -> bool:
        """Whether somebody who does not lie behind `hop` advertises something that overlaps."""
        for other in self._logs:  # noqa: SIM110 (a generator is slower than these few)
            if other != hop and self.wants(other, filter_):
                return True
        return False

    def admits(self, client: str, hop: Hop, event: Event, own: Iterable[Record] = (), tag: str = "") -> bool:
        """Whether a client advertises an event, within a transaction that has written `own`, or under its tag."""
        seen = [r for r in self.log(client, hop) if r.tag is None or (r.tag == tag and r.positive)]
        seen += [r for r in own if r.client == client and r.kind in ("adv", "uadv")]
        around = [r for r in seen if contains(r.filter, event)]
        newest = max(around, key=stamp_of, default=None)
        return newest is not None and newest.positive

    def _changed(self) -> None:
        self.changes += 1
        self._answers.clear()

    def _overlaps_live(self, log: Sequence[Record], filter_: Filter) -> bool:
        for place, record in enumerate(log):
            if record.kind != "adv" or not overlaps(record.filter, filter_, self._overlap):
                continue
            withdrawn = (r.filter for r in log[place + 1 :] if r.kind == "uadv" and r.tag is None)
            if not any(intersection_within(record.filter, filter_, hole) for hole in withdrawn):
                return True
        return False


def _without_effectless(log: Sequence[Record], record: Record) -> list[Record]:
    """What of a client's log has an effect beside a record of it; what an undecided transaction wrote stays."""
    others = [r for r in log if r is not record]
    if any(r.tag is None and r.stamp > record.stamp and subsumes(r.filter, record.filter) for r in others):
        return others
    kept = [
        r
        for r in others
        if r.tag is not None or r.stamp > record.stamp or not subsumes(record.filter, r.filter)
    ]
    is_needed = record.positive or any(
        r.positive and r.stamp < record.stamp and overlaps(r.filter, record.filter) for r in kept
    )
    return sorted([*kept, record], key=stamp_of) if is_needed else kept
