"""What is done on hosts for a plan: a step for each node at the beginning and the end of each of its faults."""

from __future__ import annotations

import json

from labctl.faults.plan import Fault, FaultyNode, LinkFault, NodeFault, made
from labctl.faults.steps import FaultStep, control, steps

B2, A1 = FaultyNode("broker", "b2"), FaultyNode("client", "A1")


def cut(at_s: float, for_s: float, *links: tuple[str, str]) -> Fault:
    return LinkFault(kind="cut", links=links, at_s=at_s, for_s=for_s)


def slow(at_s: float, for_s: float, by_ms: float, *links: tuple[str, str]) -> Fault:
    return LinkFault(kind="slow", links=links, by_ms=by_ms, at_s=at_s, for_s=for_s)


def test_a_process_is_signalled_and_started_on_its_own_host() -> None:
    plan = made(
        20,
        [
            NodeFault(kind="kill", node=B2, at_s=1, for_s=2),
            NodeFault(kind="pause", node=A1, at_s=2, for_s=3),
            NodeFault(kind="fill_disk", node=B2, at_s=10, for_s=1),
        ],
    )
    assert steps(plan) == [
        FaultStep(1, 1, "begun", "b2", "kill"),
        FaultStep(2, 2, "begun", "A1", "pause"),
        FaultStep(3, 1, "ended", "b2", "start"),
        FaultStep(5, 2, "ended", "A1", "resume"),
        FaultStep(10, 3, "begun", "b2", "fill"),
        FaultStep(11, 3, "ended", "b2", "empty"),
    ]


def test_both_ends_of_a_link_are_told() -> None:
    found = steps(made(20, [cut(1, 2, ("b1", "b2"))]))
    assert [(step.at_s, step.node, json.loads(step.text)["cut"]) for step in found] == [
        (1, "b1", ["b2"]),
        (1, "b2", ["b1"]),
        (3, "b1", []),
        (3, "b2", []),
    ]


def test_a_control_file_tells_all_links_of_a_broker_as_they_are_then() -> None:
    plan = made(
        20, [cut(1, 4, ("b1", "b2")), slow(2, 4, 50, ("b2", "b3")), cut(7, 1, ("b1", "b2"), ("b2", "b3"))]
    )

    def at(time_s: float) -> object:
        return json.loads(control(plan, "b2", time_s))

    assert at(0) == {"cut": [], "slow": {}}
    assert at(1) == {"cut": ["b1"], "slow": {}}
    assert at(3) == {"cut": ["b1"], "slow": {"b3": 50}}
    assert at(5) == {"cut": [], "slow": {"b3": 50}}
    assert at(7) == {"cut": ["b1", "b3"], "slow": {}}
    assert at(8) == {"cut": [], "slow": {}}


def test_where_one_fault_ends_as_another_begins_the_link_stays_as_the_second_wants_it() -> None:
    plan = made(20, [cut(1, 2, ("b1", "b2")), cut(3, 2, ("b1", "b2"))])
    assert {step.text for step in steps(plan) if step.at_s == 3} == {
        control(plan, "b1", 3),
        control(plan, "b2", 3),
    }
    assert [step.phase for step in steps(plan) if step.at_s == 3] == ["ended", "ended", "begun", "begun"]
    assert json.loads(control(plan, "b1", 3))["cut"] == ["b2"]
