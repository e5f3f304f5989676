"""Plans of faults: in order, over in time, never two at once on one thing, and the same after a way through a file."""

from __future__ import annotations

import pytest

from labctl.faults.plan import Fault, FaultPlanError, FaultyNode, LinkFault, NodeFault, made, plan_of

B2 = FaultyNode("broker", "b2")
KILL = NodeFault(kind="kill", node=B2, at_s=5, for_s=1)
PAUSE = NodeFault(kind="pause", node=B2, at_s=2, for_s=1.5)
CUT = LinkFault(kind="cut", links=(("b1", "b2"),), at_s=5.5, for_s=2)


def refusal(*faults: Fault, lasts_s: float = 10) -> str:
    with pytest.raises(FaultPlanError) as caught:
        made(lasts_s, faults)
    return str(caught.value)


def test_faults_stand_in_the_order_of_their_times() -> None:
    assert made(10, [KILL, CUT, PAUSE]).faults == (PAUSE, KILL, CUT)


def test_a_plan_is_the_same_after_a_way_through_a_file() -> None:
    plan = made(10, [KILL, CUT, LinkFault(kind="slow", links=(("b2", "b3"),), by_ms=50, at_s=1, for_s=2)])
    assert plan_of(plan.document()) == plan


def test_a_plan_is_told_in_lines() -> None:
    slow = LinkFault(kind="slow", links=(("b2", "b3"),), by_ms=50, at_s=8, for_s=1)
    parts = LinkFault(kind="partition", links=(("b1", "b2"), ("b2", "b3")), at_s=9, for_s=0.5)
    assert made(10, [KILL, slow, parts]).lines() == [
        "5 s to 6 s: kill broker b2",
        "8 s to 9 s: slow b2 - b3 by 50 ms",
        "9 s to 9.5 s: partition b1 - b2, b2 - b3",
    ]


def test_a_fault_that_begins_or_ends_after_the_end_is_refused() -> None:
    assert "kill broker b2 at 5 s comes after the end: 4 s are measured" in refusal(KILL, lasts_s=4)
    assert "kill broker b2 is over at 6 s, after the end: 5.5 s" in refusal(KILL, lasts_s=5.5)


def test_two_faults_at_once_on_one_node_are_refused() -> None:
    late = NodeFault(kind="pause", node=B2, at_s=5.5, for_s=1)
    text = refusal(KILL, late)
    assert text == "broker b2 has two faults at once: kill broker b2 until 6 s, pause broker b2 at 5.5 s"


def test_two_faults_at_once_on_one_link_are_refused() -> None:
    parts = LinkFault(kind="partition", links=(("b1", "b2"), ("b2", "b3")), at_s=7, for_s=1)
    assert "b1 - b2 has two faults at once" in refusal(CUT, parts)


def test_faults_on_different_things_may_overlap() -> None:
    assert len(made(10, [KILL, CUT]).faults) == 2


def test_a_plan_knows_what_is_started_anew() -> None:
    plan = made(10, [KILL, CUT])
    assert plan.restarts("broker")
    assert not plan.restarts("client")
    assert not made(10, [PAUSE]).restarts("broker")
    assert plan.longest_s == 2
