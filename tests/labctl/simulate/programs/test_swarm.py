"""Each seed draws a world of its own, and what its generator makes stays what it is."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from broker.protocol.vocabulary import PROTOCOLS
from labctl.simulate.programs.delays import DelayModel
from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.programs.programs import Op, Program, directed_links
from labctl.simulate.programs.swarm import Swarm, changed, draw, swarmed


def plain(seed: int = 3) -> Program:
    return GENERATORS["overlapping"](seed, PROTOCOLS)


def operations(body: tuple[Op, ...]) -> Iterator[Op]:
    for op in body:
        yield op
        for _, reaction in op.nested:
            yield from operations(reaction)


def kinds(program: Program) -> list[str]:
    return [op.kind for t in program.transactions for op in operations(t.body)]


def test_a_seed_is_one_world_whatever_its_protocols() -> None:
    program = swarmed(plain(), "overlapping")
    assert program == swarmed(plain(), "overlapping")
    assert swarmed(GENERATORS["overlapping"](3, ["d-tx"]), "overlapping").delays == program.delays
    names = [f"another {number}" for number in range(20)]
    assert len({swarmed(plain(), name).delays for name in names}) > 5


def test_seeds_differ_in_delays_pace_mix_and_faults() -> None:
    swarms = [draw(Random(seed)) for seed in range(200)]
    assert {swarm.delays.family for swarm in swarms} == {"exponential", "heavy", "bursts", "even"}
    assert len({swarm.pace for swarm in swarms}) > 3
    assert 30 < sum(bool(swarm.amounts) for swarm in swarms) < 90
    assert 20 < sum(bool(swarm.rates) for swarm in swarms) < 80
    assert 40 < sum(swarm.is_scaled for swarm in swarms) < 120


def test_a_kind_that_is_left_out_is_not_there_and_another_is_there_twice() -> None:
    before = plain()
    swarm = Swarm(DelayModel(), 1.0, amounts={"pub": 0.0, "sub": 2.0})
    after = changed(before, swarm, Random(1))
    assert "pub" in kinds(before)
    assert "pub" not in kinds(after)
    assert kinds(after).count("sub") == 2 * kinds(before).count("sub") > 0
    assert kinds(after).count("usub") == kinds(before).count("usub")
    assert kinds(after).count("tcm") == kinds(before).count("tcm")


def test_faults_come_at_their_rates() -> None:
    before = plain()
    rates = {"crash": 1.0, "back": 1.0, "abort": 1.0}
    after = changed(before, Swarm(DelayModel(), 1.0, rates=rates), Random(1))
    assert [fault.kind for fault in after.faults] == ["crash"] * len(before.homes)
    assert all(fault.back_after > 0 for fault in after.faults)
    assert all(transaction.aborts_after >= 0 for transaction in after.transactions)
    assert changed(before, Swarm(DelayModel(), 1.0), Random(1)) == before


def test_pace_and_scale_change_when_things_happen() -> None:
    before = plain()
    after = changed(before, Swarm(DelayModel("even"), 0.0, is_scaled=True), Random(1))
    assert {transaction.start for transaction in after.transactions} == {0.0}
    assert after.slowness.keys() == set(directed_links(before))
    assert len(set(after.slowness.values())) == len(after.slowness)
    assert after.delays == DelayModel("even")
