"""Lines of a recording: there and back again, for whatever a core can be given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from broker import recorded
from broker.core import Input
from broker.protocol.dtx import Ended
from broker.protocol.events import RECORDING, is_kept
from broker.protocol.limits import Limits
from broker.protocol.messages import Joined, Publish
from broker.protocol.wire import encode
from broker.recorded import Given, Made, Put
from broker.routing.joining import ClientArrived, ClientAway, ClientBack, ClientGone


def through_json(line: Made | Given | Put) -> Any:
    text = msgspec.json.encode(line)
    return msgspec.convert(msgspec.json.decode(text), type(line))


@pytest.mark.parametrize(
    "message",
    [
        ClientArrived(5),
        ClientAway(),
        ClientBack(),
        ClientGone("it said goodbye"),
        Ended("E/5/1", committed=False, reason="because"),
    ],
)
def test_what_a_core_handles_comes_back_as_it_was(message: Input) -> None:
    given = recorded.handled(0.1 + 0.2, "client:E", message)
    assert through_json(given) == given
    assert (given.first, given.now) == (message, 0.1 + 0.2)


def test_publications_that_are_decided_on_together_stay_together() -> None:
    messages = [Publish(n, {"x": n, "y": 0.5, "z": "ä"}, bytes(range(n))) for n in range(3)]
    given = recorded.decided("broker:b2", messages)
    assert list(through_json(given).all()) == messages


def test_what_a_core_was_made_of_makes_another_one() -> None:
    made = Made("b1", ("b2", "b3"), 7, "any", Limits(attributes_max=3))
    core = through_json(made).core()
    assert (core.id, core.neighbours, core.incarnation) == ("b1", ("broker:b2", "broker:b3"), 7)
    assert (core.routing.overlap, core.limits) == ("any", Limits(attributes_max=3))


def test_messages_on_a_link_are_cut_apart() -> None:
    messages = [Joined(3), Publish(1, {"x": 1}, b"-")]
    put = Put("client:E", 2, 8, 2, b"".join(map(encode, messages)))
    assert list(through_json(put).all()) == messages


def test_only_the_highest_level_keeps_a_recording() -> None:
    for name in RECORDING:
        assert is_kept("all", name, {})
        assert not is_kept("transactions", name, {"tx": "t"})
        assert not is_kept("outcomes", name, {})
