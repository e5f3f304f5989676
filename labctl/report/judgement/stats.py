"""Means over repetitions, and how far to trust them.

The interval is the percentile bootstrap over repetitions, expanded for small samples (Hesterberg 2015,
section 5.3): its two quantiles are moved out to where Student's t would put them, because the plain one
covers far less than it says when there are five repetitions. One repetition has no interval.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from msgspec import Struct

CONFIDENCE = 0.95
DRAWS = 10_000
Samples = npt.NDArray[np.float64]

# Two-sided 95 % quantiles of Student's t with 1, 2, ... degrees of freedom; beyond them the normal one.
# fmt: off
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)
# fmt: on


class Estimate(Struct, frozen=True):
    """A mean over `n` repetitions; `low` and `high` are None when there is nothing to tell them from."""

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


class Resampler:
    """The same draws of repetitions for every metric of a cell, so that its metrics stay together."""

    def __init__(self, seed: int, draws: int = DRAWS) -> None:
        self._seed = seed
        self._draws = draws
        self._indices: dict[tuple[str, int], npt.NDArray[np.intp]] = {}

    def means(self, key: str, values: Sequence[float]) -> Samples:
        """Means of `draws` samples of the repetitions of `key`, with replacement."""
        n = len(values)
        if (key, n) not in self._indices:
            random = np.random.default_rng((self._seed, zlib.crc32(key.encode())))
            self._indices[key, n] = random.integers(0, n, (self._draws, n))
        means: Samples = np.asarray(values, dtype=float)[self._indices[key, n]].mean(axis=1)
        return means

    def estimate(self, key: str, values: Sequence[float]) -> Estimate | None:
        if not values:
            return None
        mean = math.fsum(values) / len(values)
        return interval_of(mean, self.means(key, values), len(values))


def interval_of(value: float, samples: Samples, n: int) -> Estimate:
    """`n` is the number of repetitions in the smallest sample that took part."""
    if n < 2:
        return Estimate(value, None, None, n)
    tail = tail_share(n)
    low, high = np.quantile(samples, (tail, 1 - tail))
    return Estimate(value, min(float(low), value), max(float(high), value), n)


def tail_share(n: int) -> float:
    """What is cut off on each side for samples of n."""
    t = _T[n - 2] if n - 2 < len(_T) else NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    return NormalDist().cdf(-t * math.sqrt(n / (n - 1)))
