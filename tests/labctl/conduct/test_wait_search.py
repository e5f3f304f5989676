"""The search for BL-WAIT's wait, against transactions whose needs are known."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labctl.conduct.wait_search import (
    RUNS_MAX,
    Calibration,
    CalibrationFailed,
    TrialTransaction,
    WaitSearch,
    upper_bound,
)
from labctl.exits import UsageProblem


class Overlay:
    """Transactions that each need a wait drawn from a distribution; notes which waits were tried."""

    def __init__(self, need_ms: float, sigma: float = 0.0, seed: int = 1) -> None:
        self._need_ms = need_ms
        self._sigma = sigma
        self._random = Random(seed)
        self.tried: list[float] = []
        self.transactions = 0

    def need(self) -> float:
        return self._need_ms * self._random.lognormvariate(0.0, self._sigma)

    def run(self, wait_ms: float, transactions: int) -> list[TrialTransaction]:
        self.tried.append(wait_ms)
        outcomes: list[TrialTransaction] = []
        for number in range(1, transactions + 1):
            self.transactions += 1
            if self.need() > wait_ms:
                return [*outcomes, TrialTransaction(False, "late-subscription", f"transaction {number}")]
            outcomes.append(TrialTransaction(True))
        return outcomes


class Stalling(Overlay):
    """Now and then something takes a tenth of a second longer."""

    def need(self) -> float:
        stall_ms = self._random.uniform(80, 160) if self._random.random() < 0.004 else 0.0
        return super().need() + stall_ms


def is_by_the_criterion(found: Calibration, transactions: int) -> bool:
    """Section 7: all correct at the wait, and a run one step below has failed."""
    runs = {run.wait_ms: run for run in found.runs}
    at = runs[found.wait_ms]
    if found.failed_at_ms is None:
        return found.wait_ms == 0 and at.passed
    return (
        at.passed
        and at.correct == transactions
        and not runs[found.failed_at_ms].passed
        and found.wait_ms - found.failed_at_ms == pytest.approx(found.step_ms)
    )


@given(st.floats(0.1, 1900), st.sampled_from([1.0, 10.0, 50.0]))
def test_a_fixed_need_is_found_to_the_step(need_ms: float, step_ms: float) -> None:
    found = WaitSearch(Overlay(need_ms).run, step_ms, 20).from_needs([need_ms])
    assert found.wait_ms - step_ms < need_ms <= found.wait_ms
    assert is_by_the_criterion(found, 20)


@given(st.integers(0, 10**6), st.sampled_from([1.0, 50.0]), st.floats(0.05, 0.6))
def test_with_needs_that_vary_the_result_is_by_the_papers_criterion(
    seed: int, step_ms: float, sigma: float
) -> None:
    overlay = Overlay(40.0, sigma, seed)
    needs = [overlay.need() for _ in range(50)]
    found = WaitSearch(overlay.run, step_ms, 50).from_needs(needs)
    assert is_by_the_criterion(found, 50)


@given(st.integers(0, 10**6), st.floats(0.0, 0.6))
def test_the_papers_procedure_ends_by_the_same_criterion(seed: int, sigma: float) -> None:
    assert is_by_the_criterion(WaitSearch(Overlay(60.0, sigma, seed).run, 50.0, 50).paper(), 50)


def test_the_papers_procedure_halves_from_2000_ms_and_walks_only_in_the_last_bracket() -> None:
    overlay = Overlay(160.0)
    found = WaitSearch(overlay.run, 50.0, 1000).paper()
    assert overlay.tried == [2000, 1000, 500, 250, 100, 200, 150]
    assert (found.wait_ms, found.failed_at_ms) == (200, 150)


def test_the_papers_procedure_goes_up_when_2000_ms_are_not_enough() -> None:
    overlay = Overlay(2100.0)
    found = WaitSearch(overlay.run, 50.0, 10).paper()
    assert overlay.tried[:2] == [2000, 4000]
    assert found.wait_ms == 2100


def test_starting_from_needs_takes_two_runs_where_the_paper_takes_many() -> None:
    overlay = Overlay(160.0)
    WaitSearch(overlay.run, 50.0, 1000).from_needs([120.0, 160.0, 90.0])
    assert overlay.tried == [200, 150]


def test_a_start_that_is_too_low_or_too_high_is_corrected() -> None:
    for guess in (10.0, 900.0):
        assert WaitSearch(Overlay(160.0).run, 50.0, 10).from_needs([guess]).wait_ms == 200


def test_a_start_that_is_far_off_costs_few_runs_even_with_a_fine_step() -> None:
    for guess in (40.0, 900.0):
        overlay = Overlay(170.0)
        assert WaitSearch(overlay.run, 1.0, 10).from_needs([guess]).wait_ms == 170
        assert len(overlay.tried) <= 25


def test_rare_stalls_do_not_make_a_fine_search_long() -> None:
    for seed in range(30):
        overlay = Stalling(40.0, 0.2, seed)
        found = WaitSearch(overlay.run, 1.0, 200).from_needs([overlay.need() for _ in range(200)])
        assert is_by_the_criterion(found, 200)
        assert len(overlay.tried) <= 25


def test_no_wait_is_tried_twice() -> None:
    overlay = Overlay(40.0, 0.5, seed=3)
    WaitSearch(overlay.run, 1.0, 50).from_needs([45.0])
    assert len(overlay.tried) == len(set(overlay.tried))


def test_a_run_ends_at_its_first_wrong_transaction_and_the_fault_is_kept() -> None:
    found = WaitSearch(Overlay(160.0).run, 50.0, 10).from_needs([160.0])
    [failed] = [run for run in found.runs if not run.passed]
    assert (failed.transactions, failed.correct) == (1, 0)
    assert failed.faults[0].fault == "late-subscription"


def test_a_run_of_no_transactions_has_not_passed() -> None:
    with pytest.raises(CalibrationFailed):
        WaitSearch(lambda wait_ms, transactions: [], 50.0, 10).from_needs([50.0])


def test_where_no_wait_is_enough_the_search_ends_and_says_why() -> None:
    overlay = Overlay(1e9)
    with pytest.raises(CalibrationFailed, match="late-subscription") as caught:
        WaitSearch(overlay.run, 50.0, 10).from_needs([50.0])
    assert len(overlay.tried) <= RUNS_MAX
    assert f"{max(overlay.tried):g} ms" in str(caught.value)


def test_where_no_wait_is_needed_it_is_none() -> None:
    found = WaitSearch(Overlay(0.0).run, 50.0, 10).from_needs([3.0])
    assert (found.wait_ms, found.failed_at_ms) == (0, None)


def test_without_a_need_there_is_nowhere_to_start() -> None:
    with pytest.raises(CalibrationFailed, match="how long it needed"):
        WaitSearch(Overlay(1.0).run, 50.0, 10).from_needs([])


@pytest.mark.parametrize(("step_ms", "transactions"), [(0.0, 10), (-1.0, 10), (5000.0, 10), (50.0, 0)])
def test_senseless_searches_are_refused(step_ms: float, transactions: int) -> None:
    with pytest.raises(UsageProblem):
        WaitSearch(Overlay(1.0).run, step_ms, transactions)


def test_1000_of_1000_proves_that_fewer_than_3_in_1000_fail() -> None:
    assert upper_bound(0, 1000) == pytest.approx(1 - 0.05 ** (1 / 1000))
    assert upper_bound(0, 1000) == pytest.approx(3 / 1000, rel=0.01)
    assert upper_bound(0, 200) == pytest.approx(3 / 200, rel=0.02)


def test_the_bound_is_that_of_clopper_and_pearson() -> None:
    # Known values: 1 of 10 and 5 of 100, one-sided 95 %.
    assert upper_bound(1, 10) == pytest.approx(0.3942, abs=1e-4)
    assert upper_bound(5, 100) == pytest.approx(0.1023, abs=1e-4)
    assert upper_bound(10, 10) == upper_bound(0, 0) == 1


@given(st.integers(1, 5000))
def test_a_rate_at_the_bound_would_have_passed_with_5_percent(trials: int) -> None:
    assert (1 - upper_bound(0, trials)) ** trials == pytest.approx(0.05, rel=1e-6)


def test_the_meaning_names_bound_and_confidence() -> None:
    found = WaitSearch(Overlay(160.0).run, 50.0, 200).from_needs([160.0])
    assert "200 of 200 correct" in found.meaning
    assert "95%" in found.meaning
    assert "1.49%" in found.meaning
