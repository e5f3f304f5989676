"""What was done of a plan: a fault of several nodes begins with the first of them and is over with the last."""

from __future__ import annotations

from labctl.faults.done import FaultDone, Span, spans
from labctl.faults.plan import FaultyNode, LinkFault, NodeFault, made

CUT = LinkFault(kind="cut", links=(("b1", "b2"),), at_s=1, for_s=2)
PAUSE = NodeFault(kind="pause", node=FaultyNode("broker", "b2"), at_s=5, for_s=1)
PLAN = made(10, [CUT, PAUSE])


def test_a_fault_of_several_nodes_lasts_from_the_first_to_the_last() -> None:
    lines = [
        FaultDone(1, "begun", "b2", 1.02),
        FaultDone(1, "begun", "b1", 1.01),
        FaultDone(1, "ended", "b1", 3.01),
        FaultDone(1, "ended", "b2", 3.05),
    ]
    assert spans(PLAN, lines) == [Span(1, CUT, 1.01, 3.05)]


def test_a_fault_whose_end_nobody_has_told_lasted_until_the_end() -> None:
    assert spans(PLAN, [FaultDone(2, "begun", "b2", 5.0)]) == [Span(2, PAUSE, 5.0, 10)]
