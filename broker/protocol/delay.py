"""Emulated link delay: when a message that is handed to a link may leave it.

Pure: the caller brings the clock and does the waiting (`broker.transport.delayed`). The only source of
chance is a generator seeded by the experiment and the link's name, so a run can be repeated.
"""

from __future__ import annotations

from math import exp, isfinite
from random import Random

from msgspec import Struct

DELAY_MS_MAX = 60_000.0
"""A minute. More than this is a mistyped unit, not a network."""
SIGMA_MAX = 3.0
"""At 3, one message in a hundred already takes a thousand times the median."""


class DelayError(ValueError):
    """A delay that no link can have; the text says which field and why."""


class Delay(Struct, frozen=True, forbid_unknown_fields=True):
    """What a link adds to each message, in one direction; the default adds nothing."""

    delay_ms: float = 0.0
    """The median: a log-normal delay is `delay_ms * exp(sigma * N(0, 1))`."""
    sigma: float = 0.0
    stall_probability: float = 0.0
    """Per message; everything behind a stalled message waits with it, as behind a lost TCP segment."""
    stall_ms: tuple[float, float] = (60.0, 120.0)
    """A stall is uniform between these two, and comes on top of the delay."""
    seed: int = 0

    def __post_init__(self) -> None:
        _check_range("delay_ms", self.delay_ms, DELAY_MS_MAX)
        _check_range("sigma", self.sigma, SIGMA_MAX)
        _check_range("stall_probability", self.stall_probability, 1.0)
        low, high = self.stall_ms
        _check_range("the shorter stall_ms", low, DELAY_MS_MAX)
        _check_range("the longer stall_ms", high, DELAY_MS_MAX)
        if low > high:
            raise DelayError(f"stall_ms goes from {low} to {high}; the shorter stall comes first")

    @property
    def is_zero(self) -> bool:
        """Nothing to emulate: the caller can leave the delay line out."""
        return self.delay_ms == 0 and self.stall_probability == 0


class DelayLine:
    """One direction of one link: turns the time of handing over into the time of leaving.

    Jitter and stalls have a stream each, so that a run with stalls has the same jitter as one without.
    """

    def __init__(self, delay: Delay, link: str) -> None:
        self._base_s = delay.delay_ms / 1e3
        self._sigma = delay.sigma
        self._stall_probability = delay.stall_probability
        self._stall_low_s, self._stall_high_s = (ms / 1e3 for ms in delay.stall_ms)
        # A text seed is hashed by `Random` itself, so it does not depend on PYTHONHASHSEED.
        self._jitter = Random(f"jitter/{delay.seed}/{link}")
        self._stalls = Random(f"stalls/{delay.seed}/{link}")
        self._previous_due = float("-inf")

    def due(self, now: float) -> float:
        """When a message handed over at `now` (seconds) may leave; never before the one ahead of it."""
        delay_s = self._base_s
        if self._sigma:
            delay_s *= exp(self._sigma * self._jitter.gauss(0.0, 1.0))
        if self._stall_probability and self._stalls.random() < self._stall_probability:
            delay_s += self._stalls.uniform(self._stall_low_s, self._stall_high_s)
        self._previous_due = max(self._previous_due, now + delay_s)
        return self._previous_due


def _check_range(name: str, value: float, maximum: float) -> None:
    if not isfinite(value) or not 0 <= value <= maximum:
        raise DelayError(f"{name} is {value}; it must be between 0 and {maximum:g}")
