"""What is put down of a core: each word of it, and that time does not go back."""

from __future__ import annotations

from broker.protocol.messages import Announce
from labctl.simulate.linked import LinkedWorld
from labctl.simulate.watched import ROUNDED_S

NEIGHBOUR = "broker:b2"


def world() -> LinkedWorld:
    return LinkedWorld([("b1", "b2")], window_bytes=1000)


def test_what_a_core_is_given_and_says_is_put_down() -> None:
    found = world()
    assert found.account.checked > 0
    assert (found.account.faults, found.account.left()) == ([], [])
    found.nodes["b1"].core.handle(found.now, NEIGHBOUR, Announce("b9", 9, ""))
    assert len(found.account.faults) == 1, "nobody has said it"


def test_nothing_is_put_down_of_what_is_done_again() -> None:
    found = world()
    node = found.nodes["b1"]
    node.is_recovering = True
    node.core.handle(found.now, NEIGHBOUR, Announce("b9", 9, ""))
    assert found.account.faults == []


def test_time_that_goes_back_is_a_fault() -> None:
    found = world()
    core = found.nodes["b1"].core
    for now in (5.0, 5.0 - ROUNDED_S / 2, 6.0):
        core.expire(now)
    assert found.account.crash_faults == []
    core.expire(4.0)
    assert found.account.crash_faults == ["time goes back by 2.000 s at broker:b1"]
