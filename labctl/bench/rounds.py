"""Rounds of a measurement, and whether the machine was ours while they were taken.

A virtual machine does not always get the processors that it asks for. What its hypervisor gave to others
meanwhile (steal) is measured with every round; rounds that lost too much of it are taken again, up to as
many more as were asked for, and the least disturbed ones count.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean
from typing import Generic, TypeVar

from labctl.host.machine import cpu_time, stolen_share

QUIET_SHARE = 0.02
"""Of the processors' time: with no more taken away, a round is undisturbed."""

Sample = TypeVar("Sample")


class Rounds(Generic[Sample]):
    def __init__(self, wanted: int, clock: Callable[[], dict[str, float]] = cpu_time) -> None:
        self._wanted = wanted
        self._clock = clock
        self._taken: list[tuple[float, Sample]] = []

    def __len__(self) -> int:
        """How many have been taken."""
        return len(self._taken)

    def __str__(self) -> str:
        """Of the one that comes next."""
        number = len(self) + 1
        if number > self._wanted:
            return f"round {number}, in place of a disturbed one"
        return f"round {number} of {self._wanted}"

    @property
    def are_enough(self) -> bool:
        quiet = sum(stolen <= QUIET_SHARE for stolen, _ in self._taken)
        return quiet >= self._wanted or len(self) >= 2 * self._wanted

    def take(self, measure: Callable[[], Sample]) -> None:
        before = self._clock()
        sample = measure()
        self._taken.append((stolen_share(before, self._clock()), sample))

    @property
    def samples(self) -> list[Sample]:
        """Of the least disturbed rounds."""
        return [sample for _, sample in self._best()]

    @property
    def stolen_share(self) -> float:
        """What the rounds that count have lost all the same."""
        return mean(stolen for stolen, _ in self._best()) if self._taken else 0.0

    def _best(self) -> list[tuple[float, Sample]]:
        return sorted(self._taken, key=lambda taken: taken[0])[: self._wanted]
