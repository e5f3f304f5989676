"""Random faults: the same for the same seed, each in its piece of time, none in the way of those at given times."""

from __future__ import annotations

from labctl.faults.drawn import FaultChoice, draw
from labctl.faults.plan import KINDS, FaultyNode, LinkFault, NodeFault, made
from labctl.topology import standard

TREE = standard(3)
BROKERS = [FaultyNode("broker", name) for name in TREE.brokers]
CHOICE = FaultChoice(
    every_s=5,
    kinds=KINDS,
    nodes=dict.fromkeys(("kill", "pause", "fill_disk"), BROKERS),
    for_s=(0.5, 2),
    by_ms=50,
)


def test_the_same_seed_draws_the_same_faults_and_another_one_others() -> None:
    assert draw(CHOICE, 60, TREE, 7, []) == draw(CHOICE, 60, TREE, 7, [])
    assert draw(CHOICE, 60, TREE, 7, []) != draw(CHOICE, 60, TREE, 8, [])


def test_each_piece_of_time_but_the_first_has_one_that_is_over_in_it() -> None:
    for seed in range(50):
        faults = draw(CHOICE, 60, TREE, seed, [])
        assert [int(fault.at_s / 5) for fault in faults] == list(range(1, 12))
        assert all(fault.end_s <= (int(fault.at_s / 5) + 1) * 5 for fault in faults)
        assert all(0.5 <= fault.for_s <= 2 for fault in faults)
        made(60, faults)


def test_every_kind_comes_up() -> None:
    faults = draw(CHOICE, 1000, TREE, 1, [])
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.by_ms for fault in faults if isinstance(fault, LinkFault)} == {0.0, 50}


def test_what_is_given_is_not_met_twice() -> None:
    always = [NodeFault(kind="pause", node=node, at_s=0, for_s=30) for node in BROKERS[:2]]
    drawn = draw(CHOICE, 30, TREE, 3, always)
    made(30, [*always, *drawn])
    assert {str(fault.node) for fault in drawn if isinstance(fault, NodeFault)} <= {"broker b3"}


def test_where_there_is_no_room_nothing_is_drawn() -> None:
    choice = FaultChoice(every_s=5, kinds=["pause"], nodes={"pause": BROKERS[:1]}, for_s=(1, 2), by_ms=50)
    always = NodeFault(kind="pause", node=BROKERS[0], at_s=0, for_s=30)
    assert draw(choice, 30, TREE, 3, [always]) == []
