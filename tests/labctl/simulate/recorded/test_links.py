"""Between two brokers that have both written down what they saw."""

from __future__ import annotations

from broker.protocol import wire
from broker.protocol.limits import Limits
from broker.protocol.messages import Publish
from broker.recorded import Given, Made, Put
from labctl.results.histories import Line
from labctl.simulate.recorded import links
from labctl.simulate.recorded.reading import RecordedLine, Recording

THREE = [Publish(number, {"x": number}, b"") for number in range(3)]


def encoded(messages: list[Publish]) -> bytes:
    return b"".join(map(wire.encode, messages))


def recording(broker: str, neighbour: str, *entries: Given | Put) -> Recording:
    lines = [RecordedLine(Line(broker, n, 0.5 * n, "", {}), entry) for n, entry in enumerate(entries, 3)]
    return Recording(Made(broker, (neighbour,), 1, "all", Limits()), tuple(lines))


def between(left: list[Publish], *came: list[Publish]) -> links.LinkReplay:
    """What comes of it, from b1 to b2."""
    source = recording("b1", "b2", Put("broker:b2", 1, 1, len(left), encoded(left)))
    arrivals = [Given("decide", 0.0, "broker:b1", len(each), encoded(each)) for each in came]
    target = recording("b2", "b1", *arrivals)
    [found] = [link for link in links.compare([source, target]) if link.source == "b1"]
    return found


def test_what_left_has_come_whatever_the_frames() -> None:
    assert between(THREE, THREE[:1], THREE[1:]) == links.LinkReplay("b1", "b2", 3, None)


def test_what_was_still_on_its_way_is_not_missed() -> None:
    assert between(THREE, THREE[:2]).altered is None


def test_a_message_that_did_not_come_is_named_by_the_next_one() -> None:
    altered = between(THREE, [THREE[0], THREE[2]]).altered
    assert altered is not None
    assert (altered.number, altered.left, altered.came) == (2, THREE[1], THREE[2])


def test_a_message_that_came_twice_is_named() -> None:
    altered = between(THREE, THREE, THREE[2:]).altered
    assert altered is not None
    assert (altered.number, altered.left, altered.came, altered.line.time) == (4, None, THREE[2], 2.0)


def test_a_broker_that_lived_twice_is_left_out() -> None:
    one = recording("b1", "b2")
    assert links.compare([one, one]) == []
