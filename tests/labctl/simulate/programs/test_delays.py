"""Families of delays: one mean for all, and tails that differ."""

from __future__ import annotations

from random import Random
from statistics import mean, quantiles

import pytest

from labctl.simulate.programs.delays import JITTER, DelayModel, drawn

RATE = 1e3
"""One message takes a millisecond in the mean."""
COUNT = 20_000


def sample(delays: DelayModel) -> list[float]:
    draw, random = delays.draw(), Random("delays")
    return [1e3 * draw(random, RATE) for _ in range(COUNT)]


def test_the_default_is_what_it_always_was() -> None:
    one, other = Random(5), Random(5)
    draw = DelayModel().draw()
    assert [draw(one, RATE) for _ in range(9)] == [other.expovariate(RATE) for _ in range(9)]


@pytest.mark.parametrize(
    "delays", [DelayModel(), DelayModel("heavy", sigma=1.2), DelayModel("even")], ids=str
)
def test_families_have_one_mean(delays: DelayModel) -> None:
    assert mean(sample(delays)) == pytest.approx(1.0, rel=0.1)


def test_a_heavy_tail_is_short_mostly_and_long_at_times() -> None:
    heavy, plain = (quantiles(sample(d), n=1000) for d in (DelayModel("heavy", sigma=2.0), DelayModel()))
    assert heavy[499] < plain[499] / 3
    assert heavy[998] > plain[998] * 2


def test_of_bursts_few_are_late_and_by_far() -> None:
    delays = sample(DelayModel("bursts", late_share=0.02, late_means=50.0))
    late = [delay for delay in delays if delay > 5]
    assert 0.01 * COUNT < len(late) < 0.03 * COUNT
    assert mean(late) > 40
    assert mean(delay for delay in delays if delay <= 5) < 0.5


def test_even_delays_hardly_differ() -> None:
    delays = sample(DelayModel("even"))
    assert max(delays) - min(delays) <= JITTER


def test_every_family_is_drawn_and_says_what_it_is() -> None:
    found = [drawn(Random(seed)) for seed in range(60)]
    assert {delays.family for delays in found} == {"exponential", "heavy", "bursts", "even"}
    assert len({str(delays) for delays in found}) > 20
