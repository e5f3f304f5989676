"""What ends measure: events per second at the last one, round trips at the first, acknowledgements at a publisher."""

from __future__ import annotations

import asyncio
from collections import deque
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


class AcknowledgementMeter:
    """Keeps so many publications in flight for a while; `done` when the last one has been acknowledged.

    As many as are acknowledged together follow together.
    """

    def __init__(
        self,
        in_flight: int,
        seconds: float,
        publish: Callable[[int], None],
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`publish` is told how many."""
        self._in_flight = in_flight
        self._seconds = seconds
        self._publish = publish
        self._clock = clock
        self._under_way: deque[tuple[float, int]] = deque()
        """When they were published, and how many of them are not acknowledged, oldest first."""
        self._samples: list[tuple[float, float, int]] = []
        """When they were acknowledged, how long that took, how many they are."""
        self._began = 0.0
        self.done: asyncio.Future[dict[str, float]] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        self._began = self._clock()
        self._send(self._began, self._in_flight)

    def _send(self, now: float, count: int) -> None:
        self._under_way.append((now, count))
        self._publish(count)

    def acknowledged(self, count: int) -> None:
        """The oldest ones."""
        now, left = self._clock(), count
        while left:
            published, waiting = self._under_way.popleft()
            taken = min(left, waiting)
            self._samples.append((now, now - published, taken))
            left -= taken
            if taken < waiting:
                self._under_way.appendleft((published, waiting - taken))
        if now < self._began + self._seconds:
            self._send(now, count)
        elif not self._under_way:
            self.done.set_result(self._figures(now))

    def _figures(self, now: float) -> dict[str, float]:
        warm = self._began + WARM_UP_SHARE * self._seconds
        counted = [sample for sample in self._samples if sample[0] > warm]
        taken_s = [took for _, took, count in counted for _ in range(count)]
        return {
            "acknowledged": sum(count for _, _, count in self._samples),
            "acknowledged_per_s": len(taken_s) / (now - warm),
            "p50_us": percentiles_us(taken_s)["p50_us"],
        }


def percentiles_us(samples_s: list[float]) -> dict[str, float]:
    ordered = sorted(samples_s)
    return {
        name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e6, 1)
        for name, share in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999))
    }
