"""Faults on the page: a band and a line of the table for each, and nothing where there are none."""

from __future__ import annotations

from typing import Any

from labctl.faults.done import Span
from labctl.faults.effects import Effect
from labctl.faults.plan import FaultyNode, LinkFault, NodeFault
from labctl.report.judgement.disturbed import Disturbed, Timeline
from labctl.report.judgement.model import CellResult, Report
from labctl.report.pages import summary, timelines
from labctl.report.pages.figures import draw
from labctl.report.pages.html import page

RUN = {"experiment": "x", "profile": "standard", "seed": 1, "started": "now"}
PARAMETERS: dict[str, Any] = {
    "scenario": "disruption",
    "approach": "d-tx",
    "brokers": 3,
    "in_flight": 1,
    "copies": 1,
    "step_ms": None,
    "stalls": False,
    "work": "dispatching",
    "load": "closed",
    "durable": "fsync",
    "faults": "failover",
}
KILL = Span(1, NodeFault(kind="kill", node=FaultyNode("broker", "b2"), at_s=2, for_s=1), 2.0, 3.0)
CUT = Span(2, LinkFault(kind="cut", links=(("b1", "b2"),), at_s=5, for_s=1), 5.0, 6.0)
EFFECT = Effect(1, "kill broker b2", 2.0, 3.0, 1.25, None, None, 3, 1, 0)


def report(rates: tuple[tuple[float, float], ...] = (), repetitions: int = 1) -> Report:
    cell = CellResult("a-cell", PARAMETERS, 1, (), "valid", {}, {})
    timeline = Timeline(10.0, (KILL, CUT), ((1.0, 50.0), (3.5, 1500.0)), rates)
    found = tuple(Disturbed("a-cell", number + 1, timeline, (EFFECT,)) for number in range(repetitions))
    return Report("", RUN, {"a-cell": cell}, (), {}, (), (), {}, disturbed=found)


def test_a_cell_with_faults_has_a_figure_of_its_own_and_none_of_the_papers() -> None:
    [figure] = draw(report())
    assert (figure.name, figure.title) == ("faults", timelines.TITLE)


def test_regular_events_have_a_panel_of_their_own() -> None:
    assert timelines.rows(timelines.shown(report())) == 1
    assert timelines.rows(timelines.shown(report(((1.0, 5.0), (2.0, 6.0))))) == 2


def test_each_fault_is_a_band_in_each_panel() -> None:
    bands = {timelines.NODE_COLOUR: 0, timelines.LINK_COLOUR: 0}
    for rates, panels in (((), 1), (((1.0, 5.0), (2.0, 6.0)), 2)):
        [figure] = draw(report(rates))
        for colour in bands:
            assert figure.svg.count(f"fill: {colour}") == panels


def test_of_several_repetitions_the_first_is_drawn_and_all_are_told() -> None:
    several = report(repetitions=3)
    assert [each.repetition for _, each in timelines.shown(several)] == [1]
    assert [line["repetition"] for line in summary.faults(several)] == [1, 2, 3]


def test_the_page_has_a_table_of_faults() -> None:
    html = page(report(), ())
    row = html[html.index("kill broker b2") :].partition("</tr>")[0]
    assert [cell for cell in ("1.25", ">3<", ">none<") if cell not in row] == []
    assert "What stopped" in html


def test_without_faults_there_is_nothing_of_it() -> None:
    plain = Report("", RUN, {}, (), {}, (), (), {})
    assert draw(plain) == []
    assert "What stopped" not in page(plain, ())
    assert "faults" not in summary.document(plain, {})
