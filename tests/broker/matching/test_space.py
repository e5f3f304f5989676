"""A publication space: of what was advertised and taken back, the newest that contains an event decides."""

from __future__ import annotations

import time
from random import Random

import pytest

from broker.matching.space import PARTS_MAX, Space
from broker.protocol.filters import Event, Filter, Predicate, between, make_filter


def random_filter(random: Random) -> Filter:
    low = random.randrange(20)
    n: Predicate = random.choice((low, between(low, low + random.randrange(5))))
    return make_filter(
        random.choice(({"n": n}, {"n": n, "m": random.randrange(5)}, {"m": random.randrange(5)}))
    )


@pytest.mark.parametrize("seed", range(10))
def test_it_agrees_with_the_definition_whether_it_has_few_parts_or_many(seed: int) -> None:
    random = Random(seed)
    space, log = Space(), list[tuple[bool, Filter]]()
    points = [{"n": n, "m": m} for n in range(25) for m in range(5)] + [{"n": 3}, {"m": 1}, {}]
    for step in range(4 * PARTS_MAX):
        positive, filter_ = random.random() < 0.7, random_filter(random)
        space.change(positive, filter_)
        log.append((positive, filter_))
        if step % 8 and step > 20:
            continue
        for point in points:
            expected = next((is_in for is_in, f in reversed(log) if f.matches(point)), False)
            assert space.contains(dict(point)) is expected, (seed, step, point)


def test_thousands_of_advertisements_cost_no_more_each_than_hundreds() -> None:
    """All of one client's, which must not keep the others waiting."""
    space = Space()
    began = time.process_time()
    for n in range(20_000):
        space.change(True, make_filter({"n": n}))
    for _ in range(20_000):
        assert not space.contains({"n": -1})
    assert time.process_time() - began < 5.0
    assert space.contains({"n": 19_999})


def test_taking_back_what_was_advertised_leaves_no_trace() -> None:
    space = Space()
    space.change(True, make_filter({"process": "p1"}))
    for instance in range(10 * PARTS_MAX):
        space.change(True, make_filter({"process": "p2", "instance": instance}))
        space.change(False, make_filter({"process": "p2", "instance": instance}))
    assert len(space._parts) == 1


def test_a_hole_that_is_left_alone_contains_nothing() -> None:
    space = Space()
    space.change(True, make_filter({"n": between(0, 5)}))
    space.change(False, make_filter({"n": between(4, 9)}))
    space.change(False, make_filter({"n": between(0, 6)}))
    assert not any(space.contains({"n": n}) for n in range(10))


@pytest.mark.parametrize("changes", [PARTS_MAX // 2, 4 * PARTS_MAX])
def test_its_parts_make_the_same_space_again(changes: int) -> None:
    random = Random(changes)
    space, again = Space(), Space()
    again.change(True, make_filter({"other": 1}))
    for _ in range(changes):
        space.change(random.random() < 0.7, random_filter(random))
    again.renew(space.parts())
    points: list[Event] = [{"n": n, "m": m} for n in range(25) for m in range(5)]
    points += [{"n": 3}, {"m": 1}, {"other": 1}]
    assert [again.contains(point) for point in points] == [space.contains(point) for point in points]
