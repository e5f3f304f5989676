"""What a simulated connection delivers, and what is lost with it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from broker.protocol import wire
from broker.protocol.messages import Accepted
from labctl.simulate.connections import End, SimClock, SimConnection, WatchedLink, WatchedPeer


class Network:
    """Frames arrive one after the other, when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.coming: list[Callable[[], None]] = []

    def due(self, link: tuple[str, str]) -> float:
        return self.now + 1

    def at(self, _time: float, callback: Callable[..., None], *arguments: object) -> None:
        self.coming.append(lambda: callback(*arguments))

    def run(self, steps: int = 1000) -> None:
        while self.coming and steps:
            self.coming.pop(0)()
            steps -= 1


class Holder:
    def __init__(self, hop: str) -> None:
        self.hop = hop
        self.got: list[bytes] = []
        self.lost_ends: list[End] = []

    def receive(self, end: End, sent: float, data: bytes) -> None:
        self.got.append(data)

    def lost(self, end: End) -> None:
        self.lost_ends.append(end)


def frames(count: int) -> list[bytes]:
    return [wire.frame(wire.encode(Accepted(number)), 1, number, 0) for number in range(1, count + 1)]


def connected() -> tuple[Network, Holder, Holder, SimConnection]:
    network, one, other = Network(), Holder("broker:b1"), Holder("broker:b2")
    return network, one, other, SimConnection(network, one, other)


@pytest.mark.parametrize("seed", range(20))
def test_a_lost_connection_has_delivered_the_beginning_of_what_was_in_flight(seed: int) -> None:
    network, one, other, connection = connected()
    written = frames(6)
    for frame in written:
        connection.end.write(frame)
    network.run(steps=2)
    connection.cut(Random(seed))
    connection.end.write(b"x" * 30)
    network.run()
    assert written[:2] == other.got[:2]
    assert other.got == written[: len(other.got)]
    assert [end.holder for end in (*one.lost_ends, *other.lost_ends)] == [one, other]


def test_all_numbers_of_lost_frames_occur() -> None:
    counts = set()
    for seed in range(60):
        network, _, other, connection = connected()
        for frame in frames(3):
            connection.end.write(frame)
        connection.cut(Random(seed))
        network.run()
        counts.add(len(other.got))
    assert counts == {0, 1, 2, 3}


def test_who_aborts_takes_nothing_more_and_what_it_said_before_arrives() -> None:
    network, one, other, connection = connected()
    connection.end.write(frames(1)[0])
    connection.end.other.write(frames(1)[0])
    connection.end.abort()
    network.run()
    assert (len(one.got), len(other.got)) == (0, 1)
    assert not connection.is_open


def test_with_the_dead_goes_what_stands_behind_a_message_and_a_frame_that_holds_it_too() -> None:
    network, _, other, connection = connected()
    messages = [wire.encode(Accepted(number)) for number in range(1, 5)]
    for first in (1, 3):
        connection.end.write(wire.frame(b"".join(messages[first - 1 : first + 1]), 2, first, 0))
    connection.end.heard_until(3)
    network.run()
    assert len(other.got) == 1


def test_a_timer_that_was_cancelled_does_nothing() -> None:
    network, fired = Network(), list[int]()
    clock = SimClock(network, network.coming.append, lambda: network.now)
    clock.call_later(1.0, fired.append, 1).cancel()
    clock.call_later(1.0, fired.append, 2)
    clock.call_soon(fired.append, 3)
    network.run()
    assert fired == [2, 3]


def test_what_is_sent_although_a_window_is_under_way_is_a_fault() -> None:
    faults: list[str] = []
    link = WatchedLink("to b2", 4, faults)
    assert link.pass_on(b"abcd", 1) is not None
    assert link.pass_on(b"e", 1) is None
    link.accept(1, 1, 1)
    assert link.take() is not None
    assert faults == []
    link.window_bytes = 100
    link.pass_on(b"fgh", 1)
    link.pass_on(b"i", 1)
    assert faults == ["to b2: 4 bytes under way, and more is sent"]


def test_who_waits_too_long_for_a_peer_that_does_not_move_is_a_fault() -> None:
    faults: list[str] = []
    for until in (1.1, 1.3):
        network = Network()
        clock = SimClock(network, lambda callback: callback(), lambda: network.now)  # noqa: B023 used in this round
        slow, source = (WatchedPeer(clock, hop, "client") for hop in ("client:slow", "client:source"))
        slow.patience_s = 1.0
        slow.watch(network, faults)
        slow.make_wait(source, lambda _: None)
        network.now = until
        slow.forget(lambda _: None)
    assert faults == ["client:source has waited 1.300 s for client:slow, which did not move"]
