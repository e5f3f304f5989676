"""Records by the shape of their filters: which of them contain an event.

Filters whose attributes must equal certain values are looked up by these values. Without ranges, those
that name the same attributes form an `ExactGroup`, where a key leads to the record itself or to a
`Crowd` of equal ones. With ranges, those that agree in the names of such values and in their first range
form a `RangedGroup`, where a key leads to a `Pile` (`broker.matching.boxes`). Which groups can contain an event
depends only on the names of its attributes, so that is worked out once, as a plan, and kept until a
shape comes or a group goes. An exact and a ranged group by the same names are asked with one key. A set of
values counts as so many records with one value each.

`broker.matching.index` keeps one table of what clients want, and one per client of what it took back.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import Any

from broker.matching.boxes import Pile
from broker.matching.buckets import EXACT, MIXED, NUMBERS, STRINGS, Axis, Names, worlds_of
from broker.matching.records import NOWHERE, Record, stamp_of
from broker.protocol.filters import Event, Filter, OneOf, Predicate

PLANS_MAX = 1024
SHAPES_MAX = 1024
"""With more shapes, a plan goes by what all filters of a group name: to look at every shape would take long."""
PARTS_MAX = 256
"""Into so many records a record with sets of values may be taken apart."""


class Crowd:
    """Several records with the same filter, by hop."""

    __slots__ = ("home", "lanes")

    def __init__(self) -> None:
        self.home = NOWHERE
        """The answer, where none of it is in doubt; the index works it out and sets it."""
        self.lanes: dict[str, list[Record]] = {}

    def __iter__(self) -> Iterator[Record]:
        return (record for lane in self.lanes.values() for record in lane)

    def add(self, record: Record) -> None:
        lane = self.lanes.setdefault(record.home.hop, [])
        record.slot = len(lane)
        lane.append(record)
        self.home = NOWHERE

    def remove(self, record: Record) -> None:
        hop = record.home.hop
        lane = self.lanes[hop]
        last = lane.pop()
        if last is not record:
            lane[record.slot] = last
            last.slot = record.slot
        if not lane:
            del self.lanes[hop]
        self.home = NOWHERE

    def last_one(self) -> Record | None:
        """The record that is left, when only one is."""
        if len(self.lanes) > 1:
            return None
        (lane,) = self.lanes.values()
        return lane[0] if len(lane) == 1 else None


Key = Hashable
Cell = Record | Crowd
FindCell = Callable[[Key], Cell | None]
FindPile = Callable[[Key], Pile | None]
Step = tuple[Callable[[Event], Key], FindCell | None, FindPile | None]
"""How to take a key out of an event, and what to look up by it: one key serves two groups."""
Lookup = tuple[Names, Mapping[Key, Cell] | None, Mapping[Key, Pile] | None]
"""The same for many events: the names whose values make a key, and what is filed under it."""
LookupPlan = tuple[tuple[Step, ...], tuple[Pile, ...], tuple[Lookup, ...]]
"""The steps; the piles of those that require no value: they are in question for every event; the look-ups."""
NOWHERE_TO_ASK: LookupPlan = ((), (), ())
"""For events with names that no filter of the table can do with."""


class ExactGroup:
    """Filters with values and `anything()` on the same names, without ranges: a cell's records all match."""

    __slots__ = ("cells", "equal", "needed")

    def __init__(self, needed: Names, equal: Names) -> None:
        self.needed = needed
        self.equal = equal
        self.cells: dict[Key, Cell] = {}

    def __bool__(self) -> bool:
        return bool(self.cells)

    def add(self, key: Key, record: Record) -> None:
        cell = self.cells.setdefault(key, record)
        if cell is record:
            return
        if type(cell) is Record:
            crowd = self.cells[key] = Crowd()
            crowd.add(cell)
            cell = crowd
        assert type(cell) is Crowd
        cell.add(record)

    def remove(self, key: Key, record: Record) -> None:
        cell = self.cells[key]
        if cell is record:
            del self.cells[key]
            return
        assert type(cell) is Crowd
        cell.remove(record)
        left = cell.last_one()
        if left is not None:
            self.cells[key] = left


class RangedGroup:
    """Filters with values on the same names and a range on the same axis, the lead; beyond that they differ."""

    __slots__ = ("_lead", "equal", "needed", "piles", "records")

    def __init__(self, needed: Names, equal: Names, lead: Axis) -> None:
        self.needed = needed
        self.equal = equal
        self._lead = lead
        self.piles: dict[Key, Pile] = {}
        self.records = 0

    def __bool__(self) -> bool:
        return bool(self.piles)

    def add(self, key: Key, record: Record) -> None:
        pile = self.piles.get(key)
        if pile is None:
            pile = self.piles[key] = Pile(self._lead)
        pile.add(record)
        self.records += 1

    def remove(self, key: Key, record: Record) -> None:
        pile = self.piles[key]
        pile.remove(record)
        self.records -= 1
        if not pile:
            del self.piles[key]


class FilterShape:
    """A filter without its values: its names, and a letter for the kind of each predicate."""

    __slots__ = ("group", "group_key", "key_in", "names", "records")

    def __init__(self, names: Names, worlds: str, groups: dict[Hashable, Group]) -> None:
        self.names = names
        self.records = 0
        places = [place for place, letter in enumerate(worlds) if letter == EXACT]
        equal = tuple(names[place] for place in places)
        self.key_in: Callable[[Sequence[Predicate]], Key] = picker(places)
        if 1 < len(places) == len(names):
            self.key_in = _itself  # no second tuple beside the filter's own
        lead = _lead(names, worlds)
        self.group_key: Hashable = (names, worlds) if lead is None else (equal, lead)
        group = groups.get(self.group_key)
        if group is None:
            group = ExactGroup(names, equal) if lead is None else RangedGroup((*equal, lead[0]), equal, lead)
        self.group = group


Group = ExactGroup | RangedGroup


class LookupPlans(dict[Names, LookupPlan]):
    """By an event's names, how to ask the groups that can contain it; made when first asked for."""

    __slots__ = ("_groups", "_shapes")

    def __init__(
        self, shapes: Mapping[tuple[Names, str], FilterShape], groups: Mapping[Hashable, Group]
    ) -> None:
        self._shapes = shapes
        self._groups = groups

    def __reduce__(self) -> tuple[type[LookupPlans], tuple[object, object]]:
        """A copy makes its own plans."""
        return LookupPlans, (self._shapes, self._groups)

    def __missing__(self, names: Names) -> LookupPlan:
        if len(self) >= PLANS_MAX:
            self.clear()
        present = set(names)
        groups = [group for group in self._groups.values() if present.issuperset(group.needed)]
        if len(self._shapes) <= SHAPES_MAX:
            able = {shape.group for shape in self._shapes.values() if present.issuperset(shape.names)}
            groups = [group for group in groups if group in able]
        exact = [group for group in groups if isinstance(group, ExactGroup)]
        ranged = [group for group in groups if isinstance(group, RangedGroup)]
        # Where the most records are now, all hops are found the soonest.
        ranged.sort(key=lambda group: -group.records)
        lookups, piles = _lookups(exact, ranged), tuple(g.piles[()] for g in ranged if not g.equal)
        steps = tuple(_step(*lookup) for lookup in lookups)
        plan = self[names] = (steps, piles, lookups) if steps or piles else NOWHERE_TO_ASK
        return plan


class Table:
    """Records with filters of any shape."""

    __slots__ = ("_groups", "_parts", "_shapes", "_spare_shapes", "plans")

    def __init__(self, records: Iterable[Record] = (), spare_shapes: int = 0) -> None:
        self._spare_shapes = spare_shapes
        """Up to so many may stay when their last record has gone, for the next."""
        self._shapes: dict[tuple[Names, str], FilterShape] = {}
        self._groups: dict[Hashable, Group] = {}
        self._parts: dict[Record, list[Record]] = {}
        self.plans = LookupPlans(self._shapes, self._groups)
        for record in records:
            self.add(record)

    def __bool__(self) -> bool:
        return any(self._groups.values())

    def add(self, record: Record) -> None:
        if OneOf in map(type, record.filter.predicates):
            parts = self._parts[record] = _parts(record)
            for part in parts:
                self._add(part)
        else:
            self._add(record)

    def remove(self, record: Record) -> None:
        for part in self._parts.pop(record, (record,)):
            self._remove(part)

    def newest(self, event: Event, names: Names) -> Record | None:
        """Of the records that contain the event, the one with the largest stamp; `names` are the event's."""
        steps, piles, _ = self.plans[names]
        last: Record | None = None
        for key_of, find, find_pile in steps:
            key = key_of(event)
            if find is not None and (cell := find(key)) is not None:
                if isinstance(cell, Crowd):
                    cell = max(cell, key=stamp_of)
                if last is None or last.stamp < cell.stamp:
                    last = cell
            if find_pile is not None and (pile := find_pile(key)) is not None:
                piles = (*piles, pile)
        for pile in piles:
            for record in pile.matching(event, names):
                if last is None or last.stamp < record.stamp:
                    last = record
        return last

    def has_any(self, event: Event, names: Names) -> bool:
        """Whether some record contains the event. A record that is found is not looked at: among a million
        it is far away in memory."""
        steps, piles, _ = self.plans[names]
        for key_of, find, find_pile in steps:
            key = key_of(event)
            if find is not None and find(key) is not None:
                return True
            if find_pile is not None and (pile := find_pile(key)) is not None:
                piles = (*piles, pile)
        for pile in piles:
            for _ in pile.matching(event, names):
                return True
        return False

    def matching(self, event: Event, names: Names) -> Iterator[Record]:
        """The records that contain the event."""
        steps, piles, _ = self.plans[names]
        for key_of, find, find_pile in steps:
            key = key_of(event)
            if find is not None and (cell := find(key)) is not None:
                if isinstance(cell, Crowd):
                    yield from cell
                else:
                    yield cell
            if find_pile is not None and (pile := find_pile(key)) is not None:
                piles = (*piles, pile)
        for pile in piles:
            yield from pile.matching(event, names)

    def _add(self, record: Record) -> None:
        names, predicates = record.filter.names, record.filter.predicates
        worlds = worlds_of(predicates)
        shape = self._shapes.get((names, worlds))
        if shape is None:
            shape = self._shapes[names, worlds] = FilterShape(names, worlds, self._groups)
            if shape.group_key not in self._groups or len(self._shapes) <= SHAPES_MAX + 1:
                self._groups[shape.group_key] = shape.group
                self.plans.clear()
        if names is not shape.names:  # decoded from the wire, each filter brings names of its own
            record.filter = Filter(shape.names, predicates)
        shape.records += 1
        shape.group.add(shape.key_in(predicates), record)

    def _remove(self, record: Record) -> None:
        predicates = record.filter.predicates
        key = record.filter.names, worlds_of(predicates)
        shape = self._shapes[key]
        shape.group.remove(shape.key_in(predicates), record)
        shape.records -= 1
        if not shape.records and not self._may_stay(shape):
            del self._shapes[key]
            if not shape.group:
                del self._groups[shape.group_key]
                self.plans.clear()

    def _may_stay(self, shape: FilterShape) -> bool:
        return len(self._shapes) <= self._spare_shapes and type(shape.group) is ExactGroup


def _parts(record: Record) -> list[Record]:
    """One record for each value of a set, or each combination: values can be looked up, sets only searched.

    A set that would make too many is left as it is.
    """
    choices: list[tuple[Predicate, ...]] = []
    count = 1
    for predicate in record.filter.predicates:
        if type(predicate) is OneOf and count * len(predicate.values) <= PARTS_MAX:
            choices.append(predicate.values)
            count *= len(predicate.values)
        else:
            choices.append((predicate,))
    filters = [Filter(record.filter.names, chosen) for chosen in product(*choices)]
    return [Record(record.kind, record.client, record.stamp, f, home=record.home) for f in filters]


def _lookups(exact: Iterable[ExactGroup], ranged: Iterable[RangedGroup]) -> tuple[Lookup, ...]:
    """Into these groups; those by the same names have the key in common, as far as they go in pairs."""
    waiting: defaultdict[Names, deque[Mapping[Key, Pile]]] = defaultdict(deque)
    for group in ranged:
        if group.equal:
            waiting[group.equal].append(group.piles)
    lookups: list[Lookup] = []
    for cells in exact:
        partners = waiting.get(cells.equal)
        lookups.append((cells.equal, cells.cells, partners.popleft() if partners else None))
    for equal, piles in waiting.items():
        lookups += [(equal, None, by_key) for by_key in piles]
    return tuple(lookups)


def _step(names: Names, cells: Mapping[Key, Cell] | None, piles: Mapping[Key, Pile] | None) -> Step:
    return picker(names), None if cells is None else cells.get, None if piles is None else piles.get


def picker(keys: Sequence[Any]) -> Callable[[Any], Key]:
    """Takes one value bare, several as a tuple, none as the empty tuple."""
    return itemgetter(*keys) if keys else _nothing


def _lead(names: Names, worlds: str) -> Axis | None:
    """The first axis with a range, or else the first with a set that has no order; None: no ranges."""
    axes = list(zip(names, worlds, strict=True))
    return next((axis for kinds in (NUMBERS + STRINGS, MIXED) for axis in axes if axis[1] in kinds), None)


def _nothing(_: object) -> Key:
    return ()


def _itself(predicates: Sequence[Predicate]) -> Key:
    assert type(predicates) is tuple
    return predicates
