"""Families of delays: how long messages are under way, beside the mean of their link.

What goes wrong in one kind of world may never happen in another. Links are FIFO: behind a message that is
late all that follow it on its link are late too, and then arrive at once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from random import Random
from typing import Literal

from msgspec import Struct

Draw = Callable[[Random, float], float]
"""A delay in seconds, by the rate of its link: one over the mean in seconds."""

Family = Literal["exponential", "heavy", "bursts", "even"]
HASTE = 5.0
"""Where few messages are late, the others are so much faster than the mean."""
LONG = 7.0
"""One message in a thousand takes so many means."""
JITTER = 0.2
"""Of delays that are nearly even, the share that chance decides: what is sent at once on two ways of one length
arrives in either order."""


class DelayModel(Struct, frozen=True):
    family: Family = "exponential"
    sigma: float = 0.0
    """Of `heavy`: of the logarithm of a delay. The mean is the same for all: with a larger one most are shorter."""
    late_share: float = 0.0
    """Of `bursts`: how many messages are late."""
    late_means: float = 0.0
    """Of `bursts`: how late they are, in means of their link."""

    @property
    def longest(self) -> float:
        """About as long as any message of a program is under way, in means of its link."""
        if self.family == "heavy":
            return exp(3 * self.sigma)
        return LONG * max(1.0, self.late_means)

    def draw(self) -> Draw:
        if self.family == "heavy":
            return _heavy(self.sigma)
        if self.family == "bursts":
            return _bursts(self.late_share, self.late_means)
        return _even if self.family == "even" else Random.expovariate

    def __str__(self) -> str:
        if self.family == "heavy":
            return f"log-normal, sigma {self.sigma:.1f}"
        if self.family == "bursts":
            return f"late in bursts: {self.late_share:.1%} by {self.late_means:.0f} means"
        return self.family


def drawn(random: Random) -> DelayModel:
    """A family, and how far it goes."""
    family: Family = random.choice(("exponential", "heavy", "bursts", "even"))
    if family == "heavy":
        return DelayModel(family, sigma=random.uniform(1.0, 2.5))
    if family == "bursts":
        share, means = 10 ** random.uniform(-2.5, -0.7), 10 ** random.uniform(0.5, 2.0)
        return DelayModel(family, late_share=share, late_means=means)
    return DelayModel(family)


def _heavy(sigma: float) -> Draw:
    mu = -sigma * sigma / 2

    def draw(random: Random, rate: float) -> float:
        return random.lognormvariate(mu, sigma) / rate

    return draw


def _bursts(share: float, means: float) -> Draw:
    def draw(random: Random, rate: float) -> float:
        return random.expovariate(rate / means if random.random() < share else rate * HASTE)

    return draw


def _even(random: Random, rate: float) -> float:
    return (1.0 + JITTER * (random.random() - 0.5)) / rate
