"""What the ends of a chain measure: events per second at the last one, round trips at the first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

WARM_UP_SHARE = 0.1
"""Of the round trips: the first ones find everything cold and do not count."""


class RateMeter:
    """Counts what arrives; `done` when all has."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._count = 0
        self._first = 0.0
        self.done: asyncio.Future[dict[str, float]] = asyncio.get_running_loop().create_future()

    def add(self, count: int) -> None:
        if not self._count:
            self._first = perf_counter()
        self._count += count
        if self._count >= self._expected and not self.done.done():
            seconds = perf_counter() - self._first
            self.done.set_result({"events_per_s": self._count / seconds})


class TripMeter:
    """Sends the next ping when a pong arrives; `done` with the last, in microseconds."""

    def __init__(self, count: int, send: Callable[[int], None]) -> None:
        """`send` is given the number of the ping."""
        self._count = count
        self._send = send
        self._samples: list[float] = []
        self._started = 0.0
        self.done: asyncio.Future[dict[str, float]] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        self._started = perf_counter()
        self._send(len(self._samples))

    def arrived(self) -> None:
        self._samples.append(perf_counter() - self._started)
        if len(self._samples) < self._count:
            self.start()
        else:
            self.done.set_result(percentiles_us(self._samples[int(self._count * WARM_UP_SHARE) :]))


def percentiles_us(samples_s: list[float]) -> dict[str, float]:
    ordered = sorted(samples_s)
    return {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e6, 1)
        for name, share in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999))
    }
