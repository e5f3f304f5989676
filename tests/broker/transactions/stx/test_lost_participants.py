"""A participant is lost at every moment of a plan: nobody waits for ever, and nothing commits by halves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from broker.protocol.vocabulary import PlanMode
from client.core.outcomes import Outcome
from client.core.plans import Plan
from labctl.simulate.world import World

LINK_S = 1e-3
STAR = (("b1", "b2"), ("b2", "b3"), ("b2", "b4"), ("b2", "b5"))
MOMENTS = [step * LINK_S / 2 for step in range(1, 24)]


def lose(
    homes: dict[str, str],
    prepare: Callable[[World], None],
    build: Callable[[Plan], None],
    mode: PlanMode,
    lost: str,
    moment_s: float,
) -> tuple[World, list[Outcome]]:
    """C carries out a plan, and one of its participants is gone at that moment."""
    world = World(STAR, latency=lambda random, source, target: LINK_S)
    for client, home in homes.items():
        world.connect(client, home)
    world.run()
    prepare(world)
    plan = Plan()
    build(plan)
    outcomes: list[Outcome] = []

    async def carry_out() -> None:
        outcomes.append(await world.clients["C"].execute(plan, mode))

    world.spawn(carry_out())
    world.at(world.now + moment_s, world.clients[lost].crash)
    world.run(20_000)
    return world, outcomes


def committed_at(world: World) -> set[str]:
    return {moment.node for moment in world.moments if moment.name == "committed"}


def assert_all_or_nothing_is_left_open(world: World, outcomes: Sequence[Outcome]) -> None:
    assert not world.strays
    assert not [broker.id for broker in world.brokers.values() if broker.has_open_transactions]
    assert len(outcomes) == 1, "the coordinator was never told"
    assert committed_at(world) in (set(), set(world.brokers))


def nothing(world: World) -> None:
    """No subscriptions and advertisements."""


@pytest.mark.parametrize("mode", ["s-tx", "s-tx-safe"])
@pytest.mark.parametrize("moment_s", MOMENTS)
def test_a_lost_participant_between_others_leaves_nobody_waiting(mode: PlanMode, moment_s: float) -> None:
    """The centre may have committed before it hears that what hangs on the lost one will never come."""
    homes = {"C": "b1", "P": "b4", "Q": "b3", "R": "b5"}

    def build(plan: Plan) -> None:
        plan.tcm("P").tcm("Q").tcm("R").subscribe({"s": "d", "x": 1})

    for lost in ("P", "Q", "R"):
        world, outcomes = lose(homes, nothing, build, mode, lost, moment_s)
        assert_all_or_nothing_is_left_open(world, outcomes)


@pytest.mark.parametrize("moment_s", MOMENTS)
def test_a_safe_plan_never_commits_without_a_step(moment_s: float) -> None:
    homes = {"C": "b1", "P": "b4", "Q": "b3", "S": "b1"}

    def prepare(world: World) -> None:
        world.complete(world.clients["Q"].advertise({"s": "d"}))
        world.complete(world.clients["S"].subscribe({"s": "d"}))

    def build(plan: Plan) -> None:
        plan.tcm("P").tcm("Q").publish({"s": "d", "x": 1})

    world, outcomes = lose(homes, prepare, build, "s-tx-safe", "Q", moment_s)
    assert_all_or_nothing_is_left_open(world, outcomes)
    assert len(world.clients["S"].deliveries) == (1 if committed_at(world) else 0)
    assert outcomes[0].state == ("committed" if committed_at(world) else "aborted")


def test_a_publication_behind_an_advertisement_leaves_as_soon_as_that_has_gone_round() -> None:
    world = World(STAR, latency=lambda random, source, target: LINK_S)
    world.connect("C", "b1")
    world.connect("S", "b3")
    world.run()
    world.complete(world.clients["S"].subscribe({"s": "d"}))
    plan = Plan()
    plan.advertise({"s": "d"})
    plan.publish({"s": "d", "x": 1})
    began = world.now
    ended: list[float] = []

    async def carry_out() -> None:
        (await world.clients["C"].execute(plan, "s-tx")).raise_unless_committed()
        ended.append(world.now)

    world.complete(carry_out())
    assert len(world.clients["S"].deliveries) == 1
    # Out with the advertisement to the leaves and back, then the commit, out to S and back.
    assert (ended[0] - began) / LINK_S == pytest.approx(2 * 2 + 2 + 2 * 3, abs=0.5)
