"""Two results side by side: for every cell that both have, the ratio and whether it is more than noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from labctl.report.judgement.model import CellResult, Report
from labctl.report.judgement.stats import Resampler, interval_of

METRICS: Mapping[str, str] = {
    "latency_ms": "latency ms",
    "p95": "p95 ms",
    "throughput": "transactions/s",
    "messages": "messages",
    "drop": "drop",
}
Answer = Literal["yes", "no", "unknown"]


class Difference(Struct, frozen=True):
    cell: str
    metric: str
    a: float
    b: float
    ratio: float | None
    interval: tuple[float, float] | None
    answer: Answer
    """Whether the interval of the ratio leaves 1 out; unknown with a single repetition."""


def compare(a: Report, b: Report) -> list[Difference]:
    resampler = Resampler(int(a.run.get("seed") or 0))
    shared = [name for name in a.cells if name in b.cells]
    return [
        difference
        for name in shared
        for column in METRICS
        if (difference := _difference(a.cells[name], b.cells[name], column, resampler)) is not None
    ]


def only_in(one: Report, other: Report) -> list[str]:
    return [name for name in one.cells if name not in other.cells]


def _difference(a: CellResult, b: CellResult, column: str, resampler: Resampler) -> Difference | None:
    """None where one of them is invalid or has no such value."""
    if column not in a.estimates or column not in b.estimates:
        return None
    values = [_values(a, column), _values(b, column)]
    mean_a, mean_b = (float(np.mean(series)) for series in values)
    if mean_a == 0:
        return Difference(a.id, METRICS[column], mean_a, mean_b, None, None, "unknown")
    # Independent draws: the two results have nothing in common but their names.
    draws = resampler.means(f"B {b.id}", values[1]) / resampler.means(f"A {a.id}", values[0])
    estimate = interval_of(mean_b / mean_a, draws, min(len(series) for series in values))
    answer: Answer = "unknown"
    if estimate.interval is not None:
        answer = "no" if estimate.interval[0] <= 1 <= estimate.interval[1] else "yes"
    return Difference(a.id, METRICS[column], mean_a, mean_b, estimate.value, estimate.interval, answer)


def _values(cell: CellResult, column: str) -> Sequence[float]:
    return [r.values[column] for r in cell.repetitions if column in r.values]
