"""Filters: what people write, what is refused, and how two filters relate."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.filters import (
    Filter,
    FilterError,
    Interval,
    Predicate,
    anything,
    at_least,
    at_most,
    between,
    check_event,
    less_than,
    make_filter,
    more_than,
    one_of,
    overlaps,
    subsumes,
)

VALUES: list[int | float | str] = [-1, 0, 0.5, 1, 1.0, 2, 3, "", "a", "ab", "b"]


def _interval(world: list[Any]) -> st.SearchStrategy[Predicate]:
    end = st.none() | st.sampled_from(world)
    intervals = st.builds(Interval, end, end, st.booleans(), st.booleans())
    return intervals.filter(_is_possible)


def _is_possible(interval: Interval) -> bool:
    try:
        make_filter({"x": interval})
    except FilterError:
        return False
    return True


PREDICATES: st.SearchStrategy[Predicate] = st.one_of(
    st.sampled_from(VALUES),
    _interval([-1, 0, 0.5, 1, 2]),
    _interval(["", "a", "b"]),
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(lambda values: one_of(*values)),
)
FILTERS = st.dictionaries(st.sampled_from(["x", "y"]), PREDICATES).map(make_filter)
# Values between and beyond those that the predicates name, so that open ends and gaps are seen.
POINTS: list[int | float | str] = [
    -2,
    -1,
    -0.5,
    0,
    0.25,
    0.5,
    0.75,
    1,
    1.5,
    2,
    2.5,
    3,
    4,
    "",
    "A",
    "a",
    "aa",
    "ab",
    "b",
    "c",
]
EVENTS: list[dict[str, int | float | str]] = [{"x": x, "y": y} for x in POINTS for y in POINTS]


def test_a_filter_is_written_as_people_think() -> None:
    written = make_filter({"process": "p1", "step": between(1, 9), "kind": {"a", "b"}})
    assert written.matches({"process": "p1", "step": 9, "kind": "a", "more": 1})
    assert not written.matches({"process": "p1", "step": 9.5, "kind": "a"})
    assert str(written) == "{kind in {'a', 'b'}, process = 'p1', step in [1, 9]}"


@pytest.mark.parametrize(
    ("predicate", "inside", "outside"),
    [
        (at_least(3), [3, 1e9], [2.999, "3"]),
        (more_than(3), [3.001], [3, "z"]),
        (at_most("m"), ["", "m"], ["ma", 1]),
        (less_than(0), [-0.1, -math.inf], [0]),
        (anything(), [0, "", -5.5], []),
        (one_of(1, "a"), [1.0, "a"], [2, "b"]),
        (2**63, [2**63], [float(2**63) + 2048]),
    ],
)
def test_each_kind_of_predicate_admits_what_it_says(
    predicate: Predicate, inside: list[Any], outside: list[Any]
) -> None:
    built = make_filter({"x": predicate})
    assert [v for v in inside if not built.matches({"x": v})] == []
    assert [v for v in outside if built.matches({"x": v})] == []


def test_an_event_without_a_constrained_attribute_does_not_match() -> None:
    assert not make_filter({"x": anything()}).matches({"y": 1})
    assert make_filter({}).matches({"y": 1})


def test_int_and_float_compare_exactly() -> None:
    assert not make_filter({"x": 2**53 + 1}).matches({"x": float(2**53)})
    assert make_filter({"x": between(2**53 + 1, 2**53 + 2)}).matches({"x": float(2**53 + 2)})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"x": math.nan}, "NaN"),
        ({"x": True}, "bool"),
        ({"x": None}, "NoneType"),
        ({"x": between(2, 1)}, "empty"),
        ({"x": Interval(1, 1, low_open=True)}, "empty"),
        ({"x": between(1, "a")}, "mixes"),
        ({"x": set()}, "empty set"),
        ({"x": 2**64}, "64 bits"),
        ({"": 1}, "non-empty"),
        ({1: 1}, "non-empty"),
        ([("x", 1)], "mapping"),
        ({"x": between(math.nan, 1)}, "NaN"),
    ],
)
def test_a_filter_that_cannot_mean_anything_is_refused_with_a_reason(given: Any, says: str) -> None:
    with pytest.raises(FilterError, match=says):
        make_filter(given)


def test_an_event_with_a_value_that_is_none_is_refused() -> None:
    for value in (math.nan, True, None, [1]):
        with pytest.raises(FilterError, match="x"):
            check_event({"x": value})  # type: ignore[dict-item]


@given(FILTERS, FILTERS)
def test_filters_overlap_if_some_event_matches_both(f: Filter, g: Filter) -> None:
    both = [event for event in EVENTS if f.matches(event) and g.matches(event)]
    if both:
        assert overlaps(f, g)
    assert overlaps(f, g) == overlaps(g, f)


@given(FILTERS, FILTERS)
def test_a_filter_subsumes_only_what_it_contains(f: Filter, g: Filter) -> None:
    if subsumes(f, g):
        assert [event for event in EVENTS if g.matches(event) and not f.matches(event)] == []


@given(FILTERS)
def test_a_filter_subsumes_and_overlaps_itself(f: Filter) -> None:
    assert subsumes(f, f)
    assert overlaps(f, f)


def test_overlap_needs_every_shared_attribute_or_as_printed_any() -> None:
    f, g = make_filter({"process": "p1", "step": 1}), make_filter({"process": "p2", "step": 1})
    assert not overlaps(f, g)
    assert overlaps(f, g, "any")
    assert not overlaps(f, make_filter({"process": "p2"}), "any")


def test_an_open_end_does_not_overlap_its_neighbour() -> None:
    assert overlaps(make_filter({"x": at_most(1)}), make_filter({"x": at_least(1)}))
    assert not overlaps(make_filter({"x": less_than(1)}), make_filter({"x": at_least(1)}))
    assert not overlaps(make_filter({"x": at_most("a")}), make_filter({"x": at_most(1)}))
