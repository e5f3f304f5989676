"""A client's publication space: what it advertises, minus what it has taken back since; pure.

Asked about every publication, at the caller and at the edge broker, so the few filters it consists of
are kept as functions.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.filters import Event, Filter, Interval, OneOf, subsumes

Test = Callable[[Event], bool]


class Space:
    def __init__(self) -> None:
        self._parts: list[tuple[Filter, bool, Test]] = []
        """Newest first: the first that contains an event decides."""

    def change(self, positive: bool, filter_: Filter) -> None:
        """Advertise (or take back) one more filter; parts that it hides are dropped."""
        kept = [part for part in self._parts if not subsumes(filter_, part[0])]
        if positive or kept:
            kept.insert(0, (filter_, positive, as_test(filter_)))
        self._parts = kept

    def contains(self, event: Event) -> bool:
        for _, positive, test in self._parts:
            if test(event):
                return positive
        return False


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
