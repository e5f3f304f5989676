"""The paper's claims: read from `experiments/claims.yaml`, judged on what was measured.

The rule, the same for every claim: each value that it names is estimated with its interval over repetitions.
Where the whole interval fulfils the test, the value holds; where none of it does, it does not hold; otherwise,
and wherever a cell is missing, invalid or has a single repetition, it is inconclusive. A claim holds when all
values that decide it hold, and does not hold when one of them does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from labctl import yamlfile
from labctl.exits import UsageProblem
from labctl.experiment.cell import Cell
from labctl.experiment.experiment import (
    ApproachName,
    BrokerCount,
    CopyCount,
    InFlight,
    LoadName,
    ScenarioName,
    Stalls,
    StepMs,
    Work,
    check_name,
)
from labctl.paths import PROJECT
from labctl.report.judgement import shapes
from labctl.report.judgement.shapes import METRICS, Expression, Metric, ShapeError, Test, Verdict
from labctl.report.judgement.stats import Estimate, Resampler, Samples, interval_of
from labctl.yamlfile import Document, given

RULE = (
    "Each value is estimated with its 95 % bootstrap interval over repetitions. It holds when the whole interval "
    "fulfils the test, does not hold when no part of the interval does, and is inconclusive otherwise, or when a "
    "cell is missing, invalid, or has one repetition only. A claim holds when all values that decide it hold, and "
    f"does not hold when one of them does not. 'About x' accepts x / {shapes.ABOUT:g} to x * {shapes.ABOUT:g}."
)


class ClaimsError(UsageProblem):
    """A claims file that says nothing sensible; the text names file, line and the nearest valid word."""


def cell(approach: str, scenario: str = "dispatching", **settings: Any) -> Cell:
    """The point of the matrix that a claim speaks of; what it does not say is as in the base experiment."""
    return Cell(scenario, approach, **settings)


def varied(cell: Cell, changes: Mapping[str, Any]) -> Cell:
    """With other settings; a step means something to BL-WAIT only, work and load to disruption."""
    kept = dict(changes)
    if not cell.waits:
        kept.pop("step_ms", None)
    if cell.scenario != "disruption":
        kept.pop("work", None)
        kept.pop("load", None)
    return structs.replace(cell, **kept)


class Shape(Struct, frozen=True):
    value: Expression
    text: str
    test: Test
    paper: float | None
    decides: bool


class Claim(Struct, frozen=True):
    id: str
    text: str
    paper: str
    figure: int | None
    cells: dict[str, Cell]
    shapes: tuple[Shape, ...]
    variants: tuple[tuple[str, dict[str, Any]], ...]


class JudgedValue(Struct, frozen=True):
    """One value of a claim, and what is to be said of it."""

    value: str
    test: str
    paper: float | None
    decides: bool
    verdict: Verdict
    measured: float | None
    interval: tuple[float, float] | None
    reason: str


class VariantJudgement(Struct, frozen=True):
    name: str
    verdict: Verdict
    values: tuple[JudgedValue, ...]


class Judgement(Struct, frozen=True):
    id: str
    text: str
    figure: int | None
    verdict: Verdict
    value: str
    """Which of its values is told: one that has decided the verdict. What is measured, the test and the reason are its
    own, and of no other value."""
    test: str
    measured: float | None
    interval: tuple[float, float] | None
    paper: str
    reason: str
    is_measured: bool
    """Whether there is a figure for any of its values."""
    cells: tuple[str, ...]
    values: tuple[JudgedValue, ...]
    variants: tuple[VariantJudgement, ...]


# The file as it is written


class PointSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A point of the matrix, in the words of an experiment; one value for each."""

    scenario: ScenarioName | UnsetType = UNSET
    work: Work | UnsetType = UNSET
    approach: ApproachName | UnsetType = UNSET
    brokers: BrokerCount | UnsetType = UNSET
    in_flight: InFlight | UnsetType = UNSET
    copies: CopyCount | UnsetType = UNSET
    step_ms: StepMs | UnsetType = UNSET
    stalls: Stalls | UnsetType = UNSET
    load: LoadName | UnsetType = UNSET


class CellSettings(PointSettings, frozen=True, kw_only=True):
    """A cell that a claim speaks of: its approach, and what it has different from the base experiment."""

    approach: Annotated[ApproachName, Meta(extra={"missing": "a cell without 'approach'"})]


class ShapeEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A value, and the test that it has to pass."""

    value: str
    """Metrics of cells, numbers, + - * /, min and max, as latency(dtx) / latency(wait)."""
    is_: str = field(name="is")
    """> 1, < 1, between 0.9 and 1.1, or about 2.5."""
    paper: float | UnsetType = UNSET
    """The paper's figure for this value."""
    decides: bool = True
    """False: shown beside the claim, without a say in its verdict."""


class ClaimEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the paper claims, and when a reproduction agrees with it."""

    id: str
    """As C1."""
    claim: str
    """In a sentence."""
    paper: str = ""
    """What the paper gives for it."""
    figure: int | UnsetType = UNSET
    """The paper's."""
    cells: dict[str, CellSettings]
    """What the claim speaks of, by names of your choice."""
    shape: list[ShapeEntry]
    """Of the result, by which the claim is judged."""
    variants: dict[str, PointSettings] = {}
    """Other cells, where they were run, on which the same shape is judged: what they have different."""


ClaimsFile = Annotated[list[ClaimEntry], Meta(min_length=1, extra={"problem": "there is no claim in it"})]


# Reading


def find(result: str | None = None) -> Path:
    """The claims of the result itself, of the directory that we are in or, failing that, our own."""
    candidates = [Path(result, "claims.yaml")] if result is not None else []
    candidates.append(Path("experiments", "claims.yaml"))
    own = PROJECT / "experiments" / "claims.yaml"
    return next((path for path in candidates if path.exists()), own)


def load(path: Path) -> tuple[Claim, ...]:
    document = yamlfile.read(path, ClaimsFile, ClaimsError)
    found: dict[str, Claim] = {}
    for position, written in enumerate(document.value):
        if written.id in found:
            raise document.error(f"the claim {written.id!r} is there twice", position)
        found[written.id] = _claim(document, written, position)
    return tuple(found.values())


def _claim(document: Document[ClaimsFile], written: ClaimEntry, position: int) -> Claim:
    for group, settings in (("cells", written.cells), ("variants", written.variants)):
        for name, each in settings.items():
            for axis, value in given(each).items():  # not imported: a report needs the result alone
                check_name(document, axis, value, position, group, name, axis)
    cells = {name: cell(**given(settings)) for name, settings in written.cells.items()}
    listed = tuple(_shape(document, each, cells, position, n) for n, each in enumerate(written.shape))
    if not any(shape.decides for shape in listed):
        raise document.error("no value decides this claim", position, "shape")
    return Claim(
        written.id,
        written.claim,
        written.paper,
        None if written.figure is UNSET else written.figure,
        cells,
        listed,
        tuple((name, given(settings)) for name, settings in written.variants.items()),
    )


def _shape(
    document: Document[ClaimsFile], written: ShapeEntry, cells: Mapping[str, Cell], claim: int, position: int
) -> Shape:
    key = "value"
    try:
        value = shapes.parse(written.value, cells)
        key = "is"
        test = shapes.parse_test(written.is_)
    except ShapeError as error:
        raise document.error(str(error), claim, "shape", position, key) from None
    paper = None if written.paper is UNSET else written.paper
    return Shape(value, written.value, test, paper, written.decides)


# Judging


class MeasuredCell(Struct, frozen=True):
    """A cell as far as claims ask: whether it is valid, and each metric's value in every repetition."""

    valid: bool
    values: Mapping[str, Sequence[float]]


def judge(claim: Claim, cells: Mapping[str, MeasuredCell], resampler: Resampler) -> Judgement:
    values = tuple(_judge_shape(shape, claim.cells, cells, resampler) for shape in claim.shapes)
    variants = tuple(
        VariantJudgement(name, verdict_of(judged), judged)
        for name, changes in claim.variants
        if (judged := _judge_variant(claim, changes, cells, resampler)) is not None
    )
    telling = _telling(values)
    return Judgement(
        claim.id,
        claim.text,
        claim.figure,
        telling.verdict,
        telling.value,
        telling.test,
        telling.measured,
        telling.interval,
        claim.paper,
        telling.reason,
        any(value.measured is not None for value in values),
        tuple(cell.id for cell in claim.cells.values()),
        values,
        variants,
    )


def verdict_of(values: Sequence[JudgedValue]) -> Verdict:
    found = [value.verdict for value in values if value.decides]
    if "does not hold" in found:
        return "does not hold"
    return "inconclusive" if "inconclusive" in found else "holds"


def _telling(values: Sequence[JudgedValue]) -> JudgedValue:
    """The first value that has decided the verdict; one that was measured, if any of them was."""
    verdict = verdict_of(values)
    decisive = [value for value in values if value.decides and value.verdict == verdict]
    return next((value for value in decisive if value.measured is not None), decisive[0])


def _judge_variant(
    claim: Claim, changes: Mapping[str, Any], cells: Mapping[str, MeasuredCell], resampler: Resampler
) -> tuple[JudgedValue, ...] | None:
    """None where the result has none of its cells."""
    names = {name: varied(cell, changes) for name, cell in claim.cells.items()}
    changed = [cell.id for name, cell in names.items() if cell.id != claim.cells[name].id]
    if not any(each in cells for each in changed):
        return None
    return tuple(_judge_shape(shape, names, cells, resampler) for shape in claim.shapes)


def _judge_shape(
    shape: Shape, names: Mapping[str, Cell], cells: Mapping[str, MeasuredCell], resampler: Resampler
) -> JudgedValue:
    used = {metric: names[metric.cell].id for metric in shapes.metrics(shape.value)}
    problem = _problem(used, cells)
    if problem:
        return JudgedValue(
            shape.text, shape.test.text, shape.paper, shape.decides, "inconclusive", None, None, problem
        )
    estimate = _estimate(shape.value, used, cells, resampler)
    verdict, reason = _decide(shape.test, estimate)
    return JudgedValue(
        shape.text,
        shape.test.text,
        shape.paper,
        shape.decides,
        verdict,
        estimate.value if np.isfinite(estimate.value) else None,
        estimate.interval,
        reason,
    )


def _problem(used: Mapping[Metric, str], cells: Mapping[str, MeasuredCell]) -> str:
    for metric, cell in used.items():
        if cell not in cells:
            return f"{cell} was not run"
        if not cells[cell].valid:
            return f"{cell} is not valid"
        if not cells[cell].values.get(METRICS[metric.metric]):
            return f"{cell} has no {metric.metric}"
    return ""


def _estimate(
    value: Expression, used: Mapping[Metric, str], cells: Mapping[str, MeasuredCell], resampler: Resampler
) -> Estimate:
    def series(metric: Metric) -> Sequence[float]:
        return cells[used[metric]].values[METRICS[metric.metric]]

    def mean(metric: Metric) -> Samples:
        return np.asarray(np.mean(series(metric)))

    def draws(metric: Metric) -> Samples:
        return resampler.means(used[metric], series(metric))

    point = float(shapes.evaluate(value, mean))
    fewest = min((len(series(metric)) for metric in used), default=1)
    return interval_of(point, np.atleast_1d(shapes.evaluate(value, draws)), fewest)


def _decide(test: Test, estimate: Estimate) -> tuple[Verdict, str]:
    if not np.isfinite(estimate.value):
        return "inconclusive", "a division by zero"
    interval = estimate.interval
    if interval is None:
        would = "would" if test.accepts(estimate.value) else "would not"
        return "inconclusive", f"one repetition has no interval; by its value alone it {would} hold"
    verdict = test.judge(*interval)
    place = {"holds": "lies inside", "does not hold": "lies outside", "inconclusive": "crosses the limits of"}
    return verdict, f"the interval {place[verdict]} '{test.text}' ({estimate.n} repetitions)"
