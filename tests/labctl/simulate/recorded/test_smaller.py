"""A run that broke a promise is replayed as it was, breaks it again, and shrinks to what it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from labctl.simulate.programs.variants import Variant, generate
from labctl.simulate.recorded import smaller
from labctl.simulate.recorded.smaller import Case
from labctl.simulate.views.diagram import diagram
from tests.labctl.simulate.recorded.test_world import recorded
from tests.mutations import operations, ordering, tables
from tests.mutations.patching import Mutation
from tests.support.recorded_world import record

STEADY = Variant(swarm=False)
BROKEN = [
    (ordering.no_validation, "skew", "d-tx", 1, "serializability", 3),
    (operations.leaf_never_acknowledges, "dispatch", "d-tx", 0, "liveness", 1),
    (tables.aborts_undo_nothing, "aborts", "d-tx-ni", 0, "convergence", 1),
    (tables.a_batch_loses_its_last, "bursts", "d-tx", 0, "recipients", 0),
]


def transactions(case: Case) -> set[str]:
    return {name for _, (kind, name) in case.world().said if kind == "transaction"}


@pytest.mark.parametrize(("fault", "scenario", "protocol", "seed", "property_", "enough"), BROKEN)
def test_a_fault_of_the_core_is_reproduced_and_shrinks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Mutation,
    scenario: str,
    protocol: str,
    seed: int,
    property_: str,
    enough: int,
) -> None:
    fault(monkeypatch)
    result = record(monkeypatch, generate(scenario, protocol, seed, STEADY), tmp_path)
    assert property_ in {name for name, _ in result.faults}
    outcome, case = recorded(tmp_path)
    assert outcome.differences == []
    assert property_ in case.broken(case.world())

    small = smaller.shrink(case, property_)
    assert property_ in small.broken(small.world())
    assert len(transactions(small)) <= enough
    assert len(small.world().passages) < len(case.world().passages)
    drawn = diagram(small.world(), small.program)
    assert len(drawn) > len(small.world().passages)


def test_what_would_make_a_client_act_otherwise_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the receiver of its publication a transaction would be told that it has reached nobody."""
    operations.leaf_never_acknowledges(monkeypatch)
    record(monkeypatch, generate("dispatch", "d-tx", 0, STEADY), tmp_path)
    _, case = recorded(tmp_path)
    whole = case.world().said
    small = smaller.shrink(case, "liveness")
    for key, said in small.world().said.items():
        assert key[1][0] == "publication" or said == whole[key]
