"""One order of what several brokers were given."""

from __future__ import annotations

import pytest

from broker.protocol import wire
from broker.protocol.limits import Limits
from broker.protocol.messages import Publish
from broker.recorded import Given, Made, Put
from labctl.results.histories import Line
from labctl.simulate.recorded import schedule
from labctl.simulate.recorded.reading import RecordedLine, Recording

MESSAGE = wire.encode(Publish(1, {"x": 1}, b""))
What = Given | Put


def recording(node: str, neighbour: str, ahead: float, *told: tuple[float, What]) -> Recording:
    entries = [
        RecordedLine(Line(node, number, time + ahead, "", {}), what)
        for number, (time, what) in enumerate(told, 3)
    ]
    return Recording(Made(node, (neighbour,), 1, "all", Limits()), tuple(entries))


def to(node: str, first: int) -> Put:
    return Put(f"broker:{node}", 1, first, 1, MESSAGE)


def came(node: str, count: int = 1) -> Given:
    return Given("decide", 0.0, f"broker:{node}", count, MESSAGE * count)


def timer(now: float) -> Given:
    return Given("expire", now)


def order(*recordings: Recording) -> list[tuple[str, str, float]]:
    steps = schedule.merge(recordings).steps
    return [(step.node, step.given.act, round(step.time, 6)) for step in steps]


@pytest.mark.parametrize("ahead", [0.0, 1000.0, -1000.0])
def test_the_clocks_decide_among_what_nothing_else_does(ahead: float) -> None:
    """b1 and b2 on one machine, or on two whose clocks differ; each message needs 1 ms."""
    one = recording("b1", "b2", 0.0, (1.0, to("b2", 1)), (1.003, came("b2")), (1.004, timer(1)))
    other = recording(
        "b2", "b1", ahead, (1.001, came("b1")), (1.002, to("b1", 1)), (1.0035, timer(1)), (1.0045, timer(1))
    )
    found = [(node, time) for node, _, time in order(one, other)]
    assert found == [("b2", 1.001), ("b1", 1.003), ("b2", 1.0035), ("b1", 1.004), ("b2", 1.0045)]


def test_what_came_waits_until_all_of_it_has_left() -> None:
    """Lines of two processes are not timed to the microsecond: an arrival may be told before the departure."""
    one = recording("b1", "b2", 0.0, (1.0, timer(1)), (1.1, to("b2", 1)), (1.2, timer(1)), (1.3, to("b2", 2)))
    other = recording("b2", "b1", 0.0, (1.25, came("b1", 2)), (1.26, timer(1)), (1.27, to("b1", 1)))
    acts = [(node, act) for node, act, _ in order(one, other)]
    assert acts == [("b1", "expire"), ("b1", "expire"), ("b2", "decide"), ("b2", "expire")]
