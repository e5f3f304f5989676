"""What the index files: records, and the clients that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from broker.matching.boxes import contains
from broker.matching.buckets import Names
from broker.protocol.filters import Event, Filter
from broker.protocol.vocabulary import Kind, Stamp

if TYPE_CHECKING:
    from broker.matching.holes import Holes


class RoutingError(Exception):
    """A record that the tables cannot take; the text says why."""


class Few(list["Record"]):
    """Holes of a client that has only a few: a table for them would take more memory than they do."""

    __slots__ = ()
    key_of: None = None
    keys: tuple[()] = ()
    """See `broker.matching.holes`: there are no keys to look for."""

    def add(self, record: Record) -> None:
        self.append(record)

    def newest(self, event: Event, names: Names) -> Record | None:
        """What `Table.newest` answers; here the names are of no use."""
        last = None
        for record in self:
            if contains(record.filter, event) and (last is None or last.stamp < record.stamp):
                last = record
        return last

    def has_any(self, event: Event, names: Names) -> bool:
        for record in self:  # noqa: SIM110 (a generator is slower than these few)
            if contains(record.filter, event):
                return True
        return False


class Home(Struct, gc=False, eq=False):
    """Where a client lies, and what it has taken back.

    It does not know the client's records, which know it: a cycle would outlive its index.
    """

    client: str
    hop: str
    hops: tuple[str, ...]
    """The hop as an answer that is ready to be returned."""
    holes: Few | Holes | None = None
    first_hole: Stamp | None = None
    """No hole is older: for what is older still, any hole around an event decides."""

    def __reduce__(self) -> Any:
        return "NOWHERE" if self is NOWHERE else super().__reduce__()


NOWHERE = Home("", "", (), Few())
"""Home of a record that is in no index, and of every hole. Not without holes: never an answer as it stands."""


class Record(Struct, gc=False, eq=False, weakref=False):
    """What one client asked for, or took back, at one moment; `sent` and `tag` alone may change."""

    kind: Kind
    client: str
    stamp: Stamp
    filter: Filter
    tag: str | None = None
    """The undecided transaction that wrote it."""
    step: int = 0
    """Its number in its transaction's plan, if it has one."""
    writer: str = ""
    """That transaction: it may have ended here, and another broker may still wait for the step."""
    sent: int = 0
    """Bit set of neighbours that it was sent to; owned by routing."""
    home: Home = field(default_factory=lambda: NOWHERE)
    """Owned by the index."""
    slot: int = 0
    """Its place among its like; owned by the index."""

    @property
    def positive(self) -> bool:
        return self.kind in ("sub", "adv")


stamp_of: Callable[[Record], Stamp] = attrgetter("stamp")


class ClientRecords(Struct, gc=False, eq=False):
    """A client and its records, committed and tagged."""

    home: Home
    records: dict[Stamp, Record] | Record
    """Many clients have one record, and a dict for it would take more memory than the record."""
    ordered: bool = True
    """Whether the records came in the order of their stamps."""

    def __len__(self) -> int:
        return len(self.records) if isinstance(self.records, dict) else 1

    def get(self, stamp: Stamp) -> Record | None:
        records = self.records
        if isinstance(records, dict):
            return records.get(stamp)
        return records if records.stamp == stamp else None

    def add(self, record: Record) -> None:
        records = self.records
        if not isinstance(records, dict):
            records = self.records = {records.stamp: records}
        if record.stamp < next(reversed(records)):
            self.ordered = False
        records[record.stamp] = record

    def remove(self, record: Record) -> bool:
        """Whether any record is left."""
        records = self.records
        if not isinstance(records, dict):
            return False
        del records[record.stamp]
        if len(records) == 1:
            (self.records,) = records.values()
            self.ordered = True
        return True

    def in_order(self) -> list[Record]:
        return list(self._sorted().values())

    def newer(self, stamp: Stamp) -> list[Record]:
        """Those with a larger stamp, from the newest back; the others are not looked at."""
        return list(takewhile(lambda record: record.stamp > stamp, reversed(self._sorted().values())))

    def _sorted(self) -> dict[Stamp, Record]:
        records = self.records
        if not isinstance(records, dict):
            return {records.stamp: records}
        if not self.ordered:
            records = self.records = dict(sorted(records.items()))
            self.ordered = True
        return records
