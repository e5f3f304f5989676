"""One attribute's line of values, cut into buckets, and which records reach into each.

A set of records is an integer with one bit for each. A bucket in which too many ranges begin or end
is split, and nearly empty neighbours are joined, so that the buckets follow the records.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, MutableSequence, Sequence
from typing import Any

from broker.filters import Filter, Interval, OneOf, Predicate, Value

BUCKET_ENDS_MIN = 16
BUCKET_SHARE = 64
"""A bucket is split when it has more ends than `BUCKET_ENDS_MIN` plus this part of the box's records."""

EXACT, NUMBERS, STRINGS, PRESENT, MIXED = "=", "n", "s", "*", "?"

Names = tuple[str, ...]
Axis = tuple[str, str]
"""An attribute's name, and which kind of values: those of another kind have a line of their own."""


def world(predicate: Predicate) -> str:
    """What kind of value a predicate speaks of: one letter, so that a filter's shape is a word."""
    if type(predicate) is Interval:
        end = predicate.low if predicate.low is not None else predicate.high
        return PRESENT if end is None else STRINGS if isinstance(end, str) else NUMBERS
    if type(predicate) is OneOf:
        strings = {isinstance(value, str) for value in predicate.values}
        return MIXED if len(strings) > 1 else STRINGS if True in strings else NUMBERS
    return EXACT


def ranges(filter_: Filter) -> dict[Axis, Predicate]:
    """A filter's predicates that are more than a value."""
    return {
        (name, letter): predicate
        for name, predicate in zip(filter_.names, filter_.predicates, strict=True)
        if (letter := world(predicate)) != EXACT
    }


def ends_max(records: int) -> int:
    """How many ranges may begin or end in one bucket."""
    return BUCKET_ENDS_MIN + records // BUCKET_SHARE


class Column:
    """One axis in buckets: bucket i holds bounds[i-1] <= value < bounds[i]."""

    __slots__ = ("bounds", "ends", "free", "limits", "masks", "name", "ordered", "records")

    def __init__(self, name: str, world: str, free: int) -> None:
        self.name = name
        self.ordered = world in (NUMBERS, STRINGS)
        self.free = free
        """The records that do not constrain this axis."""
        self.records = 0
        """How many do."""
        # An array keeps numbers side by side, which matters more than that it has to make objects of them.
        self.bounds: MutableSequence[Any] = array("d") if world == NUMBERS else []
        self.masks = [0]
        """By bucket, the records that reach into it."""
        self.ends: list[list[int]] = [[]]
        """By bucket, the slot of a record for each of its ends that lies there."""
        self.limits = [BUCKET_ENDS_MIN]
        """By bucket, how many ends it may have before a split is tried."""

    def add(self, predicate: Predicate, slot: int) -> int | None:
        """Returns a bucket that has too many ends, if there is one."""
        self.records += 1
        bounds, masks, ends, bit = self.bounds, self.masks, self.ends, 1 << slot
        for bucket in self._reach(predicate):
            masks[bucket] |= bit
        full = None
        for end in self._ends(predicate):
            bucket = bisect_right(bounds, end)
            ends[bucket].append(slot)
            if len(ends[bucket]) > self.limits[bucket]:
                full = bucket
        return full

    def remove(self, predicate: Predicate, slot: int, limit: int) -> None:
        self.records -= 1
        bit = 1 << slot
        for bucket in self._reach(predicate):
            self.masks[bucket] ^= bit
        for end in self._ends(predicate):
            bucket = bisect_right(self.bounds, end)
            self.ends[bucket].remove(slot)
            self._join(bucket, limit)
            self._join(min(bucket, len(self.bounds)) - 1, limit)

    def split(self, bucket: int, predicates: dict[int, Predicate], limit: int) -> None:
        """Cut a bucket at the median of its ends; `predicates` by slot, of the records that have ends there."""
        bounds = self.bounds
        inside: list[Any] = sorted(
            end
            for predicate in predicates.values()
            for end in self._ends(predicate)
            if bisect_right(bounds, end) == bucket
        )
        middle = min(max(len(inside) // 2, bisect_right(inside, inside[0])), len(inside) - 1)
        # A large integer may be rounded here: a bound need not be an end, it need only separate some.
        bound = float(inside[middle]) if isinstance(bounds, array) else inside[middle]
        if not inside[0] < bound <= inside[-1]:  # all one value: look again when there are twice as many
            self.limits[bucket] = 2 * len(inside)
            return
        bounds.insert(bucket, bound)
        self.limits[bucket : bucket + 1] = [limit, limit]
        self.ends[bucket : bucket + 1] = [[], []]
        left = right = self.masks[bucket]
        for slot, predicate in predicates.items():
            reach = self._reach(predicate)
            left ^= (bucket not in reach) << slot
            right ^= (bucket + 1 not in reach) << slot
            for end in self._ends(predicate):
                place = bisect_right(bounds, end)
                if bucket <= place <= bucket + 1:
                    self.ends[place].append(slot)
        self.masks[bucket : bucket + 1] = [left, right]

    def _join(self, bucket: int, limit: int) -> None:
        """Make one of a bucket and the next if both are nearly empty: values move on, buckets must not pile up."""
        if not 0 <= bucket < len(self.bounds):
            return
        ends, others = self.ends[bucket], self.ends[bucket + 1]
        if 4 * (len(ends) + len(others)) <= limit:
            del self.bounds[bucket]
            self.ends[bucket : bucket + 2] = [ends + others]
            self.masks[bucket : bucket + 2] = [self.masks[bucket] | self.masks[bucket + 1]]
            self.limits[bucket : bucket + 2] = [limit]

    def _reach(self, predicate: Predicate) -> Collection[int]:
        """The buckets with a value that the predicate admits."""
        bounds = self.bounds
        if type(predicate) is Interval:
            first = 0 if predicate.low is None else bisect_right(bounds, predicate.low)
            last = len(bounds) if predicate.high is None else bisect_right(bounds, predicate.high)
            return range(first, last + 1)
        assert type(predicate) is OneOf
        return {bisect_right(bounds, value) for value in predicate.values}

    def _ends(self, predicate: Predicate) -> Sequence[Value]:
        """Where the predicate begins and ends; a set that mixes numbers and strings has no order."""
        if type(predicate) is Interval:
            return [end for end in (predicate.low, predicate.high) if end is not None]
        assert type(predicate) is OneOf
        return predicate.values if self.ordered else ()
