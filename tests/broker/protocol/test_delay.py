"""Emulated link delay, without a clock: the numbers that come out of a delay line."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from broker.protocol.delay import Delay, DelayError, DelayLine
from broker.transport.delayed import LEAD_S_INITIAL, LEAD_S_MAX, DelayedSender

MESSAGES = 4000
FAR_APART_S = 10.0
"""Between messages, so that none has to wait for the one ahead of it."""


def delays_ms(
    delay: Delay, link: str = "b1>b2", gap_s: float = FAR_APART_S, count: int = MESSAGES
) -> list[float]:
    line = DelayLine(delay, link)
    return [1e3 * (line.due(i * gap_s) - i * gap_s) for i in range(count)]


def test_a_plain_delay_is_exactly_what_was_asked() -> None:
    assert delays_ms(Delay(delay_ms=2.2), count=100) == pytest.approx([2.2] * 100)


def test_a_log_normal_delay_has_the_asked_median_and_spread() -> None:
    delays = delays_ms(Delay(delay_ms=2.2, sigma=0.3))
    assert statistics.median(delays) == pytest.approx(2.2, rel=0.02)
    # One standard deviation of the logarithm: exp(0.3) times the median, at the 84th percentile.
    assert statistics.quantiles(delays, n=100)[83] == pytest.approx(2.2 * 1.35, rel=0.03)
    assert min(delays) > 0


def test_messages_never_overtake_each_other() -> None:
    line = DelayLine(Delay(delay_ms=2, sigma=1, stall_probability=0.05), "b1>b2")
    dues = [line.due(i * 1e-4) for i in range(MESSAGES)]
    assert dues == sorted(dues)


def test_a_message_waits_behind_a_slower_one() -> None:
    line = DelayLine(Delay(stall_probability=1, stall_ms=(100, 100)), "b1>b2")
    calm = DelayLine(Delay(delay_ms=1), "b1>b2")
    assert line.due(0.0) == pytest.approx(0.1)
    assert calm.due(0.0) == pytest.approx(0.001)
    assert calm.due(0.0) == calm.due(0.0)


def test_the_same_seed_and_link_give_the_same_delays() -> None:
    delay = Delay(delay_ms=2.2, sigma=0.5, stall_probability=0.01, seed=7)
    assert delays_ms(delay, "b1>b2", count=500) == delays_ms(delay, "b1>b2", count=500)


@pytest.mark.parametrize(
    ("seed", "link"), [(7, "b2>b1"), (7, "b1>b3"), (8, "b1>b2")], ids=["back", "other link", "other seed"]
)
def test_another_direction_link_or_seed_gives_other_delays(seed: int, link: str) -> None:
    ours = delays_ms(Delay(delay_ms=2.2, sigma=0.5, seed=7), "b1>b2", count=50)
    theirs = delays_ms(Delay(delay_ms=2.2, sigma=0.5, seed=seed), link, count=50)
    assert all(a != b for a, b in zip(ours, theirs, strict=True))


def test_stalls_come_as_often_and_last_as_long_as_asked() -> None:
    delays = delays_ms(Delay(delay_ms=1, stall_probability=0.02, stall_ms=(60, 120)))
    stalls = [delay - 1 for delay in delays if delay > 2]
    assert len(stalls) == pytest.approx(0.02 * MESSAGES, rel=0.3)
    assert 60 <= min(stalls) < 65
    assert 115 < max(stalls) <= 120


def test_stalls_leave_the_jitter_of_other_messages_as_it_was() -> None:
    calm = delays_ms(Delay(delay_ms=2.2, sigma=0.3), count=500)
    stalling = delays_ms(Delay(delay_ms=2.2, sigma=0.3, stall_probability=0.1), count=500)
    changed = [b - a for a, b in zip(calm, stalling, strict=True) if a != b]
    assert 0 < len(changed) < 100
    assert all(60 <= difference <= 120 for difference in changed)


def test_zero_means_that_nothing_is_emulated() -> None:
    assert Delay().is_zero
    assert Delay(sigma=0.5).is_zero
    assert not Delay(delay_ms=0.1).is_zero
    assert not Delay(stall_probability=0.1).is_zero


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"delay_ms": -1}, "delay_ms is -1; it must be between 0 and 60000"),
        ({"delay_ms": float("nan")}, "delay_ms is nan; it must be between 0 and 60000"),
        ({"delay_ms": float("inf")}, "delay_ms is inf; it must be between 0 and 60000"),
        ({"delay_ms": 60_001}, "delay_ms is 60001; it must be between 0 and 60000"),
        ({"sigma": -0.1}, "sigma is -0.1; it must be between 0 and 3"),
        ({"stall_probability": 1.5}, "stall_probability is 1.5; it must be between 0 and 1"),
        ({"stall_ms": (-1, 2)}, "the shorter stall_ms is -1; it must be between 0 and 60000"),
        ({"stall_ms": (120, 60)}, "stall_ms goes from 120 to 60; the shorter stall comes first"),
    ],
)
def test_an_impossible_delay_is_refused_with_the_reason(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DelayError, match=f"^{sentence}$"):
        Delay(**fields)


def test_a_configuration_with_an_impossible_delay_says_where_it_stands() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"delay_ms is -1.* - at `\$\[0\]`"):
        msgspec.convert([{"delay_ms": -1}], list[Delay])
    with pytest.raises(msgspec.ValidationError, match="unknown field `delay`"):
        msgspec.convert({"delay": 1}, Delay)


class FakeTimer:
    """Remembers when it is set to; the test moves the clock."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.when: float | None = None
        self.is_closed = False

    def set(self, when: float) -> None:
        self.when = when

    def cancel(self) -> None:
        self.when = None

    def close(self) -> None:
        self.is_closed = True


class Bench:
    """A delayed sender under a clock that stands still until `wake` moves it."""

    def __init__(self, delay: Delay) -> None:
        self.now = 100.0
        self.released: list[list[str]] = []
        self.timers: list[FakeTimer] = []
        self.sender: DelayedSender[str] = DelayedSender(
            DelayLine(delay, "b1>b2"), self.released.append, self._make_timer, lambda: self.now
        )

    def wake(self, late_s: float = 0.0) -> None:
        timer = self.timers[0]
        assert timer.when is not None
        self.now, timer.when = timer.when + late_s, None
        timer.callback()

    def _make_timer(self, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(callback))
        return self.timers[-1]


def test_the_sender_releases_in_order_and_together_what_is_due_together() -> None:
    bench = Bench(Delay(delay_ms=2))
    for item in "abc":
        bench.sender.push(item)
    bench.now += 1e-3
    bench.sender.push("d")
    assert (bench.released, len(bench.sender)) == ([], 4)
    bench.wake(late_s=LEAD_S_INITIAL)
    assert (bench.released, len(bench.sender)) == ([["a", "b", "c"]], 1)
    bench.wake(late_s=LEAD_S_INITIAL)
    assert (bench.released, len(bench.sender)) == ([["a", "b", "c"], ["d"]], 0)


def test_a_message_without_delay_leaves_at_once_unless_one_is_ahead_of_it() -> None:
    bench = Bench(Delay())
    bench.sender.push("a")
    assert bench.released == [["a"]]


@pytest.mark.parametrize("latency_s", [0.0, 30e-6, 90e-6, 300e-6, 700e-6])
def test_the_sender_learns_how_late_its_wake_ups_are(latency_s: float) -> None:
    bench = Bench(Delay(delay_ms=2))
    errors: list[float] = []
    for _ in range(300):
        asked = bench.now + 2e-3
        bench.sender.push("x")
        bench.wake(late_s=latency_s)
        errors.append(bench.now - asked)
    assert len(bench.released) == 300
    assert statistics.median(errors[-50:]) == pytest.approx(max(0.0, latency_s - LEAD_S_MAX), abs=3e-6)
    assert bench.sender.lead_s <= LEAD_S_MAX


def test_flush_now_releases_everything_and_close_drops_what_is_left() -> None:
    bench = Bench(Delay(delay_ms=2))
    bench.sender.push("a")
    bench.sender.push("b")
    bench.sender.flush_now()
    assert bench.released == [["a", "b"]]
    bench.sender.push("c")
    bench.sender.close()
    bench.sender.close()
    assert (bench.released, len(bench.sender), bench.timers[0].is_closed) == ([["a", "b"]], 0, True)
    with pytest.raises(RuntimeError, match="closed"):
        bench.sender.push("d")


def test_a_late_wake_up_after_a_flush_releases_nothing() -> None:
    bench = Bench(Delay(delay_ms=2))
    bench.sender.push("a")
    bench.sender.flush_now()
    bench.wake()
    assert bench.released == [["a"]]
