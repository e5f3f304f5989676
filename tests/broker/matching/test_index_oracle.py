"""The matching index against the definition, read from end to end: random changes, random events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.matching import batch, boxes, buckets, table
from broker.matching import index as index_module
from broker.matching.index import Index
from broker.matching.many import hops_of_each
from broker.matching.records import Record
from broker.protocol.filters import (
    Event,
    Filter,
    Interval,
    Predicate,
    Value,
    anything,
    between,
    make_filter,
    one_of,
)
from broker.protocol.vocabulary import Kind
from tests.support.indexing import CLIENTS, assert_nothing_left, record, stamp

TAGS = ("t1", "t2")


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
        assert set(index.hops_with(index.tagged(tag), event)) == oracle.hops(event, tag), (tag, event)
    for client in CLIENTS:
        assert index.subscribed(client, event) == oracle.subscribed(client, event), (client, event)
        assert index.subscribed(client, event, "t1") == oracle.subscribed(client, event, "t1")
    undecided = any(r.tag is not None and r.positive and r.filter.matches(event) for r in oracle.records)
    assert index.is_undecided(event) == undecided, event


def agree_on_all(index: Index, seen: list[Event]) -> None:
    """Asked together, they get what each gets alone."""
    assert list(map(sorted, hops_of_each(index, seen))) == list(map(sorted, map(index.hops, seen))), seen


@contextmanager
def small_limits(shapes_max: int = 3) -> Iterator[None]:
    """Few records fill a list, a box, a bucket, a cache: what otherwise takes thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes, "FEW_RECORDS", 2)
        patch.setattr(index_module, "FEW_RECORDS", 2)
        patch.setattr(boxes, "BOX_RECORDS", 6)
        patch.setattr(buckets, "BUCKET_ENDS_MIN", 2)
        patch.setattr(buckets, "BUCKET_SHARE", 64)
        patch.setattr(table, "PLANS_MAX", 3)
        patch.setattr(table, "SHAPES_MAX", shapes_max)
        patch.setattr(table, "PARTS_MAX", 2)
        patch.setattr(boxes, "VIEWS_MAX", 2)
        patch.setattr(index_module, "ANSWERS_MAX", 2)
        patch.setattr(index_module, "SCAN_MAX", 3)
        patch.setattr(batch, "BATCH_MIN", 2)
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
few_values: st.SearchStrategy[Value] = st.sampled_from([1, 1.0, 2, "a"])
events_alike = st.sampled_from(["", "a", "ab", "abc", "ba", "dcb"]).flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, few_values)), min_size=3, max_size=6)
)
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


@settings(max_examples=100)
@given(st.data(), st.lists(events, min_size=4, max_size=8), st.lists(events_alike, min_size=1, max_size=2))
def test_it_agrees_with_the_definition_after_every_change(
    data: st.DataObject, seen: list[Event], alike: list[list[Event]]
) -> None:
    session, numbers = Session(), count(1)
    with small_limits(data.draw(st.sampled_from((3, 8, table.SHAPES_MAX)))):
        for _ in range(data.draw(st.integers(0, 40))):
            session.apply(data, numbers)
            for event in seen:
                agree(session.index, session.oracle, event)
            agree_on_all(session.index, [*seen, *chain(*alike)])
            agree_on_all(session.index, alike[0])
        assert {id(r) for r in session.index} == {id(r) for r in session.oracle.records}
        assert len(session.index) == len(session.oracle.records)


@settings(max_examples=60)
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


@pytest.mark.parametrize("seed", range(4))
def test_filters_of_many_shapes_in_one_box_agree_with_the_definition_while_they_change(seed: int) -> None:
    random = Random(seed)
    index, oracle = Index(), Oracle()

    def shape() -> list[str]:
        return ["a", *random.sample("bcd", random.randrange(4))]

    def span() -> Interval:
        low = random.randrange(20)
        return Interval(*random.choice(((low, low + random.randrange(8)), (low, None), (None, low))))

    with small_limits():
        for number in range(300):
            if random.random() < 0.65 or not oracle.records:
                kind: Kind = "usub" if random.random() < 0.1 else "sub"
                filter_ = make_filter({name: span() for name in shape()})
                new = Record(kind, random.choice(sorted(CLIENTS)), stamp(number), filter_)
                index.add(new, CLIENTS[new.client])
                oracle.records.append(new)
            else:
                index.remove(oracle.records.pop(random.randrange(len(oracle.records))))
            for _ in range(3):
                event: Event = {name: random.randrange(28) for name in shape()}
                assert set(index.hops(event)) == oracle.hops(event), event


@pytest.mark.parametrize("seed", range(6))
def test_holes_of_one_shape_and_then_of_others_agree_with_the_definition_while_they_change(seed: int) -> None:
    random = Random(seed)
    index, oracle = Index(), Oracle()
    wanted: list[dict[str, object]] = [
        {"p": 1},
        {},
        {"p": 1, "i": 2},
        {"p": between(0, 1)},
        {"i": anything()},
    ]
    others: list[dict[str, object]] = [{"i": 3}, {"p": 1, "i": anything()}, {"p": 1, "i": one_of(4, 5)}, {}]

    def change(number: int) -> None:
        if random.random() < 0.4 and oracle.records:
            index.remove(oracle.records.pop(random.randrange(len(oracle.records))))
            return
        kind: Kind = "sub" if random.random() < 0.2 else "usub"
        constraints = random.choice(wanted) if kind == "sub" else {"p": 1, "i": random.randrange(6)}
        if kind == "usub" and number > 150 and random.random() < 0.2:
            constraints = random.choice(others)
        new = record(kind, random.choice(("c1", "c3")), number * random.choice((1, 1, 1, -1)), constraints)
        index.add(new, CLIENTS[new.client])
        oracle.records.append(new)

    with small_limits():
        for number in range(1, 300):
            change(number)
            seen: list[Event] = [{"p": 1}, {"p": 1.0, "i": random.randrange(7)}, {"p": "1", "i": 2, "q": 0}]
            for event in seen:
                assert set(index.hops(event)) == oracle.hops(event), event
            agree_on_all(index, [{"p": 1, "i": value} for value in range(7)])
        while oracle.records:
            index.remove(oracle.records.pop())
    assert_nothing_left(index)


@pytest.mark.parametrize("seed", range(6))
def test_events_asked_together_agree_with_each_alone_while_values_ranges_and_holes_change(seed: int) -> None:
    random = Random(seed)
    index = Index()
    filed: list[Record] = []

    def constraints() -> dict[str, object]:
        low = random.randrange(10)
        n = random.choice((low, anything(), between(low, low + 2), one_of(low, low + 3)))
        chosen: dict[str, object] = {"p": random.choice(("p1", "p2")), "n": n}
        return chosen if random.random() < 0.7 else {"p": chosen["p"]}

    with small_limits(table.SHAPES_MAX):
        for number in range(200):
            if random.random() < 0.6 or not filed:
                kind: Kind = "usub" if random.random() < 0.2 else "sub"
                filed.append(record(kind, random.choice(sorted(CLIENTS)), number, constraints()))
                index.add(filed[-1], CLIENTS[filed[-1].client])
            else:
                index.remove(filed.pop(random.randrange(len(filed))))
            agree_on_all(index, [{"p": random.choice(("p1", "p2", "p3")), "n": n} for n in range(12)])
            agree_on_all(index, [{"n": n, "p": "p1"} for n in range(12)])


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
