"""Claims: reading their file, the expressions in it, and the rule by which they are judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from labctl.paths import PROJECT
from labctl.report.judgement import claims, shapes
from labctl.report.judgement.claims import ClaimsError, MeasuredCell
from labctl.report.judgement.shapes import ShapeError
from labctl.report.judgement.stats import Resampler

OURS = PROJECT / "experiments" / "claims.yaml"
A, B = claims.cell("d-tx").id, claims.cell("bl-wait").id


def write(folder: Path, shape: str, cells: str = "{a: {approach: d-tx}, b: {approach: bl-wait}}") -> Path:
    path = folder / "claims.yaml"
    path.write_text(
        f"- id: X1\n  claim: it is so\n  paper: none\n  cells: {cells}\n  shape:\n    - {shape}\n"
    )
    return path


def verdict(
    tmp_path: Path, shape: str, a: list[float], b: list[float], valid: bool = True
) -> claims.Judgement:
    (claim,) = claims.load(write(tmp_path, shape))
    cells = {A: MeasuredCell(valid, {"latency_ms": a}), B: MeasuredCell(True, {"latency_ms": b})}
    return claims.judge(claim, cells, Resampler(1))


def test_all_sixteen_claims_of_the_paper_are_there() -> None:
    assert [claim.id for claim in claims.load(OURS)] == [f"C{number}" for number in range(1, 17)]


def test_claims_speak_of_cells_by_the_ids_of_the_matrix() -> None:
    found = {claim.id: claim for claim in claims.load(OURS)}
    assert {cell.id for cell in found["C5"].cells.values()} == {
        "dispatching-d-tx-b1-k1-c1",
        "dispatching-d-tx-b9-k1-c1",
    }
    assert found["C15"].cells["dtx"].id == "disruption-d-tx-b3-k1-c1"


def test_a_variant_changes_the_step_of_bl_wait_alone() -> None:
    changes = {"step_ms": 1.0, "stalls": True}
    assert claims.varied(claims.cell("bl-wait"), changes).id == "dispatching-bl-wait-b3-k1-c1-step1-stalls"
    assert claims.varied(claims.cell("s-tx"), changes).id == "dispatching-s-tx-b3-k1-c1-stalls"
    disruption = claims.varied(
        claims.cell("s-tx", scenario="disruption"), {"work": "consolidation", "load": "open"}
    )
    assert disruption.id == "disruption-s-tx-b3-k1-c1-consolidation-open"


def test_a_whole_interval_inside_holds(tmp_path: Path) -> None:
    judged = verdict(
        tmp_path, '{value: latency(a) / latency(b), is: "> 1"}', [30, 31, 32, 30, 31], [10, 11, 10, 10, 11]
    )
    assert judged.verdict == "holds"
    assert judged.measured == pytest.approx(30.8 / 10.4)
    assert judged.interval is not None
    assert judged.interval[0] > 2.5


def test_a_whole_interval_outside_does_not_hold(tmp_path: Path) -> None:
    judged = verdict(tmp_path, '{value: latency(a) / latency(b), is: "< 1"}', [30, 31, 32], [10, 11, 10])
    assert judged.verdict == "does not hold"


def test_an_interval_across_the_limit_is_inconclusive(tmp_path: Path) -> None:
    judged = verdict(tmp_path, '{value: latency(a) / latency(b), is: "> 1"}', [9, 10, 12], [10, 11, 9])
    assert judged.verdict == "inconclusive"
    assert "crosses" in judged.reason


def test_one_repetition_decides_nothing_and_says_what_it_would(tmp_path: Path) -> None:
    judged = verdict(tmp_path, '{value: latency(a) / latency(b), is: "> 1"}', [30], [10])
    assert (judged.verdict, judged.measured) == ("inconclusive", 3.0)
    assert "would hold" in judged.reason


def test_an_invalid_cell_decides_nothing(tmp_path: Path) -> None:
    judged = verdict(tmp_path, '{value: latency(a) / latency(b), is: "> 1"}', [30, 31], [10, 10], valid=False)
    assert (judged.verdict, judged.measured) == ("inconclusive", None)
    assert judged.reason == f"{A} is not valid"


def test_a_cell_that_was_not_run_is_named() -> None:
    (claim, *_) = claims.load(OURS)
    judged = claims.judge(claim, {}, Resampler(1))
    assert (judged.verdict, judged.is_measured) == ("inconclusive", False)
    assert judged.reason == "dispatching-d-tx-b3-k1-c1 was not run"


def test_one_value_that_does_not_hold_decides_the_claim(tmp_path: Path) -> None:
    path = write(tmp_path, '{value: latency(a), is: "> 1"}\n    - {value: latency(b), is: "< 1"}')
    (claim,) = claims.load(path)
    cells = {A: MeasuredCell(True, {"latency_ms": [5, 6]}), B: MeasuredCell(True, {"latency_ms": [5, 6]})}
    assert claims.judge(claim, cells, Resampler(1)).verdict == "does not hold"


def test_a_value_that_does_not_decide_is_shown_only(tmp_path: Path) -> None:
    path = write(
        tmp_path, '{value: latency(a), is: "> 1"}\n    - {value: latency(b), is: "< 1", decides: false}'
    )
    (claim,) = claims.load(path)
    cells = {A: MeasuredCell(True, {"latency_ms": [5, 6]}), B: MeasuredCell(True, {"latency_ms": [5, 6]})}
    judged = claims.judge(claim, cells, Resampler(1))
    assert judged.verdict == "holds"
    assert [value.verdict for value in judged.values] == ["holds", "does not hold"]


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ('{value: latncy(a), is: "> 1"}', "line 6: unknown metric 'latncy'; did you mean 'latency'?"),
        ('{value: latency(c), is: "> 1"}', "'c' is not among the cells of this claim"),
        ('{value: latency(a), is: "bigger"}', "'bigger' is no test"),
        ('{value: latency(a), is: "between 2 and 1"}', "nothing lies between them"),
        ('{valu: latency(a), is: "> 1"}', "unknown key 'valu'; did you mean 'value'?"),
        ('{value: latency(a, is: "> 1"}', "is not an expression"),
        ('{value: "__import__(\'os\')", is: "> 1"}', "has no meaning here"),
        ('{value: latency(a), is: "> 1", decides: false}', "no value decides this claim"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, shape: str, complaint: str) -> None:
    with pytest.raises(ClaimsError) as error:
        claims.load(write(tmp_path, shape))
    assert complaint in str(error.value)
    assert "line " in str(error.value)


def test_a_misspelt_cell_setting_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, '{value: latency(a), is: "> 1"}', "{a: {approach: d-tx, broker: 9}}")
    with pytest.raises(ClaimsError, match="unknown key 'broker'; did you mean 'brokers'"):
        claims.load(path)


def test_expressions_are_evaluated_on_all_draws_at_once() -> None:
    expression = shapes.parse("max(latency(a), 2 * latency(b)) - 1", {"a": 1, "b": 1})
    values = {"a": np.array([1.0, 9.0]), "b": np.array([2.0, 3.0])}
    assert shapes.evaluate(expression, lambda metric: values[metric.cell]).tolist() == [3.0, 8.0]


def test_a_division_by_nothing_is_inconclusive(tmp_path: Path) -> None:
    judged = verdict(tmp_path, '{value: latency(a) / latency(b), is: "> 1"}', [1, 2], [0, 0])
    assert (judged.verdict, judged.measured, judged.reason) == ("inconclusive", None, "a division by zero")


def test_about_is_a_factor_and_not_a_difference() -> None:
    test = shapes.parse_test("about 3")
    assert (test.low, test.high) == (2.0, 4.5)
    with pytest.raises(ShapeError, match="positive"):
        shapes.parse_test("about 0")
