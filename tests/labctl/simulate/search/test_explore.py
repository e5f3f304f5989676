"""Small worlds seen whole: every schedule, each state once; and a search that finds what is wrong."""

from __future__ import annotations

from itertools import count

import pytest

from broker.transactions.dtx.order import Order
from broker.transactions.dtx.view import View
from labctl.simulate.programs.programs import Op, Program, TxProgram
from labctl.simulate.search.choices import ChoiceWorld
from labctl.simulate.search.explore import SMALL, Explorer, explore, shown, small_programs
from labctl.simulate.views.diagram import diagram


def small(name: str, protocol: str, brokers: int) -> Program:
    found = small_programs([protocol])
    return next(p for n, _, p in found if n == name and len(p.brokers) == brokers)


@pytest.mark.parametrize("protocol", ["d-tx", "d-tx-optimistic", "d-tx-ni", "s-tx", "s-tx-safe", "mixed"])
@pytest.mark.parametrize("name", ["skew", "loss"])
def test_one_broker_is_explored_whole_without_a_violation(name: str, protocol: str) -> None:
    explored, _ = explore(name, protocol, small(name, protocol, 1), 2000)
    assert explored.complete
    assert explored.violations == []
    assert explored.ends > 1


def test_two_brokers_have_more_schedules_than_one() -> None:
    one, _ = explore("loss", "d-tx", small("loss", "d-tx", 1), 2000)
    two, _ = explore("loss", "d-tx", small("loss", "d-tx", 2), 2000)
    assert two.complete
    assert two.schedules > one.schedules


@pytest.mark.parametrize(
    ("name", "protocol", "brokers"),
    [("skew", "d-tx", 1), ("skew", "s-tx", 1), ("loss", "d-tx", 2), ("loss", "s-tx", 1)],
)
def test_states_that_are_met_again_hide_no_schedule(
    name: str, protocol: str, brokers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the comparison of states the search walks every schedule: as many as were counted with it."""
    program = small(name, protocol, brokers)
    merged = Explorer(program, 5000)
    assert merged.run()
    numbers = count()
    monkeypatch.setattr(ChoiceWorld, "state", lambda world: next(numbers).to_bytes(8, "big"))
    every = Explorer(program, 5000)
    assert every.run()
    assert len(every.ends) == merged.schedules() > len(merged.ends)


def test_a_search_that_was_cut_short_says_so() -> None:
    explored, _ = explore("skew", "d-tx", small("skew", "d-tx", 2), 20)
    assert explored.runs == 20
    assert not explored.complete


def test_a_conflict_that_nobody_sees_is_found_and_its_schedule_can_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Order, "objection", lambda order, context: "")
    program = small("skew", "d-tx", 1)
    explored, search = explore("skew", "d-tx", program, 2000)
    assert "serializability" in {violation["property"] for violation in explored.violations}
    result = shown(program, search.failing)
    assert result.faults == search.faults
    assert any("Commit" in line for line in diagram(result.world, program))


def test_a_client_that_is_gone_and_still_attracted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(View, "forget", lambda view, client: True)
    explored, _ = explore("attract", "d-tx", small("attract", "d-tx", 2), 2000)
    assert any("could not place a TxRecord" in str(violation["text"]) for violation in explored.violations)


def test_messages_of_one_link_keep_their_order() -> None:
    transaction = TxProgram("c1", "s-tx", (Op("sub", "d", (0,)), Op("usub", "d", (0,)), Op("sub", "d", (1,))))
    program = Program((), ("b1",), {"c1": "b1"}, (), (transaction,))
    explored, search = explore("one", "s-tx", program)
    assert explored.complete
    assert explored.schedules == 1
    result = shown(program, ())
    assert search.runs == 1
    numbers = [p.number for p in result.world.passages if p.source == "client:c1"]
    assert numbers == sorted(numbers)


def test_there_are_small_programs_of_every_kind_on_one_and_two_brokers() -> None:
    found = [(name, len(program.brokers)) for name, _, program in small_programs(["d-tx"])]
    assert sorted(found) == sorted((name, size) for name in SMALL for size in (1, 2))
