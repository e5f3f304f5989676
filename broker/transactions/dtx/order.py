"""In which order D-TX transactions vote and commit at a broker; pure.

Each has a key (epoch, id). A transaction waits with its vote for those with smaller keys that are in doubt and
touch the same; `d-tx` also for all others that are under way, as long as something is heard of them. One that
comes after a larger one has voted yes is late, if the two interfere: then no order by keys explains both.
"""

from __future__ import annotations

from bisect import insort
from itertools import takewhile
from operator import itemgetter

from broker.protocol.filters import overlaps
from broker.protocol.hops import client_hop
from broker.protocol.vocabulary import NO_KEY, Key
from broker.routing.state import BrokerState
from broker.transactions.dtx.context import Context, Footprint, Logged
from broker.transactions.dtx.view import Decision, View

RECENT_MAX = 256
"""So many committed transactions are remembered by what they touched; one older than that is late."""


class Order:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.contexts: dict[str, Context] = {}
        self._epoch = 0
        """The largest epoch of any transaction that was prepared here."""
        self._recent: list[tuple[Key, Footprint]] = []
        self._forgotten: Key = NO_KEY
        """The largest key that is not in `_recent` any more."""

    def next_key(self, tx: str) -> Key:
        return (1 + max(self._state.last_key[0], self._epoch), tx)

    def saw(self, key: Key) -> None:
        self._epoch = max(self._epoch, key[0])

    def votable(self) -> list[Context]:
        """Those that were asked for their vote and need not wait, in the order of their keys."""
        asked = [c for c in self.contexts.values() if c.state == "preparing"]
        asked.sort(key=lambda c: c.key)
        free: list[Context] = []
        for context in asked:
            if not context.isolated or context.bad or not self._must_wait(context, free):
                free.append(context)
        return free

    def _must_wait(self, context: Context, about_to_vote: list[Context]) -> bool:
        unheard_since = self._state.now - self._state.limits.unheard_ms / 1e3
        for other in self.contexts.values():  # the oldest first: mostly one of those is waited for
            if other.key >= context.key or not other.isolated:
                continue
            if other.state == "yes" or other in about_to_vote:
                if context.footprint.interferes(other.footprint):
                    return True
            elif not context.optimistic and other.state != "no":
                if other.heard > unheard_since:
                    return True
                self._state.mark("one that is silent is not waited for")
        return False

    def objection(self, context: Context) -> str:
        """Why the transaction may not commit, as far as this broker can tell; empty: it may."""
        if not context.isolated:
            return ""
        if self._is_late(context):
            self._state.mark("a vote comes too late")
            return "it comes too late for its place in the order"
        if self._has_newer_records(context):
            self._state.mark("a client has changed the same since")
            return "its client has changed the same since"
        return self._conflict(context)

    def committed(self, context: Context) -> None:
        self._state.last_key = max(self._state.last_key, context.key)
        insort(self._recent, (context.key, context.footprint), key=itemgetter(0))
        if len(self._recent) > RECENT_MAX:
            self._forgotten = max(self._forgotten, self._recent.pop(0)[0])

    def _is_late(self, context: Context) -> bool:
        rivals = [c for c in self.contexts.values() if c.state == "yes" and c.key > context.key]
        if not rivals and context.key > self._state.last_key:
            return False
        if context.key < self._forgotten:
            return True
        passed = [prints for _, prints in takewhile(lambda one: one[0] > context.key, reversed(self._recent))]
        return any(map(context.footprint.interferes, (*passed, *(rival.footprint for rival in rivals))))

    def _has_newer_records(self, context: Context) -> bool:
        """A regular operation of a client of ours that is newer than its operation in the transaction."""
        routing = self._state.routing
        for record, hop in context.view.own:
            if hop != client_hop(record.client):
                continue
            if context.key < routing.compaction.floors.get(record.client, NO_KEY):
                self._state.mark("a record that was dropped may have been newer")
                return True
            newer = routing.prt.index.newer(record.client, record.stamp)
            newer += [r for r in routing.srt.log(record.client, hop) if r.stamp > record.stamp]
            if any(overlaps(other.filter, record.filter) for other in newer):
                return True
        return False

    def _conflict(self, context: Context) -> str:
        """Decide everything once more, on what is committed now; if that is what it was, the outcome is known."""
        if context.view.is_current:
            return ""
        view = View(self._state.routing)
        for logged in context.log:
            if _again(view, logged) != self._still_known(context, logged.decision):
                subject = logged.record.filter if logged.record is not None else logged.event
                self._state.mark("what was decided is decided otherwise at the vote")
                return f"a conflict about {subject}"
        return ""

    def _still_known(self, context: Context, decision: Decision) -> Decision:
        """A decision, less the attracted records that have left the tables: they had no effect any more."""
        if decision is None or not decision[1]:
            return decision
        hops, attracted = decision
        own = {(record.client, record.stamp) for record, _ in context.view.own}
        find = self._state.routing.prt.index.find
        return hops, tuple(a for a in attracted if a in own or find(*a) is not None)


def _again(view: View, logged: Logged) -> object:
    if logged.record is not None:
        return view.record(logged.record, logged.origin)
    assert logged.event is not None
    return view.publication(logged.event, logged.client, logged.origin)
