"""Records whose filters have ranges: which of them contain a point, without asking each.

A `Box` holds up to `BOX_RECORDS` records, each a bit. Per attribute the line of values is cut into
buckets, and each bucket has the set of records that reach into it as one integer; a point's
candidates are the intersection of one bucket per attribute, and only these are asked exactly.
A bucket in which too many ranges begin or end is split, so the buckets follow the records, and no
single insertion costs more than a box's worth of work.

Pure, and ignorant of stamps and transactions: `broker.index` decides what a match means.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, MutableSequence, Sequence
from functools import reduce
from operator import and_, getitem
from typing import TYPE_CHECKING, Any

from broker.filters import Event, Filter, Interval, OneOf, Predicate, Value

if TYPE_CHECKING:
    from broker.table import Record

BOX_RECORDS = 4096
"""Bounds the work of one insertion: to set a bit is to copy an integer of this many bits."""
FEW_RECORDS = 8
"""Up to here it is faster to ask every record than to keep a box."""
BUCKET_ENDS_MIN = 16
BUCKET_SHARE = 32
"""A bucket is split when it has more ends than `BUCKET_ENDS_MIN` plus this part of the box's records."""

SLOTS = tuple(range(BOX_RECORDS))
"""One integer object per slot, shared by all the records that lie in such a slot."""

Point = tuple[Value, ...]
PointOf = Callable[[Event], Point]

EXACT, NUMBERS, STRINGS, PRESENT, MIXED = "=", "n", "s", "*", "?"


def world(predicate: Predicate) -> str:
    """What kind of value a predicate speaks of: one letter, so that a filter's kind is a word."""
    if type(predicate) is Interval:
        end = predicate.low if predicate.low is not None else predicate.high
        return PRESENT if end is None else STRINGS if isinstance(end, str) else NUMBERS
    if type(predicate) is OneOf:
        strings = {isinstance(value, str) for value in predicate.values}
        return MIXED if len(strings) > 1 else STRINGS if True in strings else NUMBERS
    return EXACT


def contains(filter_: Filter, event: Event) -> bool:
    """The answer of `Filter.matches` in half the time, except that NaN lies in no interval."""
    try:
        for name, predicate in zip(filter_.names, filter_.predicates, strict=True):
            value: Any = event[name]
            if type(predicate) is Interval:
                low: Any = predicate.low
                if low is not None and not (low < value if predicate.low_open else low <= value):
                    return False
                high: Any = predicate.high
                if high is not None and not (value < high if predicate.high_open else value <= high):
                    return False
            elif type(predicate) is OneOf:
                if value not in predicate.values:
                    return False
            elif predicate != value:
                return False
    except (TypeError, KeyError):  # a number beside a string, which are two worlds; or no such attribute
        return False
    return True


class Pile:
    """Records that constrain the same attributes: a few in a list, more in boxes."""

    __slots__ = ("boxes", "few")

    def __init__(self) -> None:
        self.few: list[Record] = []
        self.boxes: list[Box] = []

    def __bool__(self) -> bool:
        return bool(self.few or self.boxes)

    def add(self, record: Record, ranged: Sequence[int]) -> None:
        """`ranged`: the places of the filter's predicates that are ranges."""
        if not self.boxes:
            self.few.append(record)
            if len(self.few) <= FEW_RECORDS:
                return
            incoming, self.few = self.few, []
        else:
            incoming = [record]
        for each in incoming:
            self._box_with_room(record, ranged).add(each, ranged)

    def remove(self, record: Record, ranged: Sequence[int]) -> None:
        if not self.boxes:
            self.few.remove(record)
            return
        box = next(box for box in self.boxes if box.has(record))
        box.remove(record, ranged)
        if not len(box):
            self.boxes.remove(box)

    def collect(self, event: Event, point_of: PointOf, found: set[str]) -> list[Record]:
        """Add to `found` the hops of clients that want the event; return what is in doubt.

        In doubt are the matching records of clients with holes. Hops that are in `found` already are
        not looked at again: one client per hop is enough.
        """
        doubtful: list[Record] = []
        for record in self.few:
            home = record.home
            if home.hop not in found and contains(record.filter, event):
                if home.holes is None:
                    found.add(home.hop)
                else:
                    doubtful.append(record)
        if self.boxes:
            point = point_of(event)
            for box in self.boxes:
                candidates = box.candidates(point)
                if candidates:
                    box.collect(candidates, event, found, doubtful)
        return doubtful

    def matching(self, event: Event, point_of: PointOf) -> Iterator[Record]:
        """The records that contain the event."""
        for record in self.few:
            if contains(record.filter, event):
                yield record
        if self.boxes:
            point = point_of(event)
            for box in self.boxes:
                for record in box.pick(box.candidates(point)):
                    if contains(record.filter, event):
                        yield record

    def _box_with_room(self, record: Record, ranged: Sequence[int]) -> Box:
        for box in reversed(self.boxes):
            if len(box) < BOX_RECORDS:
                return box
        self.boxes.append(Box("".join(world(record.filter.predicates[place]) for place in ranged)))
        return self.boxes[-1]


class Box:
    """Up to `BOX_RECORDS` records, one column of buckets for each of their ranges."""

    __slots__ = ("_columns", "_free", "_hops", "_look_up", "_records")

    def __init__(self, worlds: str) -> None:
        self._columns = [Column(world) for world in worlds]
        self._look_up = _look_up(self._columns)
        self._records: list[Record | None] = []
        self._free: list[int] = []
        self._hops: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._records) - len(self._free)

    def __iter__(self) -> Iterator[Record]:
        return (record for record in self._records if record is not None)

    def has(self, record: Record) -> bool:
        return record.slot < len(self._records) and self._records[record.slot] is record

    def add(self, record: Record, ranged: Sequence[int]) -> None:
        if self._free:
            record.slot = self._free.pop()
            self._records[record.slot] = record
        else:
            record.slot = SLOTS[len(self._records)]
            self._records.append(record)
        bit = 1 << record.slot
        hop = record.home.hop
        self._hops[hop] = self._hops.get(hop, 0) | bit
        predicates = record.filter.predicates
        for column, place in zip(self._columns, ranged, strict=True):
            full = column.add(predicates[place], bit)
            if full is not None:
                self._split(column, full, place)

    def remove(self, record: Record, ranged: Sequence[int]) -> None:
        bit = 1 << record.slot
        predicates = record.filter.predicates
        for column, place in zip(self._columns, ranged, strict=True):
            column.remove(predicates[place], bit, self._ends_max())
        hop = record.home.hop
        self._hops[hop] ^= bit
        if not self._hops[hop]:
            del self._hops[hop]
        self._records[record.slot] = None
        self._free.append(record.slot)

    def candidates(self, point: Point) -> int:
        """The records that may contain the point, as bits."""
        try:
            return self._look_up(*point)
        except TypeError:  # a string where all these records have numbers, or the other way round
            return 0

    def collect(self, candidates: int, event: Event, found: set[str], doubtful: list[Record]) -> None:
        records, hops = self._records, self._hops
        while candidates:
            slot = candidates.bit_length() - 1
            record = records[slot]
            assert record is not None
            home = record.home
            hop = home.hop
            if hop in found:
                candidates &= ~hops[hop]
                continue
            if contains(record.filter, event):
                if home.holes is None:
                    found.add(hop)
                    candidates &= ~hops[hop]
                    continue
                doubtful.append(record)
            candidates ^= 1 << slot

    def pick(self, candidates: int) -> Iterator[Record]:
        """The records whose bits are set."""
        while candidates:
            slot = candidates.bit_length() - 1
            record = self._records[slot]
            assert record is not None
            yield record
            candidates ^= 1 << slot

    def _split(self, column: Column, bucket: int, place: int) -> None:
        ends_max = self._ends_max()
        if column.ends[bucket] <= ends_max:  # the box has grown since the limit was set
            column.limits[bucket] = ends_max
            return
        reaching = {1 << r.slot: r.filter.predicates[place] for r in self.pick(column.masks[bucket])}
        column.split(bucket, reaching, ends_max)

    def _ends_max(self) -> int:
        return BUCKET_ENDS_MIN + len(self) // BUCKET_SHARE


class Column:
    """One attribute's values in buckets: bucket i holds bounds[i-1] <= value < bounds[i]."""

    __slots__ = ("bounds", "ends", "limits", "masks")

    def __init__(self, world: str) -> None:
        self.bounds: MutableSequence[Any] = array("d") if world == NUMBERS else []
        self.masks = [0]
        self.ends = [0]
        """How many ranges begin or end in each bucket."""
        self.limits = [BUCKET_ENDS_MIN]
        """How many ends each bucket may have before a split is tried."""

    def add(self, predicate: Predicate, bit: int) -> int | None:
        """Returns a bucket that has too many ends, if there is one."""
        bounds, masks, ends = self.bounds, self.masks, self.ends
        for bucket in self._reach(predicate):
            masks[bucket] |= bit
        full = None
        for end in _ends(predicate):
            bucket = bisect_right(bounds, end)
            ends[bucket] += 1
            if ends[bucket] > self.limits[bucket]:
                full = bucket
        return full

    def remove(self, predicate: Predicate, bit: int, ends_max: int) -> None:
        for bucket in self._reach(predicate):
            self.masks[bucket] ^= bit
        for end in _ends(predicate):
            bucket = bisect_right(self.bounds, end)
            self.ends[bucket] -= 1
            self._merge(bucket, ends_max)
            self._merge(min(bucket, len(self.bounds)) - 1, ends_max)

    def split(self, bucket: int, reaching: dict[int, Predicate], ends_max: int) -> None:
        """Cut a bucket at the median of its ends; `reaching` is what lies in it, by bit."""
        inside = sorted(
            end
            for predicate in reaching.values()
            for end in _ends(predicate)
            if bisect_right(self.bounds, end) == bucket
        )
        middle = min(max(len(inside) // 2, bisect_right(inside, inside[0])), len(inside) - 1)
        bound = float(inside[middle]) if isinstance(self.bounds, array) else inside[middle]
        left = bisect_left(inside, bound)
        if not 0 < left < len(inside):  # the ends are all one value: look again when they are twice as many
            self.limits[bucket] = 2 * len(inside)
            return
        self.bounds.insert(bucket, bound)
        self.ends[bucket : bucket + 1] = [left, len(inside) - left]
        self.limits[bucket : bucket + 1] = [ends_max, ends_max]
        self.masks.insert(bucket, 0)
        self.masks[bucket : bucket + 2] = self._halves(bucket, reaching)

    def _halves(self, bucket: int, reaching: dict[int, Predicate]) -> tuple[int, int]:
        left = right = 0
        for bit, predicate in reaching.items():
            reach = self._reach(predicate)
            if bucket in reach:
                left |= bit
            if bucket + 1 in reach:
                right |= bit
        return left, right

    def _merge(self, bucket: int, ends_max: int) -> None:
        """Join a bucket with the next when both are nearly empty: values move on, buckets must not pile up."""
        if 0 <= bucket < len(self.bounds) and 4 * (self.ends[bucket] + self.ends[bucket + 1]) <= ends_max:
            del self.bounds[bucket]
            self.masks[bucket : bucket + 2] = [self.masks[bucket] | self.masks[bucket + 1]]
            self.ends[bucket : bucket + 2] = [self.ends[bucket] + self.ends[bucket + 1]]
            self.limits[bucket : bucket + 2] = [ends_max]

    def _reach(self, predicate: Predicate) -> Collection[int]:
        """The buckets with a value that the predicate admits."""
        bounds = self.bounds
        if type(predicate) is Interval:
            first = 0 if predicate.low is None else bisect_right(bounds, predicate.low)
            last = len(bounds) if predicate.high is None else bisect_right(bounds, predicate.high)
            return range(first, last + 1)
        assert type(predicate) is OneOf
        return {bisect_right(bounds, value) for value in predicate.values}


def _look_up(columns: Sequence[Column]) -> Callable[..., int]:
    """The intersection of one bucket per column; written out for the usual numbers of columns, for speed."""
    bounds, masks = [column.bounds for column in columns], [column.masks for column in columns]
    find = bisect_right
    if len(columns) == 1:
        (a,), (p,) = bounds, masks
        return lambda x: p[find(a, x)]
    if len(columns) == 2:
        (a, b), (p, q) = bounds, masks
        return lambda x, y: p[find(a, x)] & q[find(b, y)]
    if len(columns) == 3:
        (a, b, c), (p, q, r) = bounds, masks
        return lambda x, y, z: p[find(a, x)] & q[find(b, y)] & r[find(c, z)]
    return lambda *point: reduce(and_, map(getitem, masks, map(find, bounds, point)))


def _ends(predicate: Predicate) -> Sequence[Value]:
    """Where the predicate begins and ends; nothing for a set of numbers and strings, which has no order."""
    if type(predicate) is Interval:
        return [end for end in (predicate.low, predicate.high) if end is not None]
    assert type(predicate) is OneOf
    return predicate.values if world(predicate) != MIXED else ()
