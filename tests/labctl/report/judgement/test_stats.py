"""Means over repetitions and their intervals."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from labctl.report.judgement.stats import Resampler, interval_of, tail_share


def test_the_same_seed_gives_the_same_interval_and_another_seed_other_draws() -> None:
    values = [10.0, 11.0, 12.5, 9.0, 10.2]
    assert Resampler(7).estimate("cell", values) == Resampler(7).estimate("cell", values)
    assert not np.array_equal(Resampler(7).means("cell", values), Resampler(8).means("cell", values))


def test_one_repetition_has_a_value_and_no_interval() -> None:
    estimate = Resampler(1).estimate("cell", [5.0])
    assert estimate is not None
    assert (estimate.value, estimate.interval) == (5.0, None)


def test_no_repetition_has_no_estimate() -> None:
    assert Resampler(1).estimate("cell", []) is None


def test_metrics_of_a_cell_are_drawn_together() -> None:
    resampler = Resampler(3)
    product = resampler.means("cell", [1.0, 2.0, 4.0]) * 2
    assert np.array_equal(product, resampler.means("cell", [2.0, 4.0, 8.0]))


def test_cells_are_drawn_apart() -> None:
    resampler = Resampler(3)
    assert not np.array_equal(
        resampler.means("one", [1.0, 2.0, 4.0]), resampler.means("other", [1.0, 2.0, 4.0])
    )


@pytest.mark.parametrize(("n", "expected"), [(5, 0.00096), (40, 0.0236)])
def test_small_samples_cut_off_less(n: int, expected: float) -> None:
    assert tail_share(n) == pytest.approx(expected, rel=0.05)


def test_the_interval_of_five_repetitions_covers_the_mean_nearly_as_often_as_it_says() -> None:
    random = Random(11)
    covered = 0
    for trial in range(300):
        values = [random.gauss(100, 5) for _ in range(5)]
        estimate = Resampler(trial, draws=2000).estimate("cell", values)
        assert estimate is not None
        assert estimate.interval is not None
        covered += estimate.interval[0] <= 100 <= estimate.interval[1]
    assert covered / 300 > 0.88, "the plain percentile interval covers about 0.83 here"


def test_an_interval_contains_its_value() -> None:
    estimate = interval_of(5.0, np.array([6.0, 7.0, 8.0]), 3)
    assert estimate.interval is not None
    assert estimate.interval[0] == 5.0
