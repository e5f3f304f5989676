"""Filters and events: what a subscription or an advertisement says, and how two of them relate.

A filter is one predicate per named attribute; an attribute that it does not name is unconstrained.
A predicate is a single value, an `Interval`, or a set of values (`OneOf`). Numbers and strings are
two separate ordered worlds: `int` and `float` compare exactly, `bool` and NaN are refused.

Pure: no I/O, no state. Matching many filters at once is the business of `broker.matching.index`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

from msgspec import Struct

Value = int | float | str
Event = dict[str, Value]
Overlap = Literal["all", "any"]

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1
"""The integers that the wire can carry."""


class FilterError(ValueError):
    """A filter or an event that cannot mean anything; the text says which attribute and why."""


class Interval(Struct, frozen=True, array_like=True, tag="i", gc=False):
    """Values between `low` and `high`; an end that is None is open-ended; no end at all: any value."""

    low: Value | None = None
    high: Value | None = None
    low_open: bool = False
    high_open: bool = False

    def contains(self, value: Value) -> bool:
        low, high = self.low, self.high
        if low is not None:
            if isinstance(low, str) is not isinstance(value, str):
                return False
            if value < low or (self.low_open and value == low):  # type: ignore[operator]
                return False
        if high is not None:
            if isinstance(high, str) is not isinstance(value, str):
                return False
            if value > high or (self.high_open and value == high):  # type: ignore[operator]
                return False
        return True


class OneOf(Struct, frozen=True, array_like=True, tag="o", gc=False):
    """One of several values, kept sorted (numbers before strings) and without repetition."""

    values: tuple[Value, ...]

    def contains(self, value: Value) -> bool:
        return value in self.values


Predicate = int | float | str | Interval | OneOf
"""What the wire carries for one attribute; a plain value means equality."""


class Filter(Struct, frozen=True, array_like=True, gc=False):
    """One predicate per named attribute; names are sorted. Build it with `make_filter`."""

    names: tuple[str, ...]
    predicates: tuple[Predicate, ...]

    def matches(self, event: Mapping[str, Value]) -> bool:
        """Definition 2.2 for a point: an event that lacks a constrained attribute does not match."""
        for name, predicate in zip(self.names, self.predicates, strict=True):
            value = event.get(name)
            if value == predicate:
                continue
            if value is None or not isinstance(predicate, (Interval, OneOf)) or not predicate.contains(value):
                return False
        return True

    def as_mapping(self) -> dict[str, Predicate]:
        return dict(zip(self.names, self.predicates, strict=True))

    def __str__(self) -> str:
        parts = (f"{name} {describe(p)}" for name, p in zip(self.names, self.predicates, strict=True))
        return "{" + ", ".join(parts) + "}"


def between(low: Value, high: Value) -> Interval:
    """Both ends included."""
    return Interval(low, high)


def at_least(low: Value) -> Interval:
    return Interval(low, None)


def at_most(high: Value) -> Interval:
    return Interval(None, high)


def more_than(low: Value) -> Interval:
    return Interval(low, None, low_open=True)


def less_than(high: Value) -> Interval:
    return Interval(None, high, high_open=True)


def anything() -> Interval:
    """The attribute must be there; its value does not matter."""
    return Interval()


def one_of(*values: Value) -> OneOf:
    if not values:
        raise FilterError("one_of() needs at least one value")
    for value in values:
        check_value("one_of", value)
    return OneOf(tuple(sorted(set(values), key=_sort_key)))


def make_filter(constraints: Mapping[str, Any]) -> Filter:
    """A filter from what people write: `{"process": "p1", "step": between(1, 9)}`."""
    if not isinstance(constraints, Mapping):
        raise FilterError(f"a filter is a mapping of attributes to values, not {type(constraints).__name__}")
    try:
        names = tuple(sorted(constraints))
        built = Filter(names, tuple([constraints[name] for name in names]))
        if is_plain(built):
            return built
    except TypeError:
        pass  # a name is no string: said below
    names = tuple(sorted(_check_name(name) for name in constraints))
    built = Filter(names, tuple(_as_predicate(name, constraints[name]) for name in names))
    check_filter(built)
    return built


def is_plain(filter_: Filter, text_length_max: int = INTEGER_MAX) -> bool:
    """Whether a filter asks for strings and integers, and is as it should be: most do, and are. The others
    deserve a closer look. Names have to be strings."""
    names, predicates = filter_.names, filter_.predicates
    last = ""
    for name in names:
        if name <= last or len(name) > text_length_max:
            return False
        last = name
    for predicate in predicates:
        if type(predicate) is str:
            if len(predicate) > text_length_max:
                return False
        elif type(predicate) is not int or not INTEGER_MIN <= predicate <= INTEGER_MAX:
            return False
    return len(names) == len(predicates)


def check_filter(filter_: Filter) -> None:
    """Refuse what no honest peer sends: the decoder has only checked the types."""
    if is_plain(filter_):
        return
    names = filter_.names
    if len(names) != len(filter_.predicates):
        raise FilterError(f"a filter with {len(names)} names and {len(filter_.predicates)} predicates")
    if any(a >= b for a, b in pairwise(names)):
        raise FilterError("a filter's attribute names must be sorted and different")
    for name, predicate in zip(names, filter_.predicates, strict=True):
        _check_name(name)
        _check_predicate(name, predicate)


def check_event(event: Mapping[str, Value]) -> None:
    for name, value in event.items():
        _check_name(name)
        check_value(name, value)


def check_value(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise FilterError(f"attribute {name!r}: a value is a number or a string, not {type(value).__name__}")
    if isinstance(value, float) and math.isnan(value):
        raise FilterError(f"attribute {name!r}: NaN is not a value")
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise FilterError(f"attribute {name!r}: the integer {value} does not fit in 64 bits")


def admits(predicate: Predicate, value: Value) -> bool:
    if isinstance(predicate, (Interval, OneOf)):
        return predicate.contains(value)
    return predicate == value


def overlaps(f: Filter, g: Filter, mode: Overlap = "all") -> bool:
    """Definition 2.1, corrected: every attribute named by both must intersect.

    The paper prints *some* attribute, which lets `{process p1, step 1}` overlap `{process p2, step 1}`;
    that reading is `mode="any"`. Filters that share no attribute overlap in both.
    """
    shared = False
    others = g.names
    for name, predicate in zip(f.names, f.predicates, strict=True):
        if name not in others:
            continue
        shared = True
        other = g.predicates[others.index(name)]
        if predicate == other or intersects(predicate, other):
            if mode == "any":
                return True
        elif mode == "all":
            return False
    return mode == "all" or not shared


def subsumes(f: Filter, g: Filter) -> bool:
    """Definition 2.2: every event that matches g matches f."""
    others = dict(zip(g.names, g.predicates, strict=True))
    for name, predicate in zip(f.names, f.predicates, strict=True):
        other = others.get(name)
        if other is None or not _contains_all(predicate, other):
            return False
    return True


def intersection_within(f: Filter, g: Filter, cover: Filter) -> bool:
    """Whether every event that matches both f and g also matches `cover`.

    Sufficient, not necessary: per attribute of `cover`, f or g alone must lie inside it.
    """
    fs, gs = f.as_mapping(), g.as_mapping()
    for name, predicate in zip(cover.names, cover.predicates, strict=True):
        inside = any(name in side and _contains_all(predicate, side[name]) for side in (fs, gs))
        if not inside:
            return False
    return True


def intersects(p: Predicate, q: Predicate) -> bool:
    if not isinstance(p, (Interval, OneOf)) and not isinstance(q, (Interval, OneOf)):
        return p == q
    if isinstance(p, Interval) and isinstance(q, Interval):
        return _intervals_intersect(p, q)
    if isinstance(p, Interval):
        p, q = q, p
    if isinstance(p, OneOf):
        return any(admits(q, value) for value in p.values)
    assert not isinstance(p, Interval)
    return admits(q, p)


def describe(predicate: Predicate) -> str:
    """A predicate as a person writes it."""
    if isinstance(predicate, OneOf):
        return "in " + "{" + ", ".join(map(repr, predicate.values)) + "}"
    if not isinstance(predicate, Interval):
        return f"= {predicate!r}"
    if predicate.low is None and predicate.high is None:
        return "is anything"
    if predicate.low is None:
        return f"{'<' if predicate.high_open else '<='} {predicate.high!r}"
    if predicate.high is None:
        return f"{'>' if predicate.low_open else '>='} {predicate.low!r}"
    left, right = "(" if predicate.low_open else "[", ")" if predicate.high_open else "]"
    return f"in {left}{predicate.low!r}, {predicate.high!r}{right}"


def _intervals_intersect(p: Interval, q: Interval) -> bool:
    kinds = {isinstance(end, str) for end in (p.low, p.high, q.low, q.high) if end is not None}
    if len(kinds) > 1:
        return False
    return _ordered(p, q) and _ordered(q, p)


def _ordered(p: Interval, q: Interval) -> bool:
    """p does not begin behind the end of q."""
    if p.low is None or q.high is None:
        return True
    if p.low == q.high:
        return not (p.low_open or q.high_open)
    return p.low < q.high  # type: ignore[operator]


def _contains_all(outer: Predicate, inner: Predicate) -> bool:
    if isinstance(inner, OneOf):
        return all(admits(outer, value) for value in inner.values)
    if not isinstance(inner, Interval):
        return admits(outer, inner)
    if isinstance(outer, OneOf) or not isinstance(outer, Interval):
        point = inner.low is not None and inner.low == inner.high
        return point and admits(outer, inner.low)  # type: ignore[arg-type]
    return _starts_before(outer, inner) and _ends_after(outer, inner)


def _starts_before(outer: Interval, inner: Interval) -> bool:
    if outer.low is None:
        return outer.high is None or _same_world(outer.high, inner)
    if inner.low is None or isinstance(outer.low, str) is not isinstance(inner.low, str):
        return False
    if outer.low == inner.low:
        return inner.low_open or not outer.low_open
    return outer.low < inner.low  # type: ignore[operator]


def _ends_after(outer: Interval, inner: Interval) -> bool:
    if outer.high is None:
        return outer.low is None or _same_world(outer.low, inner)
    if inner.high is None or isinstance(outer.high, str) is not isinstance(inner.high, str):
        return False
    if outer.high == inner.high:
        return inner.high_open or not outer.high_open
    return outer.high > inner.high  # type: ignore[operator]


def _same_world(end: Value, inner: Interval) -> bool:
    """`inner` has an end, and it is a number where `end` is one and a string where it is a string."""
    return any(isinstance(end, str) is isinstance(e, str) for e in (inner.low, inner.high) if e is not None)


def _as_predicate(name: str, given: object) -> Predicate:
    if isinstance(given, (Interval, OneOf)):
        return given
    if isinstance(given, (set, frozenset, list, tuple)):
        return one_of(*_values(name, given))
    check_value(name, given)
    return given  # type: ignore[return-value]


def _values(name: str, given: Iterable[object]) -> list[Value]:
    values: list[Value] = []
    for value in given:
        check_value(name, value)
        values.append(value)  # type: ignore[arg-type]
    if not values:
        raise FilterError(f"attribute {name!r}: an empty set of values matches nothing")
    return values


def _check_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise FilterError(f"an attribute's name is a non-empty string, not {name!r}")
    return name


def _check_predicate(name: str, predicate: Predicate) -> None:
    if isinstance(predicate, OneOf):
        _check_one_of(name, predicate)
    elif isinstance(predicate, Interval):
        _check_interval(name, predicate)
    else:
        check_value(name, predicate)


def _check_one_of(name: str, predicate: OneOf) -> None:
    for value in _values(name, predicate.values):
        check_value(name, value)
    keys = [_sort_key(value) for value in predicate.values]
    if any(a >= b for a, b in pairwise(keys)):
        raise FilterError(f"attribute {name!r}: a set's values must be sorted and different")


def _check_interval(name: str, interval: Interval) -> None:
    low, high = interval.low, interval.high
    for end in (low, high):
        if end is not None:
            check_value(name, end)
    if low is None or high is None:
        return
    if isinstance(low, str) is not isinstance(high, str):
        raise FilterError(f"attribute {name!r}: an interval from {low!r} to {high!r} mixes number and string")
    if low > high or (low == high and (interval.low_open or interval.high_open)):  # type: ignore[operator]
        raise FilterError(f"attribute {name!r}: the interval {describe(interval)} is empty")


def _sort_key(value: Value) -> tuple[bool, Any]:
    return (isinstance(value, str), value)
