"""Events with the same attributes, column by column; pure.

Those that come together mostly have. What has to be asked of each is then asked of a column, by one call
instead of one per event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter, ne
from typing import Any

from broker.protocol.filters import INTEGER_MAX, INTEGER_MIN, Event, Value
from broker.protocol.limits import Limits

BATCH_MIN = 4
"""Fewer are faster asked one by one."""


class Batch:
    """Events with the same names, and their places among those that came together."""

    __slots__ = ("columns", "events", "names", "places")

    def __init__(self, names: tuple[str, ...], events: Sequence[Event], places: Sequence[int]) -> None:
        """Raises `KeyError` if an event lacks one of the names."""
        self.names = names
        self.events = events
        self.places = places
        self.columns: dict[str, list[Value]] = {name: list(map(itemgetter(name), events)) for name in names}

    def keys(self, names: Sequence[str]) -> Iterable[object]:
        """What each event has under these: one value bare, several as a tuple, none as the empty tuple."""
        if len(names) == 1:
            return self.columns[names[0]]
        if not names:
            return [()] * len(self.events)
        return zip(*[self.columns[name] for name in names], strict=True)


def batches(events: Sequence[Event]) -> tuple[list[Batch], list[int]]:
    """Nearly always a single batch of all; and the places of those that have too few of their kind."""
    if len(events) < BATCH_MIN:
        return [], list(range(len(events)))
    names = tuple(events[0])
    if set(map(len, events)) == {len(names)}:
        try:
            return [Batch(names, events, range(len(events)))], []
        except KeyError:
            pass  # as many names, but others
    by_names: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        by_names[tuple(event)].append(place)
    found: list[Batch] = []
    odd: list[int] = []
    for names, places in by_names.items():
        if len(places) < BATCH_MIN:
            odd += places
        else:
            found.append(Batch(names, [events[place] for place in places], places))
    return found, odd


def are_good(events: Sequence[Event], payloads: Iterable[bytes], limits: Limits) -> bool:
    """Of many publications, and fast: false where `check_publication` should have a closer look at each."""
    longest = limits.text_length_max
    together, odd = batches(events)
    if odd or max(map(len, payloads)) > limits.payload_bytes_max:
        return False
    for batch in together:
        if len(batch.names) > limits.attributes_max:
            return False
        for name, values in batch.columns.items():
            if type(name) is not str or not 0 < len(name) <= longest or not _are_good(values, longest):
                return False
    return True


def _are_good(values: Sequence[Value], longest: int) -> bool:
    """What several events have under one name."""
    kinds = set(map(type, values))
    for kind in kinds:
        some: Any = values if len(kinds) == 1 else [value for value in values if type(value) is kind]
        if kind is str:
            good = max(map(len, some)) <= longest
        elif kind is int:
            good = min(some) >= INTEGER_MIN and max(some) <= INTEGER_MAX
        else:
            good = kind is float and not any(map(ne, some, some))  # NaN is not itself
        if not good:
            return False
    return True
