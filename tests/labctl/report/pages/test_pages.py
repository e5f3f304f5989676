"""What a report says of a claim, on the page and in the terminal: one value, with its own test, number and reason."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from html import unescape

import pytest

from labctl.output import Output
from labctl.paths import PROJECT
from labctl.report.judgement import claims
from labctl.report.judgement.claims import Judgement, MeasuredCell
from labctl.report.judgement.model import Report
from labctl.report.judgement.shapes import METRICS
from labctl.report.judgement.stats import Resampler
from labctl.report.pages import terminal
from labctl.report.pages.html import number, page

CLAIMS = {claim.id: claim for claim in claims.load(PROJECT / "experiments" / "claims.yaml")}
RUN = {"experiment": "x", "profile": "standard", "seed": 1, "started": "now"}
COLUMNS = ("latency_ms", "throughput", "drop", "variation")
GUILTY: Mapping[str, Mapping[str, float]] = {
    "C9": {"wait5": 10.0},
    "C10": {"stx10": 90.0},
    "C11": {"stx10": 90.0},
    "C16": {"ni": 0.001},
}
"""Cells in which the metrics have other values than in all others; then a value that is not the first decides."""
USUAL: Mapping[str, Mapping[str, float]] = {
    "C9": {f"{a}{n}": x for n in (1, 3, 5, 9) for a, x in (("stx", 2.0), ("wait", 3.0), ("ni", 9.0), ("dtx", 9.0))},
    "C10": {"wait1": 2.0, "wait10": 3.0, "stx1": 2.0, "stx10": 6.0, "dtx1": 2.0, "dtx10": 8.0, "ni1": 2.0, "ni10": 8.0},
    "C11": {"wait1": 2.0, "wait10": 14.0, "stx1": 2.0, "stx10": 7.4, "dtx1": 2.0, "dtx10": 4.6},
    "C16": {"stx": 0.01, "dtx": 0.4, "ni": 0.4},
}  # fmt: skip


def judged(name: str, values: Mapping[str, float], absent: str = "") -> Judgement:
    claim = CLAIMS[name]
    cells = {
        cell.id: MeasuredCell(True, {c: [values[own] * (1 + 0.001 * n) for n in range(5)] for c in COLUMNS})
        for own, cell in claim.cells.items()
        if own != absent
    }
    return claims.judge(claim, cells, Resampler(1))


def shown(judgement: Judgement, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The page's section on it, and the terminal's lines."""
    report = Report("", RUN, {}, (judgement,), {}, (), (), {})
    html = unescape(page(report, ()))
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    terminal.show(Output(), report)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith(judgement.id)]
    return html.split(f'id="{judgement.id}"')[1].split("<details>")[0], "\n".join(lines)


def is_one_value(judgement: Judgement) -> bool:
    told = (judgement.value, judgement.test, judgement.measured, judgement.interval, judgement.reason)
    return any(
        told == (v.value, v.test, v.measured, v.interval, v.reason)
        and v.decides
        and v.verdict == judgement.verdict
        for v in judgement.values
    )


@pytest.mark.parametrize("name", GUILTY)
def test_a_number_stands_beside_the_reason_that_it_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(name, USUAL[name]).verdict == "holds"
    found = judged(name, {**USUAL[name], **GUILTY[name]})
    assert found.verdict == "does not hold"
    assert found.value != found.values[0].value
    assert is_one_value(found)
    html, lines = shown(found, monkeypatch)
    (guilty,) = [value for value in found.values if value.value == found.value]
    for text in (number(guilty.measured), guilty.value, guilty.reason, guilty.verdict):
        assert text in html
        assert text in lines
    assert f"which must be {guilty.test}" in html
    assert f"'{guilty.test}'" in found.reason
    assert number(found.values[0].measured) not in html


@pytest.mark.parametrize(
    ("name", "absent"), [("C9", "dtx9"), ("C10", "ni10"), ("C11", "dtx10"), ("C16", "ni")]
)
def test_what_could_not_be_measured_has_no_number_of_something_else(name: str, absent: str) -> None:
    found = judged(name, USUAL[name], absent)
    assert (found.verdict, found.measured, found.is_measured) == ("inconclusive", None, True)
    assert found.reason == f"{CLAIMS[name].cells[absent].id} was not run"
    assert is_one_value(found)


def test_every_claim_tells_one_of_its_values() -> None:
    for seed, claim in enumerate(CLAIMS.values()):
        names = list(claim.cells)
        for guilty in names:
            values = dict.fromkeys(names, 2.0) | {guilty: 0.3 + seed}
            cells = {
                cell.id: MeasuredCell(
                    True, {column: [values[own], 1.2 * values[own]] for column in METRICS.values()}
                )
                for own, cell in claim.cells.items()
            }
            assert is_one_value(claims.judge(claim, cells, Resampler(1))), (claim.id, guilty)
