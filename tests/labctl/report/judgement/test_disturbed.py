"""Repetitions with faults: times of several hosts brought to one zero, and what each fault did."""

from __future__ import annotations

import json
from typing import Any

import pytest

from labctl.faults.plan import FaultyNode, LinkFault, NodeFault, made
from labctl.report.judgement.disturbed import Disturbed, disturbed

KEY = ("a-cell", 1)
PLAN = made(
    10,
    [
        NodeFault(kind="pause", node=FaultyNode("broker", "b2"), at_s=2, for_s=1),
        LinkFault(kind="cut", links=(("b1", "b2"),), at_s=6, for_s=1),
    ],
)
CELL = {"plan": json.dumps(PLAN.document()), "began_s": {"E": 100.0, "A1": 5000.0}}


def line(fault: int, phase: str, time_s: float) -> dict[str, Any]:
    return {"fault": fault, "phase": phase, "node": "b2", "time_s": time_s}


def transaction(
    start_s: float, end_s: float | None, outcome: str = "committed", **others: Any
) -> dict[str, Any]:
    times = {"start_s": start_s, "outcome_s": end_s, "ack_s": end_s}
    return {"warm_up": False, "outcome": outcome, "fault": "", **times, **others}


def window(number: int, start_s: float, events: int) -> dict[str, Any]:
    return {"agent": "A1", "window": number, "start_s": start_s, "events": events}


def one(transactions: list[dict[str, Any]], rates: list[dict[str, Any]] | None = None) -> Disturbed:
    lines = [line(1, "begun", 2.1), line(1, "ended", 3.1), line(2, "begun", 6.1), line(2, "ended", 7.1)]
    [found] = disturbed({KEY: CELL}, {KEY: lines}, {KEY: transactions}, {KEY: rates or []}, 1.0)
    return found


def test_transactions_count_from_the_beginning_of_what_is_measured() -> None:
    found = one([transaction(90, 95, warm_up=True), transaction(101, 101.5), transaction(101.5, 104.0)])
    [first, second] = found.timeline.latencies
    assert first == pytest.approx((1.5, 500))
    assert second == pytest.approx((4.0, 2500))
    assert [effect.stopped_s for effect in found.effects] == [pytest.approx(2.5), pytest.approx(6.0)]
    assert found.effects[0].recovery_s == pytest.approx(0.9)
    assert found.effects[1].recovery_s is None


def test_windows_of_an_agent_count_by_the_clock_of_its_own_host() -> None:
    found = one([transaction(101, 108)], [window(n, 5000.5 + n, 0 if n in (2, 3) else 50) for n in range(9)])
    assert found.timeline.rates[:2] == ((0.5, 50.0), (1.5, 50.0))
    assert [effect.events_stopped_s for effect in found.effects] == [pytest.approx(2.0), pytest.approx(0.0)]


def test_what_was_aborted_unknown_or_lost_is_told_of_the_fault_that_it_met() -> None:
    found = one(
        [
            transaction(102.5, 102.6, "aborted"),
            transaction(102.6, None, "unknown"),
            transaction(103.2, 103.5),
            transaction(106.2, 106.3, fault="missed"),
            transaction(107.0, 107.5),
        ]
    )
    told = [(effect.aborted, effect.unknown, effect.lost) for effect in found.effects]
    assert told == [(1, 1, 0), (0, 1, 1)]


def test_cells_without_a_plan_and_with_one_that_makes_no_sense_are_left_out() -> None:
    assert disturbed({KEY: {"plan": None, "began_s": None}}, {}, {}, {}, 1.0) == []
    assert disturbed({KEY: {"plan": '{"lasts_s": "x"}', "began_s": None}}, {}, {}, {}, 1.0) == []
