"""What a report knows in the end: typed, small, and the same for the page, the files and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from client.scenarios.approaches import APPROACHES, approach_of
from labctl.checks.verdict import Answer, worst
from labctl.report.judgement.claims import Judgement, MeasuredCell
from labctl.report.judgement.disturbed import Disturbed
from labctl.report.judgement.shapes import METRICS
from labctl.report.judgement.stats import Estimate, Resampler

COLUMNS = tuple(METRICS.values())
_ORDER = tuple(APPROACHES)


class PropertyVerdict(Struct, frozen=True):
    property: str
    answer: Answer
    checked: int
    faults: int
    anomalies: int
    example: str


class RepetitionResult(Struct, frozen=True):
    number: int
    answer: Answer
    verdicts: tuple[PropertyVerdict, ...]
    counts: dict[str, int]
    """transactions, committed, aborted, unknown, wrong, and how they were wrong."""
    values: dict[str, float]
    """Metrics by column name; only those that this repetition has."""
    wait_ms: float | None
    send_lag_ms: float | None
    messages_model: float | None
    stolen_share: float = 0.0
    """Of the processors of the host that lost most to other guests of its hypervisor."""


class NodeVitals(Struct, frozen=True):
    node: str
    cpu_percent: float
    cpu_percent_max: float
    loop_lag_ms: float
    loop_lag_ms_max: float
    rss_bytes_max: int | None


class Bin(Struct, frozen=True):
    low_ms: float
    transactions: int


class CellResult(Struct):
    id: str
    parameters: dict[str, Any]
    wanted: int
    """Repetitions that the run was to make."""
    repetitions: tuple[RepetitionResult, ...]
    answer: Answer
    estimates: dict[str, Estimate]
    """By column; empty if the cell is invalid."""
    percentiles: dict[str, float]
    histogram: tuple[Bin, ...] = ()
    nodes: tuple[NodeVitals, ...] = ()
    warnings: list[str] = field(default_factory=list)

    @property
    def approach(self) -> str:
        return str(self.parameters["approach"])

    @property
    def label(self) -> str:
        """As the paper calls it, with what is special about this cell."""
        p = self.parameters
        extra = [f"{p['step_ms']:g} ms step"] if p.get("step_ms") not in (None, 50) else []
        extra += ["stalls"] if p.get("stalls") else []
        extra += [p["work"]] if p.get("work") == "consolidation" else []
        extra += ["open loop"] if p.get("load") == "open" else []
        extra += [p[name] for name in ("durable", "faults") if p.get(name)]
        return approach_of(self.approach).label + (f" ({', '.join(extra)})" if extra else "")

    @property
    def is_plain(self) -> bool:
        """Of the paper's matrix: its step, no stalls, nothing kept and nothing that fails."""
        p = self.parameters
        return p.get("step_ms") in (None, 50) and not any(p.get(n) for n in ("stalls", "durable", "faults"))

    def count(self, name: str) -> int:
        return sum(repetition.counts.get(name, 0) for repetition in self.repetitions)

    @property
    def anomalies(self) -> int:
        return sum(v.anomalies for r in self.repetitions for v in r.verdicts)

    @property
    def messages_model(self) -> float | None:
        found = [r.messages_model for r in self.repetitions if r.messages_model is not None]
        return sum(found) / len(found) if found else None

    def verdicts(self) -> list[PropertyVerdict]:
        """Over its repetitions: the worst answer to each question."""
        merged: dict[str, PropertyVerdict] = {}
        for repetition in self.repetitions:
            for v in repetition.verdicts:
                old = merged.get(v.property)
                merged[v.property] = v if old is None else _merge(old, v)
        return list(merged.values())


def _merge(one: PropertyVerdict, other: PropertyVerdict) -> PropertyVerdict:
    return PropertyVerdict(
        one.property,
        worst((one.answer, other.answer)),
        one.checked + other.checked,
        one.faults + other.faults,
        one.anomalies + other.anomalies,
        one.example or other.example,
    )


class Point(Struct, frozen=True):
    """Of a curve: the event rate at a time."""

    time_s: float
    rate: float
    transaction: bool


class CalibrationResult(Struct, frozen=True):
    """A wait of BL-WAIT, and why it is believed."""

    cell: str
    wait_ms: float
    step_ms: float
    correct: int
    failed_at_ms: float | None
    failure_rate_upper_bound: float
    runs: int
    fault: str
    """The first one of the run that failed one step below."""
    load_average: float | None


class Report(Struct):
    path: str
    run: dict[str, Any]
    cells: dict[str, CellResult]
    judgements: tuple[Judgement, ...]
    curves: dict[str, tuple[Point, ...]]
    problems: tuple[str, ...]
    """Of the input: what could not be read or is missing."""
    warnings: tuple[str, ...]
    """Of the whole run: why not to believe it."""
    made_with: dict[str, Any]
    calibrations: tuple[CalibrationResult, ...] = ()
    disturbed: tuple[Disturbed, ...] = ()
    """Repetitions with faults."""

    def paper(self, **wanted: Any) -> list[CellResult]:
        """Of these cells those without faults."""
        return [cell for cell in self.experiment(**wanted) if not cell.parameters.get("faults")]

    def experiment(self, **wanted: Any) -> list[CellResult]:
        """Cells whose parameters are these, in the paper's order of approaches."""
        found = [c for c in self.cells.values() if all(c.parameters.get(k) == v for k, v in wanted.items())]
        return sorted(found, key=lambda cell: (_place(cell.approach), cell.id))


def _place(approach: str) -> int:
    return _ORDER.index(approach) if approach in _ORDER else len(_ORDER)


def measured(cell: CellResult) -> MeasuredCell:
    """What claims may use: nothing of an invalid cell."""
    values = {
        column: [r.values[column] for r in cell.repetitions if column in r.values] for column in COLUMNS
    }
    return MeasuredCell(cell.answer == "valid", values)


def estimates_of(
    cell: str, repetitions: Sequence[RepetitionResult], answer: Answer, resampler: Resampler
) -> dict[str, Estimate]:
    if answer == "invalid":
        return {}
    found = {}
    for column in COLUMNS:
        values = [r.values[column] for r in repetitions if column in r.values]
        if (estimate := resampler.estimate(cell, values)) is not None:
            found[column] = estimate
    return found
