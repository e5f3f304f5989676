"""One attribute's line of values, cut into buckets, and which records reach into each.

A set of records is an integer with one bit for each. A bucket in which too many ranges begin or end
is split, and nearly empty neighbours are joined, so that the buckets follow the records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, MutableSequence, Sequence
from math import inf, nextafter
from typing import Any

from broker.protocol.filters import Interval, OneOf, Predicate, Value

BUCKET_ENDS_MIN = 16
BUCKET_SHARE = 1024
"""The larger, the more buckets: better aim, for more memory and slower changes."""

EXACT, NUMBERS, STRINGS, PRESENT, MIXED = "=", "n", "s", "*", "?"
RANGES = frozenset({Interval, OneOf})

Names = tuple[str, ...]
Axis = tuple[str, str]
"""An attribute's name, and a kind of values: those of another kind have a line of their own."""
Hull = tuple[Value | None, Value | None]
"""The least and the greatest value that a predicate admits, or a little beyond; None: no end."""


def world(predicate: Predicate) -> str:
    """What kind of value a predicate speaks of: one letter, so that a filter's shape is a word."""
    if type(predicate) is Interval:
        end = predicate.low if predicate.low is not None else predicate.high
        return PRESENT if end is None else STRINGS if isinstance(end, str) else NUMBERS
    if type(predicate) is OneOf:
        strings = {isinstance(value, str) for value in predicate.values}
        return MIXED if len(strings) > 1 else STRINGS if True in strings else NUMBERS
    return EXACT


def worlds_of(predicates: tuple[Predicate, ...]) -> str:
    if RANGES.isdisjoint(map(type, predicates)):
        return EXACT * len(predicates)
    return "".join(map(world, predicates))


def hull(predicate: Predicate, letter: str) -> Hull:
    """A set that mixes numbers and strings has no order, and so no ends."""
    if type(predicate) is Interval:
        return predicate.low, predicate.high
    assert type(predicate) is OneOf
    values: Any = predicate.values
    return (min(values), max(values)) if letter != MIXED else (None, None)


def ends_max(records: int, constraining: int, columns: int) -> int:
    """How many ranges may begin or end in one bucket.

    Few records need few buckets. Among many, an axis that more of them constrain deserves more; and where
    many columns share the memory of a box, each has to do with less.
    """
    return BUCKET_ENDS_MIN + (records + constraining) * (6 + columns) // BUCKET_SHARE


class Column:
    """One axis in buckets: bucket i holds bounds[i-1] <= value < bounds[i]."""

    __slots__ = ("bounds", "ends", "free", "limits", "masks", "name", "ordered", "records")

    def __init__(self, name: str, letter: str, free: int) -> None:
        self.name = name
        self.ordered = letter in (NUMBERS, STRINGS)
        self.free = free
        """The records that do not constrain this axis."""
        self.records = 0
        """How many do."""
        # An array keeps numbers side by side, which matters more than that it has to make objects of them.
        self.bounds: MutableSequence[Any] = array("d") if letter == NUMBERS else []
        self.masks = [0]
        """By bucket, the records that reach into it."""
        self.ends = [0]
        """By bucket, how many ranges begin or end in it."""
        self.limits = [BUCKET_ENDS_MIN]
        """By bucket, how many may do so before a split is tried."""

    def add(self, span: Hull, slot: int) -> int | None:
        """Returns a bucket that has too many ends, if there is one."""
        self.records += 1
        masks, bit = self.masks, 1 << slot
        reach = self._reach(span)
        for bucket in reach:
            masks[bucket] |= bit
        full = None
        for end, bucket in zip(span, (reach[0], reach[-1]), strict=True):
            if end is not None:
                self.ends[bucket] += 1
                if self.ends[bucket] > self.limits[bucket]:
                    full = bucket
        return full

    def remove(self, span: Hull, slot: int, limit: int) -> None:
        self.records -= 1
        masks, bit = self.masks, 1 << slot
        reach = self._reach(span)
        for bucket in reach:
            masks[bucket] ^= bit
        for end, bucket in zip(span, (reach[0], reach[-1]), strict=True):
            if end is not None:
                self.ends[bucket] -= 1
        for bucket in {reach[-1]: 0, reach[0]: 0}:  # from the right: a join moves the buckets behind it
            self._join(bucket, limit)
            self._join(bucket - 1, limit)

    def ending(self, bucket: int) -> int:
        """The records that end in a bucket or at either end of the line: others reach into both neighbours."""
        masks = self.masks
        left = masks[bucket - 1] if bucket else 0
        right = masks[bucket + 1] if bucket + 1 < len(masks) else 0
        return masks[bucket] & ~(left & right)

    def split(self, bucket: int, spans: Mapping[int, Hull], limit: int) -> None:
        """Cut a bucket at the median of its ends; `spans` by slot, of the records that `ending` tells."""
        bounds = self.bounds
        inside: list[Any] = sorted(
            end
            for span in spans.values()
            for end in span
            if end is not None and bisect_right(bounds, end) == bucket
        )
        bound = self._cut(bucket, inside)
        if bound is None:  # all one value, and alone: look again when there are twice as many
            self.limits[bucket] = 2 * len(inside)
            return
        bounds.insert(bucket, bound)
        before = sum(1 for end in inside if end < bound)
        self.ends[bucket : bucket + 1] = [before, len(inside) - before]
        self.limits[bucket : bucket + 1] = [limit, limit]
        left = right = self.masks[bucket]
        for slot, span in spans.items():
            reach = self._reach(span)
            left ^= (bucket not in reach) << slot
            right ^= (bucket + 1 not in reach) << slot
        self.masks[bucket : bucket + 1] = [left, right]

    def _cut(self, bucket: int, inside: Sequence[Any]) -> Any:
        """Where to split a bucket with these ends, in order; None: nowhere.

        Best at the median. If they are all one value, in front of it or right behind it, so that events
        beside a popular value do not have to ask all who end there. A large integer is rounded to a float
        here, which does no harm: a bound need not be an end.
        """
        middle = inside[max(len(inside) // 2, min(bisect_right(inside, inside[0]), len(inside) - 1))]
        if isinstance(self.bounds, array):
            cuts: tuple[Any, Any] = float(middle), nextafter(middle, inf)
        else:
            cuts = middle, middle + "\0"
        for cut in cuts:
            if bisect_right(self.bounds, cut) == bucket and (not bucket or self.bounds[bucket - 1] < cut):
                return cut
        return None

    def _join(self, bucket: int, limit: int) -> None:
        """Make one of a bucket and the next if both are nearly empty: values move on, buckets must not pile up."""
        if 0 <= bucket < len(self.bounds) and 4 * (self.ends[bucket] + self.ends[bucket + 1]) <= limit:
            del self.bounds[bucket]
            self.ends[bucket : bucket + 2] = [self.ends[bucket] + self.ends[bucket + 1]]
            self.masks[bucket : bucket + 2] = [self.masks[bucket] | self.masks[bucket + 1]]
            self.limits[bucket : bucket + 2] = [limit]

    def _reach(self, span: Hull) -> range:
        """The buckets that the span reaches into."""
        low, high = span
        first = 0 if low is None else bisect_right(self.bounds, low)
        last = len(self.bounds) if high is None else bisect_right(self.bounds, high)
        return range(first, last + 1)
