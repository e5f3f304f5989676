"""Records whose filters have ranges: which of them contain an event, without asking each.

A `Box` holds up to `BOX_RECORDS` records, each a bit. Per attribute the line of values is cut into
buckets, and each bucket has the set of records that reach into it as one integer; an event's
candidates are the intersection of one bucket per attribute, and only these are asked exactly. Filters
of any shape share a box, since an attribute also knows which records do not constrain it: with a box
for each shape, an event would pay for every subset of its attributes that somebody subscribed to.

A bucket in which too many ranges begin or end is split, and nearly empty neighbours are joined, so
the buckets follow the records, and no insertion costs more than a box's worth of work.

Pure, and ignorant of stamps and transactions: `broker.index` decides what a match means.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any

from broker.filters import Event, Filter, Interval, OneOf, Predicate, Value

if TYPE_CHECKING:
    from broker.table import Record

BOX_RECORDS = 8192
"""Bounds the work of one insertion: to set a bit is to copy an integer of this many bits."""
FEW_RECORDS = 8
"""Up to here it is faster to ask every record than to keep a box."""
BUCKET_ENDS_MIN = 16
BUCKET_SHARE = 64
"""A bucket is split when it has more ends than `BUCKET_ENDS_MIN` plus this part of the box's records."""
VIEWS_MAX = 128

SLOTS = tuple(range(BOX_RECORDS))
"""One integer object per slot, shared by all the records that lie in such a slot."""

EXACT, NUMBERS, STRINGS, PRESENT, MIXED = "=", "n", "s", "*", "?"

Names = tuple[str, ...]
Axis = tuple[str, str]
"""An attribute's name, and which kind of values: those of another kind have a line of their own."""
View = tuple[int, list[tuple[str, MutableSequence[Any], list[int], int]]]
"""For events with certain names: the records that need no others, and (name, bounds, masks, free) of columns."""


def world(predicate: Predicate) -> str:
    """What kind of value a predicate speaks of: one letter, so that a filter's shape is a word."""
    if type(predicate) is Interval:
        end = predicate.low if predicate.low is not None else predicate.high
        return PRESENT if end is None else STRINGS if isinstance(end, str) else NUMBERS
    if type(predicate) is OneOf:
        strings = {isinstance(value, str) for value in predicate.values}
        return MIXED if len(strings) > 1 else STRINGS if True in strings else NUMBERS
    return EXACT


def contains(filter_: Filter, event: Event) -> bool:
    """The answer of `Filter.matches` in half the time, except that NaN lies in no interval with an end."""
    try:
        for name, predicate in zip(filter_.names, filter_.predicates, strict=True):
            value: Any = event.get(name)
            if value is None:
                return False
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
    except TypeError:  # a number beside a string: two worlds
        return False
    return True


def ranges(filter_: Filter) -> dict[Axis, Predicate]:
    """A filter's predicates that are more than a value."""
    return {
        (name, letter): predicate
        for name, predicate in zip(filter_.names, filter_.predicates, strict=True)
        if (letter := world(predicate)) != EXACT
    }


class Pile:
    """Records with a range on one and the same axis, the lead: a few in a list, more in boxes."""

    __slots__ = ("_boxes", "_few", "_lead")

    def __init__(self, lead: Axis) -> None:
        self._lead = lead
        self._few: list[Record] = []
        self._boxes: list[Box] = []

    def __bool__(self) -> bool:
        return bool(self._few or self._boxes)

    def add(self, record: Record) -> None:
        if not self._boxes and len(self._few) < FEW_RECORDS:
            self._few.append(record)
            return
        for each in (*self._few, record):
            self._box_with_room().add(each)
        self._few.clear()

    def remove(self, record: Record) -> None:
        if not self._boxes:
            self._few.remove(record)
            return
        box = next(box for box in self._boxes if box.has(record))
        box.remove(record)
        if not len(box):
            self._boxes.remove(box)

    def collect(self, event: Event, names: Names, found: set[str]) -> list[Record]:
        """Add to `found` the hops of clients that want the event; return what is in doubt.

        In doubt are the matching records of clients with holes. Hops that are in `found` already are
        not looked at again: one client per hop is enough.
        """
        doubtful: list[Record] = []
        for record in self._few:
            home = record.home
            if home.hop not in found and contains(record.filter, event):
                if home.holes is None:
                    found.add(home.hop)
                else:
                    doubtful.append(record)
        for box in self._boxes:
            candidates = box.candidates(event, names)
            if candidates:
                box.collect(candidates, event, found, doubtful)
        return doubtful

    def matching(self, event: Event, names: Names) -> Iterator[Record]:
        """The records that contain the event."""
        for record in self._few:
            if contains(record.filter, event):
                yield record
        for box in self._boxes:
            for record in box.pick(box.candidates(event, names)):
                if contains(record.filter, event):
                    yield record

    def _box_with_room(self) -> Box:
        for box in reversed(self._boxes):
            if len(box) < BOX_RECORDS:
                return box
        self._boxes.append(Box(self._lead))
        return self._boxes[-1]


class Box:
    """Up to `BOX_RECORDS` records, with a column of buckets for each axis that one of them constrains."""

    __slots__ = ("_columns", "_free", "_hops", "_present", "_records", "_views")

    def __init__(self, lead: Axis) -> None:
        self._columns = {lead: Column(*lead, free=0)}
        self._records: list[Record | None] = []
        self._free: list[int] = []
        self._present = 0
        self._hops: dict[str, int] = {}
        self._views: dict[Names, View] = {}

    def __len__(self) -> int:
        return len(self._records) - len(self._free)

    def has(self, record: Record) -> bool:
        return record.slot < len(self._records) and self._records[record.slot] is record

    def add(self, record: Record) -> None:
        self._views.clear()
        bit = self._seat(record)
        axes = ranges(record.filter)
        for axis in axes:
            if axis not in self._columns:
                self._columns[axis] = Column(*axis, free=self._present)
        for axis, column in self._columns.items():
            predicate = axes.get(axis)
            if predicate is None:
                column.free |= bit
            else:
                full = column.add(predicate, bit)
                if full is not None:
                    self._relieve(column, full)
        self._present |= bit

    def remove(self, record: Record) -> None:
        self._views.clear()
        bit = 1 << record.slot
        axes = ranges(record.filter)
        for axis, column in self._columns.items():
            predicate = axes.get(axis)
            if predicate is None:
                column.free ^= bit
            else:
                column.remove(predicate, bit, self._ends_max(column))
        for axis in axes:
            if not self._columns[axis].records:
                del self._columns[axis]
        hop = record.home.hop
        self._hops[hop] ^= bit
        if not self._hops[hop]:
            del self._hops[hop]
        self._present ^= bit
        self._records[record.slot] = None
        self._free.append(record.slot)

    def candidates(self, event: Event, names: Names) -> int:
        """The records that may contain the event, as bits; `names` are those of the event."""
        view = self._views.get(names)
        if view is None:
            view = self._view(names)
        eligible, columns = view
        for name, bounds, masks, free in columns:
            if not eligible:
                return 0
            try:
                eligible &= masks[bisect_right(bounds, event[name])] | free
            except TypeError:  # a string on a line of numbers, or the other way round
                eligible &= free
        return eligible

    def collect(self, candidates: int, event: Event, found: set[str], doubtful: list[Record]) -> None:
        """See `Pile.collect`."""
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

    def pick(self, bits: int) -> Iterator[Record]:
        """The records whose bits are set."""
        while bits:
            slot = bits.bit_length() - 1
            record = self._records[slot]
            assert record is not None
            yield record
            bits ^= 1 << slot

    def _seat(self, record: Record) -> int:
        """Give the record a slot, and return its bit."""
        if self._free:
            record.slot = self._free.pop()
            self._records[record.slot] = record
        else:
            record.slot = SLOTS[len(self._records)]
            self._records.append(record)
        bit = 1 << record.slot
        hop = record.home.hop
        self._hops[hop] = self._hops.get(hop, 0) | bit
        return bit

    def _view(self, names: Names) -> View:
        """What matters for events with these names: who needs no others, and the columns to look at.

        Kept until the box changes. The lead comes first: it is the column that all records constrain.
        """
        if len(self._views) >= VIEWS_MAX:
            self._views.clear()
        eligible = self._present
        columns = []
        for column in self._columns.values():
            if column.name not in names:
                eligible &= column.free
            elif column.ordered:
                columns.append((column.name, column.bounds, column.masks, column.free))
        view = self._views[names] = eligible, (columns if eligible else [])
        return view

    def _relieve(self, column: Column, bucket: int) -> None:
        """Split a bucket that has reached its limit, unless the box has grown since that was set."""
        ends_max = self._ends_max(column)
        if column.ends[bucket] <= ends_max:
            column.limits[bucket] = ends_max
            return
        filters = {1 << record.slot: record.filter for record in self.pick(column.masks[bucket])}
        reaching = {bit: f.predicates[f.names.index(column.name)] for bit, f in filters.items()}
        column.split(bucket, reaching, ends_max)

    def _ends_max(self, column: Column) -> int:
        """Many columns share a box's memory; those that more records constrain get more buckets."""
        return BUCKET_ENDS_MIN + (len(self) + column.records) // BUCKET_SHARE


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
        self.ends = [0]
        """How many ranges begin or end in each bucket."""
        self.limits = [BUCKET_ENDS_MIN]
        """How many may do so before a split is tried."""

    def add(self, predicate: Predicate, bit: int) -> int | None:
        """Returns a bucket that has too many ends, if there is one."""
        self.records += 1
        bounds, masks, ends = self.bounds, self.masks, self.ends
        for bucket in self._reach(predicate):
            masks[bucket] |= bit
        full = None
        for end in self._ends(predicate):
            bucket = bisect_right(bounds, end)
            ends[bucket] += 1
            if ends[bucket] > self.limits[bucket]:
                full = bucket
        return full

    def remove(self, predicate: Predicate, bit: int, ends_max: int) -> None:
        self.records -= 1
        for bucket in self._reach(predicate):
            self.masks[bucket] ^= bit
        for end in self._ends(predicate):
            bucket = bisect_right(self.bounds, end)
            self.ends[bucket] -= 1
            self._join(bucket, ends_max)
            self._join(min(bucket, len(self.bounds)) - 1, ends_max)

    def split(self, bucket: int, reaching: dict[int, Predicate], ends_max: int) -> None:
        """Cut a bucket at the median of its ends; `reaching` is what lies in it, by bit."""
        inside = sorted(
            end
            for predicate in reaching.values()
            for end in self._ends(predicate)
            if bisect_right(self.bounds, end) == bucket
        )
        middle = min(max(len(inside) // 2, bisect_right(inside, inside[0])), len(inside) - 1)
        # A large integer may be rounded here: a bound need not be an end, it need only separate some.
        bound = float(inside[middle]) if isinstance(self.bounds, array) else inside[middle]
        left = bisect_left(inside, bound)
        if not 0 < left < len(inside):  # the ends are all one value: look again when they are twice as many
            self.limits[bucket] = 2 * len(inside)
            return
        self.bounds.insert(bucket, bound)
        self.ends[bucket : bucket + 1] = [left, len(inside) - left]
        self.limits[bucket : bucket + 1] = [ends_max, ends_max]
        self.masks[bucket : bucket + 1] = self._halves(bucket, reaching)

    def _halves(self, bucket: int, reaching: dict[int, Predicate]) -> tuple[int, int]:
        left = right = 0
        for bit, predicate in reaching.items():
            reach = self._reach(predicate)
            if bucket in reach:
                left |= bit
            if bucket + 1 in reach:
                right |= bit
        return left, right

    def _join(self, bucket: int, ends_max: int) -> None:
        """Make one of a bucket and the next if both are nearly empty: values move on, buckets must not pile up."""
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

    def _ends(self, predicate: Predicate) -> Sequence[Value]:
        """Where the predicate begins and ends; a set that mixes numbers and strings has no order."""
        if type(predicate) is Interval:
            return [end for end in (predicate.low, predicate.high) if end is not None]
        assert type(predicate) is OneOf
        return predicate.values if self.ordered else ()
