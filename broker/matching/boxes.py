"""Records whose filters have ranges: which of them contain an event, without asking each.

A `Box` holds up to `BOX_RECORDS` records, each a bit. Per attribute the line of values is cut into
buckets, and each bucket has the set of records that reach into it as one integer; an event's
candidates are the intersection of one bucket per attribute, and only these are asked exactly. Filters
of any shape share a box, since an attribute also knows which records do not constrain it: with a box
for each shape, an event would pay for every subset of its attributes that somebody subscribed to.

A bucket in which too many ranges begin or end is split, and nearly empty neighbours are joined, so
the buckets follow the records, and no insertion costs more than a box's worth of work.

Pure, and ignorant of stamps and transactions: `broker.matching.index` decides what a match means.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, MutableSequence
from typing import TYPE_CHECKING, Any

from broker.matching.buckets import EXACT, Axis, Column, Hull, Names, ends_max, hull, world
from broker.protocol.filters import Event, Filter, Interval, OneOf

if TYPE_CHECKING:
    from broker.matching.records import Record

BOX_RECORDS = 8192
"""Bounds the work of one insertion: to set a bit is to copy an integer of this many bits."""
FEW_RECORDS = 4
"""Up to here it is faster to ask every record than to keep a box."""
VIEWS_MAX = 256

SLOTS = tuple(range(BOX_RECORDS))
"""One integer object per slot, shared by all the records that lie in such a slot."""

View = tuple[int, list[tuple[str, MutableSequence[Any], list[int], int]]]
"""For events with certain names: the records that need no others, and (name, bounds, masks, free) of columns."""


def contains(filter_: Filter, event: Event) -> bool:  # noqa: PLR0911 (a call for each predicate is slower)
    """The answer of `Filter.matches` in half the time, except that NaN lies in no interval with an end."""
    try:
        for name, predicate in zip(filter_.names, filter_.predicates):  # noqa: B905 (`strict` costs a quarter)
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

    __slots__ = ("_bits_of_hop", "_columns", "_hops", "_present", "_records", "_vacant", "_views")

    def __init__(self, lead: Axis) -> None:
        self._columns = {lead: Column(*lead, free=0)}
        self._records: list[Record | None] = []
        self._hops: list[str] = []
        """Of each slot: to skip a record, its hop must be known without touching it."""
        self._vacant: list[int] = []
        self._present = 0
        self._bits_of_hop: dict[str, int] = {}
        self._views: dict[Names, View] = {}

    def __len__(self) -> int:
        return len(self._records) - len(self._vacant)

    def has(self, record: Record) -> bool:
        return record.slot < len(self._records) and self._records[record.slot] is record

    def add(self, record: Record) -> None:
        self._views.clear()
        bit = self._seat(record)
        spans = _spans(record.filter)
        for axis in spans:
            if axis not in self._columns:
                self._columns[axis] = Column(*axis, free=self._present)
        for axis, column in self._columns.items():
            span = spans.get(axis)
            if span is None:
                column.free |= bit
            else:
                full = column.add(span, record.slot)
                if full is not None:
                    self._relieve(axis, column, full)
        self._present |= bit

    def remove(self, record: Record) -> None:
        self._views.clear()
        spans = _spans(record.filter)
        bit = self._unseat(record)
        for axis, column in self._columns.items():
            span = spans.get(axis)
            if span is None:
                column.free ^= bit
            else:
                column.remove(span, record.slot, self._limit(column))
        for axis in spans:
            if not self._columns[axis].records:
                del self._columns[axis]
        self._present ^= bit

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
        hops, bits_of_hop = self._hops, self._bits_of_hop
        while candidates:
            slot = candidates.bit_length() - 1
            hop = hops[slot]
            if hop not in found:
                record = self._records[slot]
                assert record is not None
                if not contains(record.filter, event):
                    candidates ^= 1 << slot
                    continue
                if record.home.holes is not None:
                    doubtful.append(record)
                    candidates ^= 1 << slot
                    continue
                found.add(hop)
            candidates ^= candidates & bits_of_hop[hop]

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
        hop = record.home.hop
        if self._vacant:
            record.slot = self._vacant.pop()
            self._records[record.slot] = record
            self._hops[record.slot] = hop
        else:
            record.slot = SLOTS[len(self._records)]
            self._records.append(record)
            self._hops.append(hop)
        bit = 1 << record.slot
        self._bits_of_hop[hop] = self._bits_of_hop.get(hop, 0) | bit
        return bit

    def _unseat(self, record: Record) -> int:
        slot, hop = record.slot, record.home.hop
        bit = 1 << slot
        self._records[slot] = None
        self._vacant.append(slot)
        self._bits_of_hop[hop] ^= bit
        if not self._bits_of_hop[hop]:
            del self._bits_of_hop[hop]
        return bit

    def _view(self, names: Names) -> View:
        """What matters for events with these names: who needs no others, and the columns to look at.

        Kept until the box changes. The lead comes first: it is the column that all records constrain.
        """
        if len(self._views) >= VIEWS_MAX:
            self._views.clear()
        eligible = self._present
        for column in self._columns.values():
            if column.name not in names:
                eligible &= column.free
        columns = [
            (column.name, column.bounds, column.masks, column.free)
            for column in self._columns.values()
            if column.ordered and column.name in names and eligible & ~column.free
        ]
        view = self._views[names] = eligible, columns
        return view

    def _relieve(self, axis: Axis, column: Column, bucket: int) -> None:
        """Split a bucket that has reached its limit, unless the box has grown since that was set."""
        limit = self._limit(column)
        if column.ends[bucket] <= limit:
            column.limits[bucket] = limit
            return
        ending = self.pick(column.ending(bucket))
        column.split(bucket, {record.slot: _span(record.filter, axis) for record in ending}, limit)

    def _limit(self, column: Column) -> int:
        return ends_max(len(self), column.records, len(self._columns))


def _spans(filter_: Filter) -> dict[Axis, Hull]:
    """How far a filter reaches on each of its axes; values that must be equal have been looked up already."""
    return {
        (name, letter): hull(predicate, letter)
        for name, predicate in zip(filter_.names, filter_.predicates, strict=True)
        if (letter := world(predicate)) != EXACT
    }


def _span(filter_: Filter, axis: Axis) -> Hull:
    name, letter = axis
    return hull(filter_.predicates[filter_.names.index(name)], letter)
