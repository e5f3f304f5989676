"""The rules that the matching index keeps, one by one."""

from __future__ import annotations

import pytest

from broker.matching import table
from broker.matching.index import Index
from broker.matching.records import NOWHERE
from broker.protocol.filters import Interval, anything, between, one_of
from tests.support.indexing import CLIENTS, assert_nothing_left, filled, record, stamp


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


@pytest.mark.parametrize("others", [0, 10], ids=["a few", "in a table"])
def test_of_several_holes_around_an_event_the_newest_counts(others: int) -> None:
    index = filled(
        record("usub", "c1", 1, {"a": 3}),
        record("usub", "c1", 9, {"a": between(0, 5)}),
        record("usub", "c1", 2, {"a": 3}),
        record("sub", "c1", 4, {"a": anything()}),
        *(record("usub", "c1", 20 + n, {"a": 100 + n}) for n in range(others)),
    )
    assert not index.hops({"a": 3})
    index.add(record("sub", "c1", 10, {"a": 3}), "north")
    assert set(index.hops({"a": 3})) == {"north"}
    assert not index.hops({"a": 4})


@pytest.mark.parametrize("order", [(2, 9), (9, 2)], ids=["older first", "newer first"])
@pytest.mark.parametrize(
    "filters", [({"a": 3}, {"a": 3}), ({"a": 3}, {"a": 3, "b": 1})], ids=["equal", "unlike"]
)
def test_of_holes_that_are_looked_up_the_newest_counts(
    order: tuple[int, int], filters: tuple[dict[str, int], dict[str, int]]
) -> None:
    holes = [record("usub", "c1", n, f) for n, f in zip(order, filters, strict=True)]
    others = [record("usub", "c1", 20 + n, {"a": 100 + n}) for n in range(10)]
    index = filled(record("sub", "c1", 4, {"b": 1}), *others, *holes)
    assert not index.hops({"a": 3, "b": 1})
    index.add(record("sub", "c1", 10, {"b": 1}), "north")
    assert set(index.hops({"a": 3, "b": 1})) == {"north"}


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
    index.add(record("sub", "c3", 1, {"b": "x", "r": between(0, 9)}), "south")
    assert index.hops({"a": 1, "b": 2, "r": 5}) is index.hops({"a": 1})


def test_a_crowd_with_one_filter_answers_each_hop_once_while_it_comes_and_goes() -> None:
    crowd = [record("sub", client, n, {"a": 1}) for n in range(5) for client in CLIENTS]
    others = [record("sub", client, 9, {"b": 1}) for client in CLIENTS]
    index = filled(*crowd, *others)
    for member in crowd:
        assert member.home is not NOWHERE
        there = {CLIENTS[r.client] for r in index if r not in others}
        assert sorted(index.hops({"a": 1})) == sorted(there)
        index.remove(member)
        assert member.home is NOWHERE, "a removed record keeps nothing of the index alive"
    assert not index.hops({"a": 1})
    for other in others:
        index.remove(other)
    assert_nothing_left(index)


def test_the_answer_of_a_crowd_is_a_shared_object_unless_a_hop_is_in_doubt() -> None:
    index = filled(*(record("sub", client, n, {"a": 1}) for n in range(3) for client in CLIENTS))
    answer = index.hops({"a": 1})
    assert index.hops({"a": 1}) is answer
    hole = record("usub", "c4", 9, {"a": 1})
    index.add(hole, "east")
    assert set(index.hops({"a": 1})) == {"north", "south"}
    index.remove(hole)
    assert set(index.hops({"a": 1})) == set(answer)
    assert index.hops({"a": 1}) is index.hops({"a": 1})


def test_tagged_records_are_seen_by_their_transaction_alone() -> None:
    index = filled(record("sub", "c1", 1, {"a": 1}, tag="t1"), record("sub", "c3", 1, {"a": 1}))
    assert set(index.hops({"a": 1})) == {"south"}
    assert set(index.hops_with(index.tagged("t1"), {"a": 1})) == {"north", "south"}
    assert set(index.hops_with(index.tagged("t2"), {"a": 1})) == {"south"}
    assert index.subscribed("c1", {"a": 1}, "t1")
    assert not index.subscribed("c1", {"a": 1})


def test_commit_makes_tagged_records_part_of_the_view_and_drop_forgets_them() -> None:
    kept, dropped = record("sub", "c1", 1, {"a": 1}, tag="t1"), record("sub", "c3", 1, {"a": 1}, tag="t2")
    index = filled(kept, dropped)
    assert index.commit("t1") == [kept]
    assert kept.tag is None
    assert index.drop("t2") == [dropped]
    assert index.commit("t2") == index.drop("t1") == []
    assert set(index.hops_with(index.tagged("t2"), {"a": 1})) == {"north"}
    assert list(index) == [kept]


def test_a_transaction_that_takes_one_client_out_leaves_the_others_behind_its_hop() -> None:
    index = filled(
        record("sub", "c1", 1, {"a": 1}),
        record("sub", "c2", 1, {"a": 1}),
        record("sub", "c3", 1, {"a": 1}),
        record("usub", "c1", 2, {"a": 1}, tag="t1"),
        record("usub", "c3", 2, {"a": 1}, tag="t1"),
    )
    assert set(index.hops_with(index.tagged("t1"), {"a": 1})) == {"north"}
    index.commit("t1")
    assert set(index.hops({"a": 1})) == {"north"}


def test_a_transaction_that_takes_one_client_out_and_another_in_keeps_their_hop() -> None:
    index = filled(
        record("sub", "c1", 1, {"a": 1}),
        record("usub", "c1", 2, {"a": 1}, tag="t1"),
        record("sub", "c2", 1, {"a": 1}, tag="t1"),
    )
    assert set(index.hops_with(index.tagged("t1"), {"a": 1})) == {"north"}


def test_records_of_a_client_come_in_the_order_of_stamps() -> None:
    numbers = [5, 9, 1, 7, 3]
    index = filled(*(record("sub", "c1", n, {"a": n}, tag="t1" if n == 7 else None) for n in numbers))
    assert [r.stamp[3] for r in index.records("c1")] == sorted(numbers)
    index.add(record("usub", "c1", 2, {"a": 5}), "north")
    assert [r.stamp[3] for r in index.records("c1")] == [1, 2, 3, 5, 7, 9]
    assert list(index.records("nobody")) == []


def test_a_record_is_found_by_its_client_and_stamp() -> None:
    one, two = record("sub", "c1", 1, {"a": 1}), record("usub", "c1", 2, {"a": 2})
    index = filled(one)
    assert index.find("c1", stamp(1)) is one
    index.add(two, "north")
    assert index.find("c1", stamp(2)) is two
    assert index.find("c1", stamp(3)) is index.find("c2", stamp(1)) is None


def test_a_client_that_is_removed_leaves_nothing_behind() -> None:
    index = filled(record("sub", "c1", 0, {"a": anything()}), record("sub", "c1", 1, {"a": 1}, tag="t1"))
    for n in range(50):
        index.add(record("usub", "c1", 2 + n, {"a": n}), "north")
        index.add(record("sub", "c1", 100 + n, {"a": between(n, 60), "b": between(0, n)}), "north")
    assert set(index.hops({"a": 55, "b": 1})) == {"north"}
    assert len(index.remove_client("c1")) == 102
    assert index.remove_client("c1") == []
    assert_nothing_left(index)


def test_sets_of_numbers_and_strings_that_cannot_be_taken_apart_match_all_the_same() -> None:
    sets = [
        record("sub", "c1", n, {"a": one_of(*range(17), "x"), "b": one_of(*range(17), "y")}) for n in range(9)
    ]
    index = filled(*sets)
    for each in sets:
        assert set(index.hops({"a": "x", "b": "y"})) == set(index.hops({"a": 3, "b": 4})) == {"north"}
        assert not index.hops({"a": "x", "b": "x"})
        index.remove(each)
    assert not index.hops({"a": "x", "b": "y"})
    assert_nothing_left(index)


def test_sets_with_very_many_combinations_match_all_the_same() -> None:
    many = range(0, 40, 2)
    wide = [
        record("sub", "c1", n, {"a": one_of(*many, "x"), "b": one_of(*many), "c": one_of(*many, "y")})
        for n in range(12)
    ]
    index = filled(*wide)
    assert (
        set(index.hops({"a": 38, "b": 4, "c": "y"}))
        == set(index.hops({"a": "x", "b": 0, "c": 2}))
        == {"north"}
    )
    assert not index.hops({"a": 38, "b": 5, "c": 2})
    assert not index.hops({"a": "y", "b": 4, "c": 2})
    assert max(map(len, index._wanted._parts.values())) <= table.PARTS_MAX
    for each in wide:
        index.remove(each)
    assert_nothing_left(index)


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


@pytest.mark.parametrize("shapes_max", [1, 2, 3])
def test_a_filter_of_a_new_shape_among_known_ones_is_found_by_events_seen_before(
    monkeypatch: pytest.MonkeyPatch, shapes_max: int
) -> None:
    """Whether every shape is looked at, or the limit of that is just being passed."""
    monkeypatch.setattr(table, "SHAPES_MAX", shapes_max)
    wide, narrow = {"a": between(0, 9), "b": between(0, 9)}, {"a": between(0, 9)}
    index = filled(record("sub", "c1", 1, wide), record("sub", "c3", 2, {"c": between(0, 9)}))
    assert set(index.hops({"a": 5})) == set()
    index.add(record("sub", "c4", 3, narrow), CLIENTS["c4"])
    assert set(index.hops({"a": 5})) == {"east"}
    assert set(index.hops({"a": 5, "b": 5})) == {"north", "east"}


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (3, 1, 4, 2)], ids=["in order", "out of order"])
def test_a_clients_newer_records_are_found_from_the_newest_back(order: tuple[int, ...]) -> None:
    index = filled(*(record("sub", "c1", number, {"a": number}) for number in order))
    assert [each.stamp for each in index.newer("c1", stamp(2))] == [stamp(4), stamp(3)]
    assert index.newer("c1", stamp(4)) == []
    assert index.newer("nobody", stamp(0)) == []
