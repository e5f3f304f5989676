"""A recording drives the core to the same answers; whatever its node did otherwise is named, at once and exactly."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.protocol import wire
from broker.protocol.dtx import Prepare, TxPublish
from broker.protocol.messages import Joined, Publish
from labctl.results import histories
from labctl.simulate.recorded import reading
from labctl.simulate.recorded.nodes import LOOK_S_MAX, Deviation, Late, Replayed, Told, replay
from tests.support import recordings
from tests.support.recordings import B2, TX, E, Line

LIFE = recordings.life()


def replayed(folder: Path, lines: list[Line]) -> Replayed:
    """b2 keeps no history: what is compared here is one node with its core."""
    [file] = histories.load(recordings.write(folder, lines)).files
    return replay(reading.recording_of(file))


def put(lines: list[Line], link: str, kind: type) -> int:
    """The place of the first message of this kind on a link."""
    return next(
        place
        for place, line in enumerate(lines)
        if line["name"] == "put" and line["fields"]["link"] == link and type(message_in(line)) is kind
    )


def message_in(line: Line) -> wire.AnyMessage:
    fields = line["fields"]
    return wire.decode(wire.body(b64decode(fields["messages"]), fields["count"]))[0]


def saying(line: Line, message: wire.AnyMessage) -> Line:
    encoded = b64encode(wire.encode(message)).decode()
    return {**line, "fields": {**line["fields"], "messages": encoded}}


def difference(folder: Path, lines: list[Line]) -> Deviation:
    found = replayed(folder, lines).difference
    assert isinstance(found, Deviation)
    return found


def test_what_a_node_did_is_what_its_core_does(tmp_path: Path) -> None:
    found = replayed(tmp_path, LIFE)
    assert found.is_reproduced
    assert (found.arrivals, found.messages) == (23, sum(line["name"] == "put" for line in LIFE))
    assert found.told == sum(
        line["name"] not in ("history", "made", "given", "put", "closed") for line in LIFE
    )


@pytest.mark.parametrize(
    "other",
    [
        Publish(1, {"s": "x", "n": 99}, b"-"),
        TxPublish(TX, 1, "pub", {"s": "x", "n": 5}, b"!"),
        Prepare("E/5/2"),
    ],
)
def test_a_message_that_was_changed_is_named(tmp_path: Path, other: wire.AnyMessage) -> None:
    place = put(LIFE, B2, type(other))
    found = difference(tmp_path, [*LIFE[:place], saying(LIFE[place], other), *LIFE[place + 1 :]])
    assert (found.node, found.link, found.line.number) == ("b1", B2, place + 1)
    assert (found.expected, found.actual) == (message_in(LIFE[place]), other)


def test_a_message_that_was_dropped_is_named_by_the_next_one(tmp_path: Path) -> None:
    place = put(LIFE, B2, TxPublish)
    found = difference(tmp_path, [*LIFE[:place], *LIFE[place + 1 :]])
    assert found.expected == message_in(LIFE[place])
    assert isinstance(found.actual, Prepare)


def test_a_last_message_that_was_dropped_is_named_with_what_should_have_led_to_it(tmp_path: Path) -> None:
    place = max(p for p, line in enumerate(LIFE) if line["name"] == "put" and line["fields"]["link"] == B2)
    found = difference(tmp_path, [*LIFE[:place], *LIFE[place + 1 :]])
    assert (found.expected, found.actual) == (message_in(LIFE[place]), None)
    given = max(p for p, line in enumerate(LIFE[:place]) if line["name"] == "given")
    assert found.line.number == given + 1


def test_a_message_that_was_sent_twice_is_named(tmp_path: Path) -> None:
    place = put(LIFE, E, Joined)
    found = difference(tmp_path, [*LIFE[: place + 1], LIFE[place], *LIFE[place + 1 :]])
    assert (found.link, found.number, found.expected, found.actual) == (E, 2, None, Joined(2))


def test_two_messages_that_changed_places_are_named(tmp_path: Path) -> None:
    first = put(LIFE, B2, Publish)
    second = first + 1
    found = difference(tmp_path, [*LIFE[:first], LIFE[second], LIFE[first], *LIFE[second + 1 :]])
    assert (found.expected, found.actual) == (message_in(LIFE[first]), message_in(LIFE[second]))


@pytest.mark.parametrize(
    "change",
    [
        lambda told: None,
        lambda told: {**told, "fields": {**told["fields"], "tx": "E/5/9"}},
        lambda told: {**told, "name": "aborted"},
    ],
)
def test_what_was_told_otherwise_is_named(tmp_path: Path, change: Callable[[Line], Line | None]) -> None:
    place = next(p for p, line in enumerate(LIFE) if line["name"] == "committed")
    other = change(LIFE[place])
    found = difference(tmp_path, [*LIFE[:place], *([other] if other else []), *LIFE[place + 1 :]])
    assert isinstance(found.expected, Told)
    assert found.expected.name == "committed"
    assert (found.link, found.number) == ("", 0)


def test_an_arrival_that_the_core_never_had_is_seen_by_what_follows(tmp_path: Path) -> None:
    """As if the timer had not fired in time: the vote came after the transaction's lifetime."""
    place = next(p for p, line in enumerate(LIFE) if line["fields"].get("now") == 2.6)
    late = {**LIFE[place], "fields": {"act": "expire", "now": 9.0}}
    found = difference(tmp_path, [*LIFE[:place], late, *LIFE[place:]])
    assert isinstance(found.actual, Told | Prepare)


@pytest.mark.parametrize("pause_s", [5.0, 11.0])
def test_a_timer_that_does_not_fire_while_a_transaction_is_open_is_named(
    tmp_path: Path, pause_s: float
) -> None:
    place = next(p for p, line in enumerate(LIFE) if line["fields"].get("now") == 2.7)
    later = [{**line, "time": line["time"] + pause_s} for line in LIFE[place:]]
    found = replayed(tmp_path, [*LIFE[:place], *later]).difference
    assert isinstance(found, Late) is (pause_s > LOOK_S_MAX)


def test_a_node_at_rest_needs_no_timer(tmp_path: Path) -> None:
    place = next(p for p, line in enumerate(LIFE) if line["fields"].get("now") == 2.2)
    later = [{**line, "time": line["time"] + 100} for line in LIFE[place:]]
    assert replayed(tmp_path, [*LIFE[:place], *later]).is_reproduced


def test_what_a_client_that_is_gone_was_not_sent_is_not_missed(tmp_path: Path) -> None:
    place = max(p for p, line in enumerate(LIFE) if line["name"] == "put" and line["fields"]["link"] == E)
    assert replayed(tmp_path, [*LIFE[:place], *LIFE[place + 1 :]]).is_reproduced
