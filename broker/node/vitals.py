"""What a process says about itself once a second: processor time, memory, how late its loop runs.

Later reports judge by these lines whether a run was disturbed, so taking them must not disturb it.
Waking up is what costs: about 0.1 ms of processor time on a virtual machine, whatever is then done. So
a process at rest wakes once a second, for the sample itself, which comes to less than 0.03 % of a
processor; a busy one looks at its loop ten times a second, since it is awake anyway.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypedDict

from broker.transport.timer import PreciseTimer, ResettableTimer

SAMPLE_S = 1.0
BUSY_TICK_S = 0.1
"""Time between two looks at the loop's lateness in a busy process: a hang longer than this is always
caught, a shorter one in proportion to its length."""
BUSY_CPU_PERCENT = 1.0
"""At or above this in the last second, a process is busy."""

_RESIDENT_FIELD = 1
_STATM_BYTES_MAX = 128


class VitalsRecord(TypedDict):
    event: str
    cpu_percent: float
    """Of one processor, since the sample before."""
    cpu_s: float
    """Since the process began."""
    rss_bytes: int | None
    """None where there is no /proc."""
    loop_lag_ms_max: float
    """How late the loop ran a timer, at worst, since the sample before. At rest this is the time of
    waking up, under 0.2 ms; a hang of the process or its machine shows in full."""


class Vitals:
    """Calls `emit` once a second from `start` to `stop`; `latest` is what it emitted last."""

    def __init__(
        self,
        emit: Callable[[VitalsRecord], None],
        make_timer: Callable[[Callable[[], None]], ResettableTimer] = PreciseTimer,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self.latest: VitalsRecord | None = None
        self._emit = emit
        self._make_timer = make_timer
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._timer: ResettableTimer | None = None
        self._statm: int | None = None
        self._tick_due = 0.0
        self._tick_s = BUSY_TICK_S
        self._lag_s_max = 0.0
        self._sampled_at = 0.0
        self._cpu_s = 0.0

    def start(self) -> None:
        """In the running loop; the first sample comes after a second."""
        if self._timer is not None:
            return
        self._statm = _open_statm()
        self._timer = self._make_timer(self._tick)
        # A process that starts is about to be busy.
        self._tick_s = BUSY_TICK_S
        self._lag_s_max = 0.0
        self._sampled_at = self._clock()
        self._cpu_s = self._cpu_clock()
        self._set_timer(self._sampled_at)

    def stop(self) -> None:
        """Idempotent; nothing is emitted any more."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        if self._statm is not None:
            os.close(self._statm)
            self._statm = None

    def _set_timer(self, now: float) -> None:
        assert self._timer is not None, "vitals tick only between start and stop"
        self._tick_due = min(now + self._tick_s, max(now, self._sampled_at + SAMPLE_S))
        self._timer.set(self._tick_due)

    def _tick(self) -> None:
        if self._timer is None:
            return
        now = self._clock()
        self._lag_s_max = max(self._lag_s_max, now - self._tick_due)
        if now - self._sampled_at < SAMPLE_S:
            self._set_timer(now)
            return
        record = self._sample(now)
        # Armed before the call: an `emit` that raises or stops the vitals finds all in order.
        self._set_timer(now)
        self._emit(record)

    def _sample(self, now: float) -> VitalsRecord:
        cpu_s = self._cpu_clock()
        cpu_percent = 100 * (cpu_s - self._cpu_s) / (now - self._sampled_at)
        self.latest = VitalsRecord(
            event="vitals",
            cpu_percent=round(cpu_percent, 3),
            cpu_s=round(cpu_s, 6),
            rss_bytes=None if self._statm is None else _resident_bytes(self._statm),
            loop_lag_ms_max=round(1e3 * self._lag_s_max, 3),
        )
        self._sampled_at, self._cpu_s, self._lag_s_max = now, cpu_s, 0.0
        self._tick_s = BUSY_TICK_S if cpu_percent >= BUSY_CPU_PERCENT else SAMPLE_S
        return self.latest


def _open_statm() -> int | None:
    # Kept open: a name looked up each second costs more than the read.
    try:
        return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None


def _resident_bytes(statm: int) -> int:
    pages = int(os.pread(statm, _STATM_BYTES_MAX, 0).split()[_RESIDENT_FIELD])
    return pages * os.sysconf("SC_PAGESIZE")
