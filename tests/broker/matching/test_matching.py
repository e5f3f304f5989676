"""The example of docs/matching.md, built and asked."""

from __future__ import annotations

import pytest

from broker.matching.boxes import Pile
from broker.matching.buckets import NUMBERS, Column
from broker.matching.index import Index
from broker.matching.records import Few, Record
from broker.matching.table import Crowd, ExactGroup, RangedGroup
from broker.protocol.filters import Event, at_least, between
from tests.support.indexing import record

HOPS = {"A": "client:A", "B": "client:B", "D": "broker:b2", "M": "client:M", "L": "broker:b3"}


def the_example() -> Index:
    index = Index()
    for each in (
        record("sub", "A", 1, {"process": "p1", "instance": "x1"}),
        record("sub", "B", 2, {"process": "p1", "instance": "x1"}),
        record("sub", "D", 3, {"process": "p1"}),
        record("usub", "D", 4, {"process": "p1", "instance": "x1"}),
        record("sub", "M", 5, {"process": "p1", "step": between(1, 9)}),
        record("sub", "L", 6, {"step": at_least(5)}),
    ):
        index.add(each, HOPS[each.client])
    return index


def test_the_records_lie_where_they_are_drawn() -> None:
    index = the_example()
    (crowds, records, piles, rest) = index._wanted._groups.values()
    assert isinstance(crowds, ExactGroup)
    assert isinstance(records, ExactGroup)
    crowd, alone = crowds.cells["x1", "p1"], records.cells["p1"]
    assert isinstance(crowd, Crowd)
    assert {hop: [r.stamp[3] for r in lane] for hop, lane in crowd.lanes.items()} == {
        "client:A": [1],
        "client:B": [2],
    }
    assert isinstance(alone, Record)
    assert alone.stamp[3] == 3
    assert isinstance(alone.home.holes, Few)
    assert [hole.stamp[3] for hole in alone.home.holes] == [4]
    assert isinstance(piles, RangedGroup)
    assert isinstance(rest, RangedGroup)
    assert (piles.equal, rest.equal) == (("process",), ())
    assert all(isinstance(pile, Pile) for pile in (piles.piles["p1"], rest.piles[()]))


def test_the_plan_has_the_steps_that_are_drawn() -> None:
    index = the_example()
    _, piles, lookups = index.plans["process", "instance", "step"]
    assert [(names, cells is not None, by_key is not None) for names, cells, by_key in lookups] == [
        (("instance", "process"), True, False),
        (("process",), True, True),
    ]
    assert len(piles) == 1


@pytest.mark.parametrize(
    ("event", "hops"),
    [
        ({"process": "p1", "instance": "x1", "step": 3}, {"client:A", "client:B", "client:M"}),
        ({"process": "p1", "instance": "x2", "step": 3}, {"broker:b2", "client:M"}),
        ({"process": "p1", "instance": "x2", "step": 5}, {"broker:b2", "client:M", "broker:b3"}),
    ],
)
def test_events_reach_the_hops_that_the_page_names(event: Event, hops: set[str]) -> None:
    assert set(the_example().hops(event)) == hops


def test_a_column_has_the_masks_that_are_drawn() -> None:
    step, load = Column("step", NUMBERS, free=0), Column("load", NUMBERS, free=0b01011)
    for column, bounds, spans in (
        (step, (5, 10), {0: (1, 9), 1: (5, 20), 2: (6, 12), 3: (7, None), 4: (10, 11)}),
        (load, (4, 8), {2: (0, 3), 4: (8, None)}),
    ):
        column.bounds.extend(bounds)
        column.masks, column.ends, column.limits = [0] * 3, [0] * 3, [16] * 3
        for slot, span in spans.items():
            column.add(span, slot)
    assert step.masks == [0b00001, 0b01111, 0b11110]
    assert load.masks == [0b00100, 0b00000, 0b10000]
