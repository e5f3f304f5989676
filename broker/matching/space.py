"""A client's publication space: what it advertises, minus what it has taken back since; pure.

Asked about every publication, at the caller and at the edge broker, so the few filters it consists of
are kept as functions. When they are many they go into an index: nobody else must wait because one client
advertises thousands of things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from broker.matching.index import Index
from broker.matching.records import Record, stamp_of
from broker.protocol.filters import Event, Filter, Interval, OneOf, overlaps, subsumes
from broker.protocol.vocabulary import NO_KEY

Test = Callable[[Event], bool]
Part = tuple[Filter, bool, Test]

PARTS_MAX = 64
"""So many are looked at one by one."""


class Space:
    def __init__(self) -> None:
        self._parts: list[Part] = []
        """Newest first: the first that contains an event decides."""
        self._many: Many | None = None
        self.contains: Test = partial(_decide, self._parts)
        """Whether the client may publish the event."""

    def change(self, positive: bool, filter_: Filter) -> None:
        """Advertise (or take back) one more filter; parts that it hides are dropped."""
        if self._many is not None:
            self._many.change(positive, filter_)
            return
        kept = [part for part in self._parts if not subsumes(filter_, part[0])]
        if positive or any(is_in and overlaps(other, filter_) for other, is_in, _ in kept):
            kept.insert(0, (filter_, positive, as_test(filter_)))
        if len(kept) > PARTS_MAX:
            self._many = Many()
            for other, is_in, _ in reversed(kept):
                self._many.change(is_in, other)
            kept = [(Filter((), ()), True, self._many.contains)]
        self._parts = kept
        self._choose_test()

    def parts(self) -> Sequence[tuple[bool, Filter]]:
        """Changes that make this of an empty space, in order."""
        if self._many is not None:
            return self._many.parts()
        return [(positive, filter_) for filter_, positive, _ in reversed(self._parts)]

    def renew(self, parts: Iterable[tuple[bool, Filter]]) -> None:
        """Begin anew with these changes, in order."""
        self._parts, self._many = [], None
        self._choose_test()
        for positive, filter_ in parts:
            self.change(positive, filter_)

    def __reduce__(self) -> tuple[Callable[..., Space], tuple[Sequence[tuple[bool, Filter]]]]:
        return _space_of, (self.parts(),)

    def _choose_test(self) -> None:
        # Most clients advertise one thing: then its test is the answer.
        kept = self._parts
        self.contains = kept[0][2] if len(kept) == 1 and kept[0][1] else partial(_decide, kept)


def _space_of(parts: Iterable[tuple[bool, Filter]]) -> Space:
    space = Space()
    space.renew(parts)
    return space


def _decide(parts: Iterable[Part], event: Event) -> bool:
    for _, positive, test in parts:
        if test(event):
            return positive
    return False


class Many:
    """The same for any number of filters, of which the newest of its kind is kept."""

    def __init__(self) -> None:
        self._index = Index()
        self._newest: dict[Filter, Record] = {}
        self._number = 0

    def change(self, positive: bool, filter_: Filter) -> None:
        hidden = self._newest.pop(filter_, None)
        if hidden is not None:
            self._index.remove(hidden)
        self._number += 1
        record = Record("adv" if positive else "uadv", "", (NO_KEY, 1, 1, self._number), filter_)
        self._index.add(record, "here")
        self._newest[filter_] = record

    def parts(self) -> Sequence[tuple[bool, Filter]]:
        ordered = sorted(self._newest.values(), key=stamp_of)
        return [(record.positive, record.filter) for record in ordered]

    def contains(self, event: Event) -> bool:
        return bool(self._index.hops(event))


def as_test(filter_: Filter) -> Test:
    """The filter as a function; the commonest forms without a loop."""
    if len(filter_.names) != 1:
        return filter_.matches
    name, predicate = filter_.names[0], filter_.predicates[0]
    if predicate == Interval():
        return lambda event: name in event
    if isinstance(predicate, (Interval, OneOf)):
        return filter_.matches
    return lambda event: event.get(name) == predicate
