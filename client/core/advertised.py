"""What a client advertises, as its edge broker sees it: by it the library tells what may be published.

A change counts when it is accepted, or its transaction has committed. Which of two that touch the same counts is
another question: regular changes, those of D-TX_NI and of plans have the place at which they were said, in a plan
that of its steps; those of an isolated transaction the place of its commit. So they are put in order here, also
where what was said first is settled last.

Only its edge broker knows whether a change of D-TX_NI or of a plan that is under way has overtaken the commit of an
isolated transaction, or anything that was said beside it: that counts as newer if a transaction with a later place has
committed in between. Where that decides, the library does not hold back what the broker may take: what the transaction
advertises stands behind what came beside it, what it withdraws before. If nothing comes of that, both stand together.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from operator import attrgetter
from typing import NamedTuple

from broker.matching.space import Space
from broker.protocol.filters import Filter

Place = tuple[int, ...]


class Change(NamedTuple):
    place: Place
    """At which it was said, and the step, if it is one of a plan; what has a commit in its place comes first."""
    positive: bool
    filter: Filter
    early: Place = ()
    """Of what an isolated transaction has written: before all that may have overtaken its commit."""


place_of = attrgetter("place")


class Advertised:
    def __init__(self) -> None:
        self.space = Space()
        self._places = count(1)
        self._open: set[int] = set()
        """Places of what was said and is not settled."""
        self._requested: set[int] = set()
        """Those of regular ones, which are answered in order."""
        self._base: Sequence[tuple[bool, Filter]] | None = None
        """What was advertised when the first of several open ones was said; None: what is said is settled in order."""
        self._changes: list[Change] = []
        """Settled since."""
        self._early: Place = ()
        """Before what was beside the newest commit: one behind that is not older."""

    def pass_on(self) -> int:
        """A place for something that changes nothing here."""
        return next(self._places)

    def say(self, in_transaction: bool = False) -> int:
        """A place for a change that is to be settled."""
        if in_transaction and self._base is None:
            self._base = self.space.parts()
        place = next(self._places)
        self._open.add(place)
        if not in_transaction:
            self._requested.add(place)
        return place

    def at_commit(self, said: Collection[int], changes: Iterable[Change], place: int = 0) -> list[Change]:
        """With the place of a commit. If that is not known here, the edge broker has told: behind what it had accepted."""
        commit = place or self.pass_on()
        is_asked = not place and self._requested
        late = (min(self._requested), -1) if is_asked else (commit, 0)
        first = min(said, default=commit)
        beside = [open_ for open_ in self._open - self._requested - {*said} if open_ > first]
        beside += [
            change.place[0] for change in self._changes if not change.early and change.place[0] > first
        ]
        if not beside:
            return [c._replace(place=(*late, commit, number)) for number, c in enumerate(changes)]
        self._early = early = min(late, max(self._early, (min(beside), -1)))
        placed = []
        for number, change in enumerate(changes):
            behind, before = (*late, commit, number), (*early, commit, number)
            placed.append(change._replace(place=behind if change.positive else before, early=before))
        return placed

    def settle(self, said: Collection[int], changes: Iterable[Change] = ()) -> None:
        """What was said at these places has come to these changes, or to nothing."""
        self._open.difference_update(said)
        self._requested &= self._open
        changes = sorted(changes, key=place_of)
        last = self._changes[-1].place if self._changes else (0, 0)
        is_in_order = all(change.place >= last for change in changes)
        for change in changes:
            if is_in_order:
                self.space.change(change.positive, change.filter)
            if self._base is not None:
                insort(self._changes, change, key=place_of)
        if not is_in_order:
            assert self._base is not None
            self.space.renew([*self._base, *((c.positive, c.filter) for c in self._changes)])
        if not self._open:
            self._close()

    def _close(self) -> None:
        """All is settled."""
        if self._base is not None and any(change.early for change in self._changes):
            places = [change.place for change in self._changes if not change.early]
            changes = [self._at_rest(c, places) if c.early else c for c in self._changes]
            changes.sort(key=place_of)
            self.space.renew([*self._base, *((c.positive, c.filter) for c in changes)])
        self._base, self._early = None, ()
        self._changes.clear()

    @staticmethod
    def _at_rest(change: Change, others: Sequence[Place]) -> Change:
        """With its early place, if that makes no difference to what others have come to."""
        is_free = not any(change.early < place < change.place for place in others)
        return change._replace(place=change.early) if is_free else change
