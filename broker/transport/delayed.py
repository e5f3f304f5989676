"""Holds what is to be sent until its emulated delay has passed.

A wake-up comes late by what the kernel and the loop need, typically 50 to 100 microseconds, and several
hundred on a virtual machine whose idle processors are slow to come back; that would be added to every
delay. So a sender aims ahead by a *lead* that it learns: each wake-up after the due time makes it a little
longer, each one before it a little shorter, which settles where half of the wake-ups are early and half
late, that is, where the median error is zero. Nothing spins, and a link at rest costs nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from broker.protocol.delay import DelayLine
from broker.transport.timer import PreciseTimer, ResettableTimer

T = TypeVar("T")

LEAD_S_INITIAL = 60e-6
LEAD_S_MAX = 400e-6
"""Nothing leaves earlier than this before its time, however late the wake-ups of a busy process are."""
LEAD_S_STEP = 2e-6


class DelayedSender(Generic[T]):
    """First in, first out: `push` takes an item, `release` gets all that are due, in order.

    `release` may push again. If it raises, the items it was given are gone, the others stay due.
    """

    def __init__(
        self,
        line: DelayLine,
        release: Callable[[list[T]], None],
        make_timer: Callable[[Callable[[], None]], ResettableTimer] = PreciseTimer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line = line
        self._release = release
        self._clock = clock
        self._waiting: deque[tuple[float, T]] = deque()
        self._lead_s = LEAD_S_INITIAL
        self._timer = make_timer(self._wake)
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def lead_s(self) -> float:
        """How far ahead of the due time the timer is aimed at present."""
        return self._lead_s

    def push(self, item: T) -> None:
        if self._closed:
            raise RuntimeError("this link's delay line is closed; nothing can be sent through it")
        now = self._clock()
        due = self._line.due(now)
        self._waiting.append((due, item))
        if due <= now:
            # Whatever stands before it is due as well, so this keeps the order.
            self._release_until(now)
        elif len(self._waiting) == 1:
            self._timer.set(due - self._lead_s)

    def waiting(self) -> list[T]:
        return [item for _, item in self._waiting]

    def flush_now(self) -> None:
        """Releases everything at once, for a sender that is about to stop."""
        self._release_until(float("inf"))

    def close(self) -> None:
        """Idempotent. What still waits is dropped: call `flush_now` first to send it."""
        if not self._closed:
            self._closed = True
            self._waiting.clear()
            self._timer.close()

    def _wake(self) -> None:
        # A queue that was emptied without the timer leaves it set; the wake-up then finds nothing.
        if not self._waiting:
            return
        now = self._clock()
        first_due = self._waiting[0][0]
        last_due = self._release_until(now + self._lead_s)
        if last_due is not None:
            # The middle of what left together: with many messages a second, the later ones ride along.
            late = now > (first_due + last_due) / 2
            self._lead_s = min(LEAD_S_MAX, max(0.0, self._lead_s + (LEAD_S_STEP if late else -LEAD_S_STEP)))

    def _release_until(self, horizon: float) -> float | None:
        """Releases what is due by `horizon`, waits for the rest; returns when the last of it was due."""
        waiting = self._waiting
        items: list[T] = []
        last_due = None
        while waiting and waiting[0][0] <= horizon:
            last_due, item = waiting.popleft()
            items.append(item)
        # Armed before the release, so that a release that raises or pushes finds a consistent queue.
        if waiting:
            self._timer.set(waiting[0][0] - self._lead_s)
        if items:
            self._release(items)
        return last_due
