"""What is done on hosts for a plan, and when: a step for each node that a fault meets, at its beginning and end; pure.

A process is signalled or started by the agent of its host. A link is cut and slowed by its two brokers, where delays
are emulated: each has a *control file*, which says how its links are at present, and looks at it when it begins and
whenever it is told to (SIGUSR1, `broker.serving.impairment`). A disk is full when the data folder has a quota.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from labctl.faults.plan import Fault, FaultPlan, LinkFault, NodeFault

Phase = Literal["begun", "ended"]
Do = Literal["kill", "start", "pause", "resume", "control", "fill", "empty"]
_OF_NODES: dict[str, tuple[Do, Do]] = {
    "kill": ("kill", "start"),
    "pause": ("pause", "resume"),
    "fill_disk": ("fill", "empty"),
}


class FaultStep(Struct, frozen=True, order=True):
    at_s: float
    fault: int
    """Its number in the plan, from 1."""
    phase: Phase
    node: str
    do: Do
    text: str = ""
    """For a control file: how the node's links are from now on."""


def steps(plan: FaultPlan) -> list[FaultStep]:
    """By time; of two at the same time, what ends comes before what begins."""
    found = [
        step for number, fault in enumerate(plan.faults, start=1) for step in _steps(plan, number, fault)
    ]
    return sorted(found, key=lambda step: (step.at_s, step.phase == "begun", step))


def _steps(plan: FaultPlan, number: int, fault: Fault) -> Iterator[FaultStep]:
    if isinstance(fault, NodeFault):
        begins, ends = _OF_NODES[fault.kind]
        yield FaultStep(fault.at_s, number, "begun", fault.node.name, begins)
        yield FaultStep(fault.end_s, number, "ended", fault.node.name, ends)
        return
    for broker in dict.fromkeys(end for link in fault.links for end in link):
        yield FaultStep(fault.at_s, number, "begun", broker, "control", control(plan, broker, fault.at_s))
        yield FaultStep(fault.end_s, number, "ended", broker, "control", control(plan, broker, fault.end_s))


def control(plan: FaultPlan, broker: str, time_s: float) -> str:
    """How the links of a broker are at a time: neighbours that are cut off, and what is added to messages to others."""
    cut: list[str] = []
    slow: dict[str, float] = {}
    for fault in plan.faults:
        if not isinstance(fault, LinkFault) or not fault.at_s <= time_s < fault.end_s:
            continue
        for neighbour in (b if a == broker else a for a, b in fault.links if broker in (a, b)):
            if fault.kind == "slow":
                slow[neighbour] = fault.by_ms
            else:
                cut.append(neighbour)
    return json.dumps({"cut": sorted(cut), "slow": slow})
