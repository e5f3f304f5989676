"""What the matching index may spend: who is asked, and what is kept. Times are for `labctl bench matching`."""

from __future__ import annotations

import msgspec
import pytest

from broker.matching import boxes, table
from broker.matching.index import Index
from broker.matching.records import Record
from broker.protocol.filters import Event, Filter, between, make_filter, one_of
from broker.protocol.messages import Operation
from broker.protocol.wire import encode
from tests.support.indexing import assert_nothing_left, filled, record, stamp


def test_buckets_do_not_pile_up_when_the_ranges_move_on() -> None:
    index = Index()
    alive: list[Record] = []
    for number in range(6000):
        alive.append(record("sub", "c1", number, {"time": between(number, number + 10)}))
        index.add(alive[-1], "north")
        if len(alive) > 200:
            index.remove(alive.pop(0))
    (box,) = boxes_of(index)
    assert len(box._columns["time", "n"].masks) < 100
    assert set(index.hops({"time": 5990})) == {"north"}
    assert not index.hops({"time": 5000})


def boxes_of(index: Index) -> list[boxes.Box]:
    """Where there is one group and one pile."""
    (group,) = index._wanted._groups.values()
    assert isinstance(group, table.RangedGroup)
    (pile,) = group.piles.values()
    return pile._boxes


def test_a_box_is_full_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "BOX_RECORDS", 50)
    index = filled(*(record("sub", "c1", n, {"a": between(n, n + 9)}) for n in range(175)))
    assert sorted(map(len, boxes_of(index))) == [25, 50, 50, 50]


def test_a_box_forgets_attributes_that_nobody_names_any_more() -> None:
    records = [record("sub", "c1", n, {"a": between(0, 9), f"b{n}": between(0, 9)}) for n in range(30)]
    index = filled(*records)
    for each in records[3:]:
        index.remove(each)
    (box,) = boxes_of(index)
    assert [name for name, _ in box._columns] == ["a", "b0", "b1", "b2"]


def test_views_for_events_of_many_shapes_are_bounded() -> None:
    index = filled(*(record("sub", "c1", n, {"a": between(n, n + 9)}) for n in range(30)))
    for n in range(1000):
        assert set(index.hops({"a": 5, f"n{n}": 1})) == {"north"}
    (box,) = boxes_of(index)
    assert len(box._views) <= boxes.VIEWS_MAX


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Filter]:
    """The filters that are asked one by one."""
    filters: list[Filter] = []
    real = boxes.contains

    def counting(filter_: Filter, event: Event) -> bool:
        filters.append(filter_)
        return real(filter_, event)

    monkeypatch.setattr(boxes, "contains", counting)
    return filters


def test_few_records_are_asked_also_where_ranges_have_moved_on_from_the_first_ones(
    asked: list[Filter],
) -> None:
    index = Index()
    for number in range(4000):
        index.add(record("sub", "c1", number, {"time": between(10 * number, 10 * number + 5)}), "north")
    for number in range(0, 4000, 100):
        assert not index.hops({"time": 10 * number + 7})
    assert len(asked) < 40 * 60


def test_few_records_are_asked_beside_a_value_where_many_ranges_end(asked: list[Filter]) -> None:
    index = Index()
    for number in range(4000):
        index.add(record("sub", "c1", number, {"a": between(1, 5), "s": between("b", "d")}), "north")
    assert not index.hops({"a": 5.001, "s": "c"})
    assert not index.hops({"a": 0.999, "s": "c"})
    assert not index.hops({"a": 3, "s": "da"})
    assert len(asked) < 60
    assert set(index.hops({"a": 5, "s": "d"})) == {"north"}


def test_nobody_is_asked_who_needs_an_attribute_that_the_event_lacks(asked: list[Filter]) -> None:
    index = Index()
    for number in range(100):
        index.add(record("sub", "c1", number, {"a": between(0, 9), f"b{number % 5}": between(0, 9)}), "north")
    assert not index.hops({"a": 5})
    assert not index.hops({"a": 5, "c": 1})
    assert asked == []


def test_nobody_with_numbers_is_asked_about_a_string(asked: list[Filter]) -> None:
    index = Index()
    for number in range(100):
        index.add(record("sub", "c1", number, {"a": between(0, 9), "b": between(number, 200)}), "north")
    assert not index.hops({"a": 5, "b": "x"})
    assert asked == []


def test_a_set_is_looked_up_value_by_value(asked: list[Filter]) -> None:
    sets = [record("sub", "c1", n, {"a": one_of(n, n + 1, f"s{n}"), "b": one_of(1, 2)}) for n in range(500)]
    index = filled(*sets)
    assert set(index.hops({"a": 7, "b": 2.0})) == set(index.hops({"a": "s7", "b": 1})) == {"north"}
    assert not index.hops({"a": "s7", "b": 3})
    assert asked == []
    for each in sets:
        index.remove(each)
    assert_nothing_left(index)


def test_plans_for_events_of_many_shapes_are_bounded() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1}))
    for n in range(3000):
        assert set(index.hops({"a": 1, f"n{n}": 1})) == {"north"}
    assert len(index.plans) <= table.PLANS_MAX


def test_equal_parts_of_decoded_records_are_kept_once() -> None:
    message = encode(Operation("sub", "c1", stamp(1), make_filter({"a": 1, "b": between(0, 1)})))
    decode = msgspec.msgpack.Decoder(Operation).decode
    first, second = (
        Record(got.kind, got.client, (got.stamp[0], 0, 1, n), got.filter)
        for n, got in enumerate((decode(message), decode(message)))
    )
    assert first.filter.names is not second.filter.names
    filled(first, second)
    assert first.filter.names is second.filter.names
    assert first.client is second.client
    assert first.stamp[0] is second.stamp[0]
    assert first.filter == second.filter
