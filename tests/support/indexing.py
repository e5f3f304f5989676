"""Records for the tests of the matching index, and what must be left of them in the end."""

from __future__ import annotations

from collections.abc import Mapping

from broker.matching.index import Index
from broker.matching.records import Record
from broker.matching.table import NOWHERE_TO_ASK
from broker.protocol.filters import make_filter
from broker.protocol.vocabulary import NO_KEY, Kind, Stamp

CLIENTS = {"c1": "north", "c2": "north", "c3": "south", "c4": "east"}
"""Four clients, each with the hop that it lies behind."""


def stamp(number: int) -> Stamp:
    return (NO_KEY, 0, 1, number)


def record(
    kind: Kind, client: str, number: int, constraints: Mapping[str, object], tag: str | None = None
) -> Record:
    return Record(kind, client, stamp(number), make_filter(constraints), tag)


def filled(*records: Record) -> Index:
    index = Index()
    for each in records:
        index.add(each, CLIENTS[each.client])
    return index


def assert_nothing_left(index: Index) -> None:
    assert len(index) == 0
    assert list(index) == []
    for name in ("_clients", "_hops", "_tagged", "_answers"):
        assert not getattr(index, name), name
    assert set(index.plans.values()) <= {NOWHERE_TO_ASK}
    assert not index._wanted
    assert not index.undecided
