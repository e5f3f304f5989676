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
RangedStep = tuple[Callable[[Event], Key], Callable[[Key], Pile | None], PointOf]
Plan = tuple[tuple[ExactStep, ...], tuple[RangedStep, ...]]
Shape = tuple[tuple[str, ...], str]
"""The names of a filter's attributes, and a letter for the kind of each predicate."""


class Group:
    """Records whose filters name the same attributes in the same way."""

    __slots__ = ("key_in", "key_of", "names")

    def __init__(self, names: tuple[str, ...], worlds: str) -> None:
        self.names = names
        equal = [place for place, letter in enumerate(worlds) if letter == EXACT]
        self.key_of: Callable[[Event], Key] = _picker([names[place] for place in equal])
        self.key_in: Callable[[Sequence[Predicate]], Key] = _picker(equal)
        if 1 < len(equal) == len(names):
            self.key_in = _itself  # no second tuple beside the filter's own


class ExactGroup(Group):
    """Its filters have values and `anything()`, no ranges: a cell's records all contain the event."""

    __slots__ = ("cells",)

    def __init__(self, names: tuple[str, ...], worlds: str) -> None:
        super().__init__(names, worlds)
        self.cells: dict[Key, Cell] = {}

    def __bool__(self) -> bool:
        return bool(self.cells)

    def add(self, record: Record) -> None:
        key = self.key_in(record.filter.predicates)
        cell = self.cells.setdefault(key, record)
        if cell is record:
            return
        if type(cell) is Record:
            crowd = self.cells[key] = Crowd()
            crowd.add(cell)
            cell = crowd
        assert type(cell) is Crowd
        cell.add(record)

    def remove(self, record: Record) -> None:
        key = self.key_in(record.filter.predicates)
        cell = self.cells[key]
        if cell is record:
            del self.cells[key]
            return
        assert type(cell) is Crowd
        cell.remove(record)
        left = cell.last_one()
        if left is not None:
            self.cells[key] = left


class RangedGroup(Group):
    """Its filters have at least one range."""

    __slots__ = ("piles", "point_of", "ranged")

    def __init__(self, names: tuple[str, ...], worlds: str) -> None:
        super().__init__(names, worlds)
        self.ranged = [place for place, letter in enumerate(worlds) if letter not in (EXACT, PRESENT)]
        self.point_of = _tuple_picker([names[place] for place in self.ranged])
        self.piles: dict[Key, Pile] = {}

    def __bool__(self) -> bool:
        return bool(self.piles)

    def add(self, record: Record) -> None:
        key = self.key_in(record.filter.predicates)
        pile = self.piles.get(key)
        if pile is None:
            pile = self.piles[key] = Pile()
        pile.add(record, self.ranged)

    def remove(self, record: Record) -> None:
        key = self.key_in(record.filter.predicates)
        pile = self.piles[key]
        pile.remove(record, self.ranged)
        if not pile:
            del self.piles[key]


class Plans(dict[tuple[str, ...], Plan]):
    """By an event's names, how to ask the groups that can contain it; made when first asked for."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Mapping[Shape, ExactGroup | RangedGroup]) -> None:
        self._groups = groups

    def __missing__(self, names: tuple[str, ...]) -> Plan:
        if len(self) >= PLANS_MAX:
            self.clear()
        present = set(names)
        exact: list[ExactStep] = []
        ranged: list[RangedStep] = []
        for group in self._groups.values():
            if not present.issuperset(group.names):
                continue
            if isinstance(group, ExactGroup):
                exact.append((group.key_of, group.cells.get))
            else:
                ranged.append((group.key_of, group.piles.get, group.point_of))
        plan = self[names] = tuple(exact), tuple(ranged)
        return plan


class Table:
    """Records of any shape."""

    __slots__ = ("_groups", "plans")

    def __init__(self) -> None:
        self._groups: dict[Shape, ExactGroup | RangedGroup] = {}
        self.plans = Plans(self._groups)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, record: Record) -> None:
        names, predicates = record.filter.names, record.filter.predicates
        worlds = "".join(map(world, predicates))
        group = self._groups.get((names, worlds))
        if group is None:
            kind = ExactGroup if set(worlds) <= {EXACT, PRESENT} else RangedGroup
            group = self._groups[names, worlds] = kind(names, worlds)
            self.plans.clear()
        if names is not group.names:  # decoded from the wire, each filter brings names of its own
            record.filter = Filter(group.names, predicates)
        group.add(record)

    def remove(self, record: Record) -> None:
        shape = record.filter.names, "".join(map(world, record.filter.predicates))
        group = self._groups[shape]
        group.remove(record)
        if not group:
            del self._groups[shape]
            self.plans.clear()

    def matching(self, event: Event) -> Iterator[Record]:
        """The records that contain the event."""
        exact, ranged = self.plans[tuple(event)]
        for key_of, find in exact:
            cell = find(key_of(event))
            if type(cell) is Record:
                yield cell
            elif cell is not None:
                yield from cell  # type: ignore[misc]
        for key_of, find_pile, point_of in ranged:
            pile = find_pile(key_of(event))
            if pile is not None:
                yield from pile.matching(event, point_of)


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
