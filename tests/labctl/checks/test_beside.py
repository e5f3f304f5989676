"""Regular publications beside transactions and behind them: what must have reached somebody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.protocol.filters import Event
from labctl.checks import beside, properties
from labctl.checks.history import History
from labctl.simulate.epilogue import last_words
from tests.support.scripted import Script, adv, ask, line, pub, sub, usub

HOMES = {"E": "b1", "D": "b2", "A": "b3"}


def moved(*body: Any) -> Script:
    script = Script(line("b1", "b2", "b3"), HOMES, [("E", adv(0)), ("D", sub(0))])
    script.transaction("E", "d-tx-ni", *(body or (ask("D", ask("A", sub(0)), usub(0)),)))
    for time in range(40):
        script.regular("E", pub(0), at=time)
    return script.run()


def lost(script: Script) -> History:
    """As if the last regular publication had reached nobody."""
    history = script.history
    last = history.regular["E"][-1].op
    history.deliveries = [d for d in history.deliveries if d.op != last]
    return history


def test_an_event_that_is_moved_reaches_the_old_or_the_new_owner() -> None:
    script = moved()
    assert beside.regular_faults(script.history)[0] == []
    (fault,) = beside.regular_faults(lost(script))[0]
    assert fault.endswith("reached nobody, and at every moment somebody was subscribed")


def test_an_event_that_is_only_taken_away_may_reach_nobody() -> None:
    assert beside.regular_faults(lost(moved(ask("D", usub(0)))))[0] == []


def test_owners_that_give_to_each_other_at_the_same_time_may_leave_nobody() -> None:
    assert beside._agree([["t1", "t2"], ["t2", "t3"]])
    assert not beside._agree([["t1", "t2"], ["t2", "t1"]])
    assert not beside._agree([["t1", "t2", "t1"]])


def no_library(word: beside.LastWord) -> None:
    word.is_let_through = not word.is_let_through


def no_broker(word: beside.LastWord) -> None:
    word.is_refused = not word.is_refused


def no_receiver(word: beside.LastWord) -> None:
    word.receivers.append("D")


def no_admission(word: beside.LastWord) -> None:
    word.admitting ^= {"b2"}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("change", [no_library, no_broker, no_receiver, no_admission])
def test_last_words_are_compared_with_what_clients_have_done(
    change: Callable[[beside.LastWord], None], place: int
) -> None:
    """Of E, which advertises 0, and of D, which does not."""
    script = moved()
    brokers = tuple(script.world.brokers)
    events: list[Event] = [{"s": "d", "x": 0}]
    words = last_words(script.world, events)
    assert [(word.client, word.is_let_through, word.receivers) for word in words] == [
        ("E", True, ["A"]),
        ("D", False, []),
        ("A", False, []),
    ]
    history = script.history
    assert properties.last_act(history, words, brokers).answer == "valid"
    change(words[place])
    assert len(properties.last_act(history, words, brokers).faults) == 1
