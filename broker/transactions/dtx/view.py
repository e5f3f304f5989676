"""What an isolated transaction sees at one broker: the committed tables, and what it wrote itself; pure.

The same functions decide while the transaction runs and when its log is replayed at the vote, so that a
difference between the two means that somebody else's commit has come between.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.matching.records import Record
from broker.protocol.filters import Event, overlaps
from broker.protocol.hops import Hop
from broker.protocol.vocabulary import Stamp
from broker.routing.tables import Routing

Decision = tuple[tuple[Hop, ...], tuple[tuple[str, Stamp], ...]] | None
"""Where an operation goes, and which records it attracts (client, stamp); None: it is not admitted."""


class View:
    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._changes = routing.changes
        self.own: list[tuple[Record, Hop]] = []
        """What the transaction wrote here, and from where it came."""
        self.sent: set[tuple[str, Stamp, Hop]] = set()
        """Records that the transaction has sent to neighbours, beyond what the tables say."""

    @property
    def is_current(self) -> bool:
        """Whether the tables are as they were when the transaction began to look at them."""
        return self._routing.changes == self._changes

    def publication(self, event: Event, client: str, origin: Hop) -> Decision:
        """`client` is the issuer, where it is known: at its edge broker."""
        routing = self._routing
        if client:
            own = [record for record, _ in self.own]
            if not routing.srt.admits(client, origin, event, own):
                return None
        subscriptions = [pair for pair in self.own if pair[0].kind in ("sub", "usub")]
        subscriptions += routing.veiled_records()
        hops = routing.prt.index.hops_with(subscriptions, event)
        return tuple(sorted(hop for hop in hops if hop != origin)), ()

    def record(self, record: Record, origin: Hop) -> Decision:
        """An adv, uadv, sub or usub; the view is changed."""
        if self._routing.find(record, origin) is None and not any(
            self._is(own, record) for own, _ in self.own
        ):
            self.own.append((record, origin))
        neighbours = [hop for hop in self._routing.neighbours if hop != origin]
        if record.kind in ("adv", "uadv"):
            return tuple(neighbours), self._attracted(record, origin)
        wanting = [hop for hop in neighbours if self._is_due(record, hop)]
        self.sent.update((record.client, record.stamp, hop) for hop in wanting)
        return tuple(wanting), ()

    def forget(self, client: str) -> bool:
        """A client has left: what it wrote must not be attracted any more. Whether there was any."""
        kept = [pair for pair in self.own if pair[0].client != client]
        had_any = len(kept) < len(self.own)
        self.own = kept
        return had_any

    def find(self, client: str, stamp: Stamp) -> Record:
        """A record that this view has attracted."""
        known = self._routing.prt.index.find(client, stamp)
        if known is not None:
            return known
        return next(r for r, _ in self.own if r.client == client and r.stamp == stamp)

    def _is_due(self, record: Record, hop: Hop) -> bool:
        return not self._was_sent(record, hop) and self._routing.srt.wants_isolated(
            hop, record.filter, self.own
        )

    def _was_sent(self, record: Record, hop: Hop) -> bool:
        if (record.client, record.stamp, hop) in self.sent:
            return True
        known = self._routing.prt.index.find(record.client, record.stamp)
        return known is not None and self._routing.was_sent(known, hop)

    def _attracted(self, advertisement: Record, origin: Hop) -> tuple[tuple[str, Stamp], ...]:
        if advertisement.kind != "adv" or origin not in self._routing.neighbours:
            return ()
        found = []
        for hop, record in self._subscriptions():
            if (
                hop != origin
                and overlaps(record.filter, advertisement.filter, self._routing.overlap)
                and not self._was_sent(record, origin)
            ):
                found.append((record.client, record.stamp))
        self.sent.update((client, stamp, origin) for client, stamp in found)
        return tuple(sorted(found))

    def _subscriptions(self) -> Sequence[tuple[Hop, Record]]:
        committed = [(hop, record) for hop, record in self._routing.prt if self._routing.is_committed(record)]
        return [*committed, *((hop, r) for r, hop in self.own if r.kind in ("sub", "usub"))]

    @staticmethod
    def _is(one: Record, other: Record) -> bool:
        return one.client == other.client and one.stamp == other.stamp
