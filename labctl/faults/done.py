"""What was done of a plan, as the hosts tell it: a line for each node that a fault has met, at beginning and end; pure.

Times count from the beginning of what is measured, by the clock of the node's host. A fault of several nodes has
begun with the first of them and is over with the last.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from labctl.faults.plan import Fault, FaultPlan
from labctl.faults.steps import Phase


class FaultDone(Struct, frozen=True):
    """A line of `faults.jsonl`."""

    fault: int
    """Its number in the plan, from 1."""
    phase: Phase
    node: str
    time_s: float
    what: str = ""
    """The fault in words."""


class Span(Struct, frozen=True):
    """A fault as it was."""

    number: int
    fault: Fault
    begun_s: float
    ended_s: float


def spans(plan: FaultPlan, lines: Iterable[FaultDone]) -> list[Span]:
    """Every fault that has begun; one of whose end nobody has told lasted until the end of the plan."""
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    for line in lines:
        if line.phase == "begun":
            begun[line.fault] = min(line.time_s, begun.get(line.fault, line.time_s))
        else:
            ended[line.fault] = max(line.time_s, ended.get(line.fault, line.time_s))
    return [
        Span(number, fault, begun[number], ended.get(number, plan.lasts_s))
        for number, fault in enumerate(plan.faults, start=1)
        if number in begun
    ]
