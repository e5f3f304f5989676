"""BL-WAIT: the smallest wait, in steps, with which every transaction is routed right; pure.

The paper's criterion (Section 7): so many transactions in a row were correct with `wait`, and some run with
`wait - step` has failed. How waits are tried is a search over a function `run(wait_ms, n)`, which ends at
the first transaction that goes wrong. That a run was correct does not prove that the next one will be: what
it proves is a bound on the rate of failures, and it is said with the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from labctl.exits import LabError, UsageProblem

Procedure = Literal["needs", "paper"]
PAPER_START_MS = 2000.0
WAIT_MS_MAX = 60_000.0
RUNS_MAX = 100
CONFIDENCE = 0.95


class CalibrationFailed(LabError):
    """No wait could be found; the text says how far the search came."""


class TrialTransaction(Struct, frozen=True):
    """Of one transaction."""

    correct: bool
    fault: str = ""
    """late-subscription, late-unsubscription, ...; empty if it is correct."""
    label: str = ""
    """Which one: placement and number."""


class Trial(Struct, frozen=True):
    """A run with one wait."""

    wait_ms: float
    transactions: int
    correct: int
    faults: tuple[TrialTransaction, ...] = ()

    @property
    def passed(self) -> bool:
        return self.transactions > 0 and not self.faults


Run = Callable[[float, int], Sequence[TrialTransaction]]


class Calibration(Struct, frozen=True):
    wait_ms: float
    step_ms: float
    correct: int
    """Transactions at `wait_ms`, all of them."""
    failed_at_ms: float | None
    """The wait one step below, at which a run has failed; None if there is nothing below."""
    failure_rate_upper_bound: float
    confidence: float
    runs: tuple[Trial, ...]

    @property
    def meaning(self) -> str:
        return (
            f"{self.correct} of {self.correct} correct: with {self.confidence:.0%} confidence fewer than "
            f"{self.failure_rate_upper_bound:.2%} of transactions fail at {self.wait_ms:g} ms; it does not prove that none does"
        )


def upper_bound(failures: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Clopper and Pearson, one-sided: a larger rate of failures would show so few with less than 1 - confidence.

    Without failures this is about 3 / trials at 95 %.
    """
    if trials < 1 or failures >= trials:
        return 1.0
    low, high = failures / trials, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        if _at_most(failures, trials, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(failures: int, trials: int, rate: float) -> float:
    """Probability of no more than so many failures."""
    return sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(failures + 1))


class WaitSearch:
    """Waits are whole numbers of steps; each is tried at most once."""

    def __init__(self, run: Run, step_ms: float, transactions: int) -> None:
        if not 0 < step_ms <= PAPER_START_MS:
            raise UsageProblem(f"a step of {step_ms:g} ms; it must be above 0 and at most {PAPER_START_MS:g}")
        if transactions < 1:
            raise UsageProblem(f"{transactions} transactions prove nothing")
        self._run = run
        self._step_ms = step_ms
        self._transactions = transactions
        self._tried: dict[int, Trial] = {}
        """By number of steps."""

    # The two procedures

    def paper(self) -> Calibration:
        """From 2000 ms, halving while correct, then down step by step between the last two."""
        steps = self._steps(PAPER_START_MS)
        while not self._passes(steps):
            steps *= 2
        while steps > 1 and self._passes(half := steps // 2):
            steps = half
        return self._settle(steps)

    def from_needs(self, needs_ms: Sequence[float]) -> Calibration:
        """From what the slowest of some transactions has needed."""
        if not needs_ms:
            raise CalibrationFailed("no transaction has told how long it needed")
        start = max(1, self._steps(max(needs_ms)))
        return self._below(start) if self._passes(start) else self._above(start)

    def _settle(self, steps: int) -> Calibration:
        """Down, step by step, while it is correct."""
        while steps > 0 and self._passes(steps - 1):
            steps -= 1
        return self._result(steps)

    # A rare stall that 200 transactions have not met may move the wait by a hundred fine steps: strides double,
    # and what lies between a failure and a success is halved. The criterion holds at the end all the same.

    def _below(self, passed: int) -> Calibration:
        stride = 1
        while passed > 0:
            lower = max(0, passed - stride)
            if not self._passes(lower):
                return self._between(lower, passed)
            passed, stride = lower, 2 * stride
        return self._result(0)

    def _above(self, failed: int) -> Calibration:
        stride = 1
        while not self._passes(failed + stride):
            failed, stride = failed + stride, 2 * stride
        return self._between(failed, failed + stride)

    def _between(self, failed: int, passed: int) -> Calibration:
        while passed - failed > 1:
            middle = (failed + passed) // 2
            if self._passes(middle):
                passed = middle
            else:
                failed = middle
        return self._result(passed)

    # A step of the search

    def _steps(self, wait_ms: float) -> int:
        """Rounded up, but 100.0000001 is still two steps of 50."""
        return math.ceil(wait_ms / self._step_ms - 1e-9)

    def _passes(self, steps: int) -> bool:
        if steps not in self._tried:
            wait_ms = steps * self._step_ms
            if wait_ms > WAIT_MS_MAX or len(self._tried) == RUNS_MAX:
                raise CalibrationFailed(
                    f"no wait up to {max(self._tried) * self._step_ms:g} ms was enough in {len(self._tried)} runs; "
                    f"the last fault was {self._last_fault()}"
                )
            self._tried[steps] = _attempt(wait_ms, self._run(wait_ms, self._transactions))
        return self._tried[steps].passed

    def _last_fault(self) -> str:
        faults = [fault for attempt in self._tried.values() for fault in attempt.faults]
        return f"{faults[-1].fault} ({faults[-1].label})" if faults else "none"

    def _result(self, steps: int) -> Calibration:
        attempt = self._tried[steps]
        return Calibration(
            wait_ms=attempt.wait_ms,
            step_ms=self._step_ms,
            correct=attempt.correct,
            failed_at_ms=self._tried[steps - 1].wait_ms if steps > 0 else None,
            failure_rate_upper_bound=upper_bound(0, attempt.correct),
            confidence=CONFIDENCE,
            runs=tuple(self._tried.values()),
        )


def _attempt(wait_ms: float, outcomes: Sequence[TrialTransaction]) -> Trial:
    return Trial(
        wait_ms=wait_ms,
        transactions=len(outcomes),
        correct=sum(outcome.correct for outcome in outcomes),
        faults=tuple(outcome for outcome in outcomes if not outcome.correct),
    )
