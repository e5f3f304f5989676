"""What faults may happen to in a cell, and why something is spared."""

from __future__ import annotations

import pytest

from labctl.faults import stage
from labctl.faults.plan import FaultPlanError, FaultyNode, NodeFault
from labctl.faults.stage import FaultStage
from labctl.topology import standard

SETTING = FaultStage(
    tree=standard(5), clients={"E": "it coordinates", "D": ""}, is_durable=False, label="a cell"
)


def test_a_link_is_found_from_either_end() -> None:
    assert (
        stage.link_of(["b4", "b1"], SETTING.tree) == stage.link_of(["b1", "b4"], SETTING.tree) == ("b1", "b4")
    )


def test_the_links_between_parts_are_those_whose_ends_are_in_different_ones() -> None:
    parts = [["b1", "b2"], ["b3", "b4"], ["b5"]]
    assert stage.between(parts, SETTING.tree) == (("b1", "b3"), ("b1", "b4"), ("b1", "b5"))


def test_an_unknown_node_is_told_with_the_cell_that_has_it_not() -> None:
    with pytest.raises(FaultPlanError, match="there is no 'broker b7' in a cell"):
        stage.node_of("broker b7", SETTING)


def test_a_client_that_can_take_its_part_up_again_may_be_killed() -> None:
    def reason(name: str) -> str:
        return stage.why_not(
            NodeFault(kind="kill", node=FaultyNode("client", name), at_s=1, for_s=1), SETTING
        )

    assert reason("D") == ""
    assert reason("E") == "client E cannot be killed in a cell: it coordinates"
