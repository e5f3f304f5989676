"""What a client has taken back, when that is much: one look-up tells whether an event lies in it.

Nearly always all holes of a client are values of the same attributes. As long as that is so, their keys
also lie in one set: to ask a set is to touch one place, to ask a table several, and among a million
each of these is far away in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from broker.matching.buckets import EXACT, Names, world
from broker.matching.records import Record
from broker.matching.table import Table, picker
from broker.protocol.filters import Event


class Holes(Table):
    __slots__ = ("_names", "key_of", "keys")

    def __init__(self, records: Iterable[Record]) -> None:
        self._names: Names | None = None
        """Of the attributes whose values are the keys."""
        self.key_of: Callable[[Event], Hashable] | None = None
        """Takes out of an event what is among the `keys` if the event lies in a hole, and nowhere else.
        Raises KeyError where the event lacks an attribute that all holes name. None: there are no such keys."""
        self.keys: set[Hashable] = set()
        super().__init__(records)

    def add(self, record: Record) -> None:
        super().add(record)
        names, predicates = record.filter.names, record.filter.predicates
        if self._names is None:
            self._names, self.key_of = names, picker(names)
        if self.key_of is None:
            return
        if names == self._names and all(world(predicate) == EXACT for predicate in predicates):
            self.keys.add(predicates if len(predicates) != 1 else predicates[0])
        else:
            self.key_of = None
            self.keys.clear()

    def remove(self, record: Record) -> None:
        super().remove(record)
        if self.key_of is not None:
            names = record.filter.names
            inside: Event = dict(zip(names, record.filter.predicates, strict=True))  # type: ignore[arg-type]
            if not self.has_any(inside, names):  # no other hole with the same values
                self.keys.discard(self.key_of(inside))
