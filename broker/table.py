"""Records by the shape of their filters: which of them contain an event.

Records whose filters name the same attributes in the same way form a `Group`; in a group, a cell is
found by the values of the attributes that must be equal. What lies in one cell differs at most in
ranges and is a `Pile`; without ranges it is the record itself, or a `Crowd` of them. Which groups
can contain an event depends only on the names of its attributes, so that is worked out once (a plan)
and kept until a group comes or goes.

`broker.index` keeps one table of what clients want, and one per client of what it took back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from msgspec import Struct, field

from broker.boxes import EXACT, PRESENT, Pile, PointOf, world
from broker.filters import Event, Filter, Predicate
from broker.wire import Kind, Stamp

PLANS_MAX = 1024


class Home(Struct, gc=False, eq=False):
    """Where a client lies, and what it has taken back.

    It does not know the client's records, which know it: a cycle would outlive its index.
    """

    client: str
    hop: str
    hops: tuple[str, ...]
    """The hop as an answer that is ready to be returned."""
    holes: list[Record] | Table | None = None


NOWHERE = Home("", "", (), [])
"""Home of a record that is in no index, and of every hole. Not without holes: never an answer as it stands."""


class Record(Struct, gc=False, eq=False, weakref=False):
    """What one client asked for, or took back, at one moment; `sent` and `tag` alone may change."""

    kind: Kind
    client: str
    stamp: Stamp
    filter: Filter
    tag: str | None = None
    """The undecided transaction that wrote it."""
    sent: int = 0
    """Bit set of neighbours that it was sent to; owned by routing."""
    home: Home = field(default_factory=lambda: NOWHERE)
    """Owned by the index."""
    slot: int = 0
    """Its place among its like; owned by the index."""

    @property
    def positive(self) -> bool:
        return self.kind in ("sub", "adv")


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
ExactStep = tuple[Callable[[Event], Key], Callable[[Key], Cell | None]]
RangedStep = tuple[Callable[[Event], Key], Callable[[Key], Pile | None]]
Plan = tuple[tuple[ExactStep, ...], tuple[RangedStep, ...]]


class ExactGroup:
    """Filters with values and `anything()` on the same names, without ranges: a cell's records all match."""

    __slots__ = ("cells", "key_of", "needed", "shapes")

    def __init__(self, needed: Names, equal: Names) -> None:
        self.needed = needed
        self.key_of: Callable[[Event], Key] = _picker(equal)
        self.cells: dict[Key, Cell] = {}
        self.shapes = 0

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

    __slots__ = ("key_of", "lead", "needed", "piles", "shapes")

    def __init__(self, needed: Names, equal: Names, lead: Axis) -> None:
        self.needed = needed
        self.key_of: Callable[[Event], Key] = _picker(equal)
        self.lead = lead
        self.piles: dict[Key, Pile] = {}
        self.shapes = 0

    def add(self, key: Key, record: Record) -> None:
        pile = self.piles.get(key)
        if pile is None:
            pile = self.piles[key] = Pile(self.lead)
        pile.add(record)

    def remove(self, key: Key, record: Record) -> None:
        pile = self.piles[key]
        pile.remove(record)
        if not pile:
            del self.piles[key]


class Shape:
    """A filter without its values: names, and a letter for the kind of each predicate."""

    __slots__ = ("equal", "group_key", "key_in", "lead", "names", "records")

    def __init__(self, names: Names, worlds: str) -> None:
        self.names = names
        places = [place for place, letter in enumerate(worlds) if letter == EXACT]
        self.equal = tuple(names[place] for place in places)
        self.key_in: Callable[[Sequence[Predicate]], Key] = _picker(places)
        if 1 < len(places) == len(names):
            self.key_in = _itself  # no second tuple beside the filter's own
        axes = [axis for axis in zip(names, worlds, strict=True) if axis[1] not in (EXACT, PRESENT)]
        ordered = [axis for axis in axes if axis[1] != MIXED]
        self.lead: Axis | None = next(iter(ordered + axes), None)
        self.records = 0


class Plans(dict[Names, Plan]):
    """By an event's names, how to ask the groups that can contain it; made when first asked for."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Mapping[object, ExactGroup | RangedGroup]) -> None:
        self._groups = groups

    def __missing__(self, names: Names) -> Plan:
        if len(self) >= PLANS_MAX:
            self.clear()
        present = set(names)
        exact: list[ExactStep] = []
        ranged: list[RangedStep] = []
        for group in self._groups.values():
            if not present.issuperset(group.needed):
                continue
            if isinstance(group, ExactGroup):
                exact.append((group.key_of, group.cells.get))
            else:
                ranged.append((group.key_of, group.piles.get))
        plan = self[names] = tuple(exact), tuple(ranged)
        return plan


class Table:
    """Records with filters of any shape."""

    __slots__ = ("_groups", "_shapes", "plans")

    def __init__(self) -> None:
        self._shapes: dict[tuple[Names, str], Shape] = {}
        self._groups: dict[object, ExactGroup | RangedGroup] = {}
        self.plans = Plans(self._groups)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, record: Record) -> None:
        pass

    def matching(self, event: Event) -> Iterator[Record]:
        """The records that contain the event."""
        names = tuple(event)
        exact, ranged = self.plans[names]
        for key_of, find in exact:
            cell = find(key_of(event))
            if type(cell) is Record:
                yield cell
            elif cell is not None:
                yield from cell  # type: ignore[misc]
        for key_of, find_pile in ranged:
            pile = find_pile(key_of(event))
            if pile is not None:
                yield from pile.matching(event, names)


def newest(records: Iterable[Record]) -> Record | None:
    """The record with the largest stamp: among those of one client that contain an event, it decides."""
    return max(records, key=_stamp, default=None)


_stamp: Callable[[Record], Stamp] = attrgetter("stamp")


def _picker(keys: Sequence[Any]) -> Callable[[Any], Key]:
    """Takes one value bare, several as a tuple, none as the empty tuple."""
    return itemgetter(*keys) if keys else _nothing


def _tuple_picker(keys: Sequence[str]) -> PointOf:
    if len(keys) > 1:
        return itemgetter(*keys)
    (key,) = keys
    return lambda event: (event[key],)


def _nothing(_: object) -> Key:
    return ()


def _itself(predicates: Sequence[Predicate]) -> Key:
    assert isinstance(predicates, tuple)
    return predicates
