"""The matching index against a linear oracle, and the rules that it must keep, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import boxes, buckets, table
from broker import index as index_module
from broker.filters import Event, Filter, Interval, Predicate, Value, anything, between, make_filter, one_of
from broker.index import Index, Record
from broker.wire import NO_KEY, Kind, Stamp

CLIENTS = {"c1": "north", "c2": "north", "c3": "south", "c4": "east"}
TAGS = ("t1", "t2")


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


class Oracle:
    """The definition, read from end to end."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def subscribed(self, client: str, event: Event, tag: str | None = None) -> bool:
        deciding = [
            r
            for r in self.records
            if r.client == client and (r.tag is None or r.tag == tag) and r.filter.matches(event)
        ]
        return bool(deciding) and max(deciding, key=lambda r: r.stamp).kind in ("sub", "adv")

    def hops(self, event: Event, tag: str | None = None) -> set[str]:
        clients = {r.client for r in self.records}
        return {CLIENTS[client] for client in clients if self.subscribed(client, event, tag)}


def agree(index: Index, oracle: Oracle, event: Event) -> None:
    committed = index.hops(event)
    assert len(committed) == len(set(committed))
    assert set(committed) == oracle.hops(event), event
    for tag in TAGS:
        assert set(index.hops_within(tag, event)) == oracle.hops(event, tag), (tag, event)
    for client in CLIENTS:
        assert index.subscribed(client, event) == oracle.subscribed(client, event), (client, event)
        assert index.subscribed(client, event, "t1") == oracle.subscribed(client, event, "t1")


@contextmanager
def small_limits() -> Iterator[None]:
    """Few records fill a list, a box, a bucket, a cache: what otherwise takes thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes, "FEW_RECORDS", 1)
        patch.setattr(index_module, "FEW_RECORDS", 1)
        patch.setattr(boxes, "BOX_RECORDS", 6)
        patch.setattr(buckets, "BUCKET_ENDS_MIN", 2)
        patch.setattr(buckets, "BUCKET_SHARE", 8)
        patch.setattr(table, "PLANS_MAX", 3)
        patch.setattr(table, "PARTS_MAX", 2)
        patch.setattr(boxes, "VIEWS_MAX", 2)
        patch.setattr(index_module, "ANSWERS_MAX", 2)
        patch.setattr(index_module, "SCAN_MAX", 3)
        yield


NUMBERS: list[Value] = [-1, 0, 1, 1.0, 1.5, 2, 2.0, 3, 2**60, float(2**60), 2**60 + 1]
STRINGS: list[Value] = ["", "1", "a", "b", "bb", "c"]
values = st.sampled_from(NUMBERS + STRINGS)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    world = draw(st.sampled_from((NUMBERS, STRINGS)))
    low, high = sorted(draw(st.tuples(st.sampled_from(world), st.sampled_from(world))))
    low_open, high_open = (False, False) if low == high else draw(st.tuples(st.booleans(), st.booleans()))
    sides = draw(st.sampled_from(("both", "both", "low", "high", "none")))
    return Interval(
        low if sides in ("both", "low") else None,
        high if sides in ("both", "high") else None,
        low_open and sides in ("both", "low"),
        high_open and sides in ("both", "high"),
    )


predicates: st.SearchStrategy[Predicate] = st.one_of(
    values, intervals(), st.sets(values, min_size=1, max_size=3).map(lambda chosen: one_of(*chosen))
)
filters = st.dictionaries(st.sampled_from("abc"), predicates, max_size=3).map(make_filter)
ranges = st.fixed_dictionaries({"a": intervals(), "b": intervals()}).map(make_filter)
events = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)
KINDS: tuple[Kind, ...] = ("sub", "sub", "adv", "usub", "uadv")
kinds = st.sampled_from(KINDS)


class Session:
    """Does to the index and to the oracle what a drawn sequence says."""

    def __init__(self) -> None:
        self.index, self.oracle = Index(), Oracle()

    def apply(self, data: st.DataObject, numbers: Iterator[int]) -> None:
        action = data.draw(st.sampled_from(("add",) * 8 + ("remove",) * 4 + ("gone", "commit", "drop")))
        getattr(self, action)(data, numbers)

    def add(self, data: st.DataObject, numbers: Iterator[int]) -> None:
        client = data.draw(st.sampled_from(sorted(CLIENTS)))
        # Stamps that go up and down: attraction can bring records in any order.
        number = next(numbers) * data.draw(st.sampled_from((1, 1, -1)))
        tag = data.draw(st.sampled_from((None, None, None, *TAGS)))
        new = Record(data.draw(kinds), client, stamp(number), data.draw(filters | ranges), tag)
        self.index.add(new, CLIENTS[client])
        self.oracle.records.append(new)

    def remove(self, data: st.DataObject, _: Iterator[int]) -> None:
        if self.oracle.records:
            old = data.draw(st.sampled_from(self.oracle.records))
            self.index.remove(old)
            self.oracle.records.remove(old)

    def gone(self, data: st.DataObject, _: Iterator[int]) -> None:
        client = data.draw(st.sampled_from(sorted(CLIENTS)))
        theirs = sorted((r for r in self.oracle.records if r.client == client), key=lambda r: r.stamp)
        assert list(self.index.records(client)) == theirs
        assert self.index.remove_client(client) == theirs
        self.oracle.records = [r for r in self.oracle.records if r.client != client]

    def commit(self, data: st.DataObject, _: Iterator[int]) -> None:
        tag = data.draw(st.sampled_from(TAGS))
        tagged = {id(r) for r in self.oracle.records if r.tag == tag}
        assert {id(r) for r in self.index.commit(tag)} == tagged
        assert not any(r.tag == tag for r in self.oracle.records)

    def drop(self, data: st.DataObject, _: Iterator[int]) -> None:
        tag = data.draw(st.sampled_from(TAGS))
        tagged = {id(r) for r in self.oracle.records if r.tag == tag}
        assert {id(r) for r in self.index.drop(tag)} == tagged
        self.oracle.records = [r for r in self.oracle.records if r.tag != tag]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(events, min_size=4, max_size=8))
def test_it_agrees_with_the_definition_after_every_change(data: st.DataObject, seen: list[Event]) -> None:
    session, numbers = Session(), count(1)
    with small_limits():
        for _ in range(data.draw(st.integers(0, 40))):
            session.apply(data, numbers)
            for event in seen:
                agree(session.index, session.oracle, event)
        assert {id(r) for r in session.index} == {id(r) for r in session.oracle.records}
        assert len(session.index) == len(session.oracle.records)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ranges, kinds), min_size=8, max_size=60), st.randoms(use_true_random=False))
def test_full_boxes_agree_with_the_definition_while_they_fill_and_empty(
    wanted: list[tuple[Filter, Kind]], random: Random
) -> None:
    index, oracle = Index(), Oracle()
    clients = sorted(CLIENTS)
    with small_limits():
        for number, (filter_, kind) in enumerate(wanted):
            new = Record(kind, clients[number % 4], stamp(number), filter_)
            index.add(new, CLIENTS[new.client])
            oracle.records.append(new)
        while oracle.records:
            for _ in range(4):
                event = {name: random.choice(NUMBERS + STRINGS) for name in "ab"}
                assert set(index.hops(event)) == oracle.hops(event), event
            for _ in range(min(len(oracle.records), 7)):
                index.remove(oracle.records.pop(random.randrange(len(oracle.records))))
    assert_nothing_left(index)


def assert_nothing_left(index: Index) -> None:
    assert len(index) == 0
    assert list(index) == []
    for name in ("_clients", "_hops", "_tagged", "_answers"):
        assert not getattr(index, name), name
    assert set(index._plans.values()) <= {((), ())}
    assert not index._wanted


def random_filter(random: Random) -> Filter:
    def span(width: int) -> Interval:
        low = random.randrange(1000)
        return between(low, low + random.randrange(width))

    kind = random.randrange(10)
    if kind < 5:
        return make_filter({"x": span(100), "y": span(300)})
    if kind == 5:
        return make_filter({"x": one_of(*random.sample(range(1000), 5)), "y": span(300)})
    if kind == 6:
        return make_filter({"x": Interval(random.randrange(1000), None, True), "y": span(50)})
    if kind == 7:
        return make_filter({"s": f"s{random.randrange(30)}", "x": span(100)})
    if kind == 8:
        return make_filter({"s": between(f"s{random.randrange(30)}", "s99")})
    return make_filter({"s": f"s{random.randrange(30)}", "t": random.randrange(20)})


def test_thousands_of_records_agree_with_the_definition() -> None:
    random = Random(7)
    index, oracle = Index(), Oracle()
    clients = sorted(CLIENTS)
    for number in range(12_000):
        client = random.choice(clients)
        kind: Kind = "usub" if client == "c3" and random.random() < 0.5 else "sub"
        new = Record(kind, client, stamp(number), random_filter(random))
        index.add(new, CLIENTS[client])
        oracle.records.append(new)
    for share_left in (1.0, 0.5, 0.02):
        random.shuffle(oracle.records)
        keep = int(12_000 * share_left)
        for old in oracle.records[keep:]:
            index.remove(old)
        del oracle.records[keep:]
        for _ in range(40):
            event: Event = {"x": random.randrange(1100), "y": random.uniform(0, 1300)}
            event |= {"s": f"s{random.randrange(35)}", "t": random.randrange(25)}
            for name in random.sample(sorted(event), random.randrange(3)):
                del event[name]
            assert set(index.hops(event)) == oracle.hops(event), event
    for old in oracle.records:
        index.remove(old)
    assert_nothing_left(index)


def test_an_event_that_lacks_a_constrained_attribute_does_not_match() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1, "b": between(0, 9)}))
    assert not index.hops({"a": 1})
    assert not index.hops({"b": 5})
    assert not index.hops({})
    assert set(index.hops({"a": 1, "b": 5, "c": 7})) == {"north"}


def test_equal_integers_and_floats_are_the_same_value() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1}), record("sub", "c3", 1, {"a": 1.0, "b": one_of(2, 5)}))
    assert set(index.hops({"a": 1.0})) == {"north"}
    assert set(index.hops({"a": 1, "b": 2.0})) == {"north", "south"}


def test_large_integers_are_compared_exactly() -> None:
    index = filled(record("sub", "c1", 1, {"a": 2**60 + 1}), record("sub", "c3", 1, {"a": between(0, 2**60)}))
    assert set(index.hops({"a": float(2**60)})) == {"south"}
    assert set(index.hops({"a": 2**60 + 1})) == {"north"}


@pytest.mark.parametrize("copies", [1, 40], ids=["a few", "in boxes"])
def test_numbers_and_strings_are_two_worlds(copies: int) -> None:
    index = Index()
    for number in range(copies):
        index.add(record("sub", "c1", number, {"a": Interval(None, 5 + number % 3)}), "north")
        index.add(record("sub", "c3", number, {"a": Interval("b", None)}), "south")
    assert set(index.hops({"a": 4})) == {"north"}
    assert set(index.hops({"a": "c"})) == {"south"}
    assert not index.hops({"a": "a"})
    assert not index.hops({"a": 9})


def test_anything_admits_numbers_and_strings_but_not_absence() -> None:
    index = filled(record("sub", "c1", 1, {"a": anything(), "b": 1}))
    assert set(index.hops({"a": 1, "b": 1})) == set(index.hops({"a": "x", "b": 1})) == {"north"}
    assert not index.hops({"b": 1})


@pytest.mark.parametrize("copies", [1, 40], ids=["a few", "in boxes"])
def test_nan_is_in_no_interval_and_does_no_harm(copies: int) -> None:
    index = Index()
    for number in range(copies):
        index.add(record("sub", "c1", number, {"a": Interval(number, None)}), "north")
        index.add(record("sub", "c2", number, {"a": number}), "north")
        index.add(record("sub", "c3", number, {"a": between(-5, 50 + number), "b": 1}), "south")
        index.add(record("sub", "c4", number, {"b": 1}), "east")
    assert set(index.hops({"a": float("nan"), "b": 1})) == {"east"}


def test_an_empty_filter_wants_every_event() -> None:
    everything = record("sub", "c1", 1, {})
    index = filled(everything, record("sub", "c3", 1, {"a": 1}))
    assert set(index.hops({})) == {"north"}
    assert set(index.hops({"a": 1, "z": "q"})) == {"north", "south"}
    index.add(record("usub", "c1", 2, {}), "north")
    assert not index.hops({})


def test_a_hole_takes_its_part_out_of_what_was_there_before() -> None:
    index = filled(
        record("sub", "c1", 1, {"process": "p1"}),
        record("usub", "c1", 2, {"process": "p1", "instance": "x1"}),
    )
    assert set(index.hops({"process": "p1", "instance": "x2"})) == {"north"}
    assert set(index.hops({"process": "p1"})) == {"north"}
    assert not index.hops({"process": "p1", "instance": "x1"})


def test_a_later_subscription_fills_the_hole_and_an_earlier_one_does_not() -> None:
    late, hole, early = (
        record("sub", "c1", 9, {"a": between(0, 5)}),
        record("usub", "c1", 5, {"a": 3}),
        record("sub", "c1", 1, {"a": between(1, 4)}),
    )
    index = filled(late, hole, early)
    assert set(index.hops({"a": 3})) == {"north"}
    index.remove(late)
    assert not index.hops({"a": 3})
    index.remove(hole)
    assert set(index.hops({"a": 3})) == {"north"}


def test_a_hole_of_one_client_is_not_a_hole_of_another_behind_the_same_hop() -> None:
    both = {"a": 1}
    index = filled(record("sub", "c1", 1, both), record("sub", "c2", 1, both), record("usub", "c1", 2, both))
    assert set(index.hops({"a": 1})) == {"north"}
    assert not index.subscribed("c1", {"a": 1})
    index.add(record("usub", "c2", 2, both), "north")
    assert not index.hops({"a": 1})


def test_holes_in_large_numbers_are_found_like_few() -> None:
    index = filled(record("sub", "c1", 0, {"p": "p1"}))
    holes = [record("usub", "c1", n, {"p": "p1", "i": f"x{n}"}) for n in range(1, 3000)]
    for hole in holes:
        index.add(hole, "north")
    assert not index.hops({"p": "p1", "i": "x17"})
    assert set(index.hops({"p": "p1", "i": "x3000"})) == {"north"}
    for hole in holes:
        index.remove(hole)
    assert set(index.hops({"p": "p1", "i": "x17"})) == {"north"}


def test_answers_with_no_hop_or_one_are_shared_objects() -> None:
    index = filled(
        record("sub", "c1", 1, {"a": 1}),
        record("sub", "c2", 1, {"a": 2}),
        record("sub", "c2", 2, {"a": 1, "b": 1}),
    )
    assert index.hops({"a": 1}) is index.hops({"a": 2})
    assert index.hops({"a": 1, "b": 1}) is index.hops({"a": 1})
    assert index.hops({"a": 9}) is index.hops({"z": 1})


def test_a_crowd_with_one_filter_answers_each_hop_once_while_it_comes_and_goes() -> None:
    crowd = [record("sub", client, n, {"a": 1}) for n in range(5) for client in CLIENTS]
    index = filled(*crowd)
    assert sorted(index.hops({"a": 1})) == ["east", "north", "south"]
    for member in crowd:
        assert sorted(index.hops({"a": 1})) == sorted({CLIENTS[r.client] for r in index})
        index.remove(member)
    assert_nothing_left(index)


def test_tagged_records_are_seen_by_their_transaction_alone() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1}, tag="t1"), record("sub", "c3", 1, {"a": 1}))
    assert set(index.hops({"a": 1})) == {"south"}
    assert set(index.hops_within("t1", {"a": 1})) == {"north", "south"}
    assert set(index.hops_within("t2", {"a": 1})) == {"south"}
    assert index.subscribed("c1", {"a": 1}, "t1")
    assert not index.subscribed("c1", {"a": 1})


def test_commit_makes_tagged_records_part_of_the_view_and_drop_forgets_them() -> None:
    kept, dropped = record("sub", "c1", 1, {"a": 1}, tag="t1"), record("sub", "c3", 1, {"a": 1}, tag="t2")
    index = filled(kept, dropped)
    assert index.commit("t1") == [kept]
    assert kept.tag is None
    assert index.drop("t2") == [dropped]
    assert index.commit("t2") == index.drop("t1") == []
    assert set(index.hops_within("t2", {"a": 1})) == {"north"}
    assert list(index) == [kept]


def test_a_transaction_that_takes_one_client_out_leaves_the_others_behind_its_hop() -> None:
    index = filled(
        record("sub", "c1", 1, {"a": 1}),
        record("sub", "c2", 1, {"a": 1}),
        record("sub", "c3", 1, {"a": 1}),
        record("usub", "c1", 2, {"a": 1}, tag="t1"),
        record("usub", "c3", 2, {"a": 1}, tag="t1"),
    )
    assert set(index.hops_within("t1", {"a": 1})) == {"north"}
    index.commit("t1")
    assert set(index.hops({"a": 1})) == {"north"}


def test_records_of_a_client_come_in_the_order_of_stamps() -> None:
    numbers = [5, 9, 1, 7, 3]
    index = filled(*(record("sub", "c1", n, {"a": n}, tag="t1" if n == 7 else None) for n in numbers))
    assert [r.stamp[3] for r in index.records("c1")] == sorted(numbers)
    index.add(record("usub", "c1", 2, {"a": 5}), "north")
    assert [r.stamp[3] for r in index.records("c1")] == [1, 2, 3, 5, 7, 9]
    assert list(index.records("nobody")) == []


def test_a_client_that_is_removed_leaves_nothing_behind() -> None:
    index = filled(record("sub", "c1", 0, {"a": anything()}), record("sub", "c1", 1, {"a": 1}, tag="t1"))
    for n in range(50):
        index.add(record("usub", "c1", 2 + n, {"a": n}), "north")
        index.add(record("sub", "c1", 100 + n, {"a": between(n, 60), "b": between(0, n)}), "north")
    assert set(index.hops({"a": 55, "b": 1})) == {"north"}
    assert len(index.remove_client("c1")) == 102
    assert index.remove_client("c1") == []
    assert_nothing_left(index)


def test_buckets_do_not_pile_up_when_the_ranges_move_on() -> None:
    index = Index()
    alive: list[Record] = []
    for number in range(6000):
        alive.append(record("sub", "c1", number, {"time": between(number, number + 10)}))
        index.add(alive[-1], "north")
        if len(alive) > 200:
            index.remove(alive.pop(0))
    (group,) = index._wanted._groups.values()
    assert isinstance(group, table.RangedGroup)
    (box,) = group.piles[()]._boxes
    assert len(box._columns["time", "n"].masks) < 100
    assert set(index.hops({"time": 5990})) == {"north"}
    assert not index.hops({"time": 5000})


def test_a_range_search_asks_few_records_where_the_ranges_moved_on_from_the_first_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = Index()
    for number in range(4000):
        index.add(record("sub", "c1", number, {"time": between(10 * number, 10 * number + 5)}), "north")
    asked: list[Filter] = []
    real = boxes.contains

    def counting(filter_: Filter, event: Event) -> bool:
        asked.append(filter_)
        return real(filter_, event)

    monkeypatch.setattr(boxes, "contains", counting)
    for number in range(0, 4000, 100):
        assert not index.hops({"time": 10 * number + 7})
    assert len(asked) < 40 * 150


def test_plans_for_events_of_many_shapes_are_bounded() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1}))
    for n in range(3000):
        assert set(index.hops({"a": 1, f"n{n}": 1})) == {"north"}
    assert len(index._plans) <= table.PLANS_MAX


def test_a_client_lies_behind_one_hop() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1}))
    with pytest.raises(ValueError, match=r"'c1' lies behind 'north', not behind 'south'"):
        index.add(record("sub", "c1", 2, {"a": 2}), "south")


def test_two_records_with_one_stamp_are_refused() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1}))
    with pytest.raises(ValueError, match="two records"):
        index.add(record("sub", "c1", 1, {"a": 2}), "north")
    assert len(index) == 1


def test_a_record_that_is_not_there_cannot_be_removed() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1}))
    with pytest.raises(KeyError, match="no such record"):
        index.remove(record("sub", "c1", 1, {"a": 1}))
    with pytest.raises(KeyError):
        index.remove(record("sub", "c2", 1, {"a": 1}))
    assert set(index.hops({"a": 1})) == {"north"}
