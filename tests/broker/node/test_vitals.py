"""Node vitals: what is in a sample, and when it is taken. Its real cost is measured in test_vitals_cost."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import pytest
import uvloop

from broker.node import vitals
from broker.node.vitals import Vitals, VitalsRecord


class Clockwork:
    """A clock, a processor clock and a timer that the test turns by hand."""

    def __init__(self) -> None:
        self.now = 50.0
        self.cpu = 3.0
        self.when: float | None = None
        self.callback: Callable[[], None] | None = None
        self.records: list[VitalsRecord] = []
        self.vitals = Vitals(self.records.append, self._make_timer, lambda: self.now, lambda: self.cpu)

    def _make_timer(self, callback: Callable[[], None]) -> Clockwork:
        self.callback = callback
        return self

    def set(self, when: float) -> None:
        self.when = when

    def cancel(self) -> None:
        self.when = None

    def close(self) -> None:
        self.when = self.callback = None

    def tick(self, late_s: float = 0.0, cpu_s: float = 0.0) -> None:
        assert self.when is not None
        assert self.callback is not None
        self.now = self.when + late_s
        self.cpu += cpu_s
        self.callback()

    def run_until(self, end: float, cpu_per_tick_s: float = 0.0) -> int:
        ticks = 0
        while self.when is not None and self.when <= end:
            self.tick(cpu_s=cpu_per_tick_s)
            ticks += 1
        return ticks


@pytest.fixture
def clockwork() -> Clockwork:
    made = Clockwork()
    made.vitals.start()
    return made


def test_a_sample_says_processor_time_memory_and_lag(clockwork: Clockwork) -> None:
    clockwork.tick(late_s=0.0125, cpu_s=0.25)
    clockwork.run_until(51.2)
    record = clockwork.vitals.latest
    assert record is not None
    assert clockwork.records[0] == record
    assert set(record) == {"event", "cpu_percent", "cpu_s", "rss_bytes", "loop_lag_ms_max"}
    assert record["event"] == "vitals"
    assert record["cpu_percent"] == pytest.approx(25, rel=0.1)
    assert record["cpu_s"] == 3.25
    assert record["loop_lag_ms_max"] == 12.5
    assert record["rss_bytes"] is not None
    assert 1 << 20 < record["rss_bytes"] < 1 << 40
    clockwork.vitals.stop()


def test_the_lag_of_one_second_is_not_told_again_in_the_next(clockwork: Clockwork) -> None:
    clockwork.tick(late_s=0.3)
    clockwork.run_until(53.5)
    assert [record["loop_lag_ms_max"] for record in clockwork.records] == [300, 0, 0]
    clockwork.vitals.stop()


def test_a_process_at_rest_is_woken_only_for_the_sample(clockwork: Clockwork) -> None:
    clockwork.run_until(51.5)
    assert len(clockwork.records) == 1
    assert clockwork.run_until(61.5) == 10
    assert len(clockwork.records) == 11
    clockwork.vitals.stop()


def test_a_busy_process_looks_at_its_loop_ten_times_a_second(clockwork: Clockwork) -> None:
    clockwork.run_until(51.5, cpu_per_tick_s=0.05)
    assert clockwork.run_until(61.5, cpu_per_tick_s=0.05) == pytest.approx(100, abs=2)
    assert len(clockwork.records) == pytest.approx(11, abs=1)
    clockwork.vitals.stop()


def test_a_hang_of_many_seconds_gives_one_sample_that_shows_it(clockwork: Clockwork) -> None:
    clockwork.tick(late_s=30, cpu_s=15)
    assert [record["loop_lag_ms_max"] for record in clockwork.records] == [30_000]
    assert clockwork.records[0]["cpu_percent"] == pytest.approx(50, rel=0.01)
    clockwork.vitals.stop()


def test_an_emit_that_raises_does_not_end_the_samples(clockwork: Clockwork) -> None:
    def fail(record: VitalsRecord) -> None:
        clockwork.records.append(record)
        raise OSError("the disk is full")

    clockwork.vitals = Vitals(fail, clockwork._make_timer, lambda: clockwork.now, lambda: clockwork.cpu)
    clockwork.vitals.start()
    for _ in range(3):
        with pytest.raises(OSError, match="disk"):
            clockwork.run_until(clockwork.now + 5)
    assert len(clockwork.records) == 3
    clockwork.vitals.stop()


def test_stop_and_start_may_be_repeated(clockwork: Clockwork) -> None:
    clockwork.vitals.start()
    clockwork.vitals.stop()
    clockwork.vitals.stop()
    assert clockwork.when is None
    clockwork.vitals.start()
    clockwork.run_until(clockwork.now + 1.5)
    assert len(clockwork.records) == 1
    clockwork.vitals.stop()


def test_without_proc_the_memory_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vitals, "_open_statm", lambda: None)
    clockwork = Clockwork()
    clockwork.vitals.start()
    clockwork.run_until(51.5)
    assert clockwork.records[0]["rss_bytes"] is None
    clockwork.vitals.stop()


def test_a_blocked_loop_shows_in_the_next_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vitals, "SAMPLE_S", 0.06)
    monkeypatch.setattr(vitals, "BUSY_TICK_S", 0.01)
    records: list[VitalsRecord] = []

    async def scenario() -> None:
        descriptors = len(os.listdir("/proc/self/fd"))
        sampler = Vitals(records.append)
        sampler.start()
        await asyncio.sleep(0.002)
        time.sleep(0.04)  # noqa: ASYNC251 - the point of the test is a loop that is blocked
        while not records:
            await asyncio.sleep(0.01)
        sampler.stop()
        assert len(os.listdir("/proc/self/fd")) == descriptors, "timer and statm are closed again"

    uvloop.run(scenario())
    assert 20 <= records[0]["loop_lag_ms_max"] <= 2000
