"""Messages and sequential link crossings of each protocol are those of the cost model, wherever clients are.

d is the number of broker links between the edge brokers of two clients, N the number of brokers. A
crossing takes one unit of time and processing none, so the time until the coordinator knows is the number
of crossings that follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from random import Random
from typing import NamedTuple

import pytest

from broker.core import Input
from broker.protocol.filters import Event
from broker.protocol.messages import Publish
from broker.protocol.vocabulary import PROTOCOLS, Protocol
from labctl.simulate.clients import SimClient
from labctl.simulate.programs.programs import Op
from labctl.simulate.runner import regular
from labctl.simulate.world import World
from tests.support.scripted import CROSSING_S, Script, Tree, ask, line

pytestmark = pytest.mark.slow

INSTANCES = tuple(range(1000))

LINE_3 = line("b1", "b2", "b3")
LINE_5 = line("b1", "b2", "b3", "b4", "b5")
STAR_5 = tuple(("b1", f"b{n}") for n in range(2, 6))
TREE_5 = (("b1", "b2"), ("b1", "b3"), ("b3", "b4"), ("b3", "b5"))
LINE_9 = line(*(f"b{n}" for n in range(1, 10)))
STAR_9 = tuple(("b1", f"b{n}") for n in range(2, 10))
TREE_9 = tuple((f"b{n // 2}", f"b{n}") for n in range(2, 10))
"""A heap: every broker has up to two below it."""

OVERLAYS: dict[str, Tree] = {
    "1": (),
    "line of 3": LINE_3,
    "line of 5": LINE_5,
    "star of 5": STAR_5,
    "tree of 5": TREE_5,
    "line of 9": LINE_9,
    "star of 9": STAR_9,
    "tree of 9": TREE_9,
}
SAMPLED = {(name, protocol) for name in ("line of 9", "star of 9") for protocol in PROTOCOLS}
SAMPLED.add(("tree of 9", "d-tx-optimistic"))
SAMPLE = 60
"""So many placements of those; of all others every one."""
CONSOLIDATIONS_MAX = 80
"""Placements of four clients are many."""
INSTANCE: Event = {"s": "work", "x": 1}
EPSILON = 2**-10
"""In crossings: what the engine waits beyond the perfect wait, so that nothing is decided by a tie."""

Placement = tuple[str, str, str]
"""Homes of three clients."""


class Cost(NamedTuple):
    messages: int
    crossings: float
    """Until the coordinator knows."""
    delivered: float
    """When the agent is given what was published, in crossings."""


class Overlay:
    """Distances in a tree."""

    def __init__(self, links: Tree) -> None:
        self.links = links
        self.brokers = sorted({name for link in links for name in link}) or ["b1"]
        self._distances = {broker: self._from(broker) for broker in self.brokers}

    def _from(self, start: str) -> Mapping[str, int]:
        found, edge = {start: 0}, [start]
        while edge:
            here = edge.pop()
            for link in self.links:
                if here in link:
                    other = link[1] if link[0] == here else link[0]
                    if other not in found:
                        found[other] = found[here] + 1
                        edge.append(other)
        return found

    def d(self, one: str, other: str) -> int:
        return self._distances[one][other]

    def eccentricity(self, broker: str) -> int:
        return max(self._distances[broker].values())

    def placements(self, sampled: bool) -> list[Placement]:
        every: list[Placement] = list(product(self.brokers, self.brokers, self.brokers))
        return Random(str(self.links)).sample(every, min(len(every), SAMPLE)) if sampled else every


# The model


def dispatching_dynamic(overlay: Overlay, engine: str, dispatcher: str, agent: str) -> Cost:
    d, size, participants = overlay.d, len(overlay.brokers), 2
    operations = 4 * d(engine, dispatcher) + 2 * d(dispatcher, agent) + 4 * d(engine, agent) + 16
    rounds = 1 + overlay.eccentricity(engine)
    messages = 6 * size + operations + 2 * participants
    return Cost(messages, 6 * rounds + operations, 4 * rounds + operations + d(engine, agent) + 2)


def dispatching_planned(overlay: Overlay, engine: str, dispatcher: str, agent: str) -> Cost:
    d, size = overlay.d, len(overlay.brokers)
    asked = d(engine, dispatcher) + d(dispatcher, agent)
    messages = 14 + 2 * d(engine, dispatcher) + d(dispatcher, agent) + 2 * d(engine, agent) + 2 * (size - 1)
    last = max(d(engine, agent) + 1, d(engine, dispatcher) + 1, overlay.eccentricity(engine))
    delivered = 6 + asked + 2 * d(agent, engine)
    return Cost(messages, 6 + asked + d(agent, engine) + 2 * last, delivered)


def dispatching_safe(overlay: Overlay, engine: str, dispatcher: str, agent: str) -> Cost:
    """A round of votes more; it waits for the steps instead of the commit, which then finds no obstacle."""
    fast, size = dispatching_planned(overlay, engine, dispatcher, agent), len(overlay.brokers)
    votes = 2 + 2 * overlay.eccentricity(engine)
    return Cost(fast.messages + 2 * size, fast.crossings + votes, fast.delivered + votes)


def consolidation_messages(overlay: Overlay, engine: str, taker: str, agents: tuple[str, str]) -> int:
    d, size = overlay.d, len(overlay.brokers)
    asked = sum(d(taker, agent) + d(agent, engine) for agent in agents)
    return 14 + asked + 2 * d(taker, engine) + 2 * (size - 1)


def shortest_consolidation(overlay: Overlay, engine: str, taker: str, agents: tuple[str, str]) -> int:
    """The model has only a lower bound: how long steps wait for one another depends on the way."""
    d = overlay.d
    asked = [d(taker, agent) + 4 + d(agent, engine) + d(engine, taker) for agent in agents]
    return max(*(2 * d(taker, agent) + 6 for agent in agents), *asked, 2 + 2 * overlay.eccentricity(taker))


def waiting(overlay: Overlay, engine: str, dispatcher: str, agent: str) -> Cost:
    d = overlay.d
    asked = d(engine, dispatcher) + d(dispatcher, agent)
    messages = 10 + 2 * d(engine, dispatcher) + d(dispatcher, agent) + 3 * d(engine, agent)
    return Cost(messages, 8 + asked + 3 * d(engine, agent), 6 + asked + 2 * d(engine, agent))


MODELS: dict[Protocol, Callable[[Overlay, str, str, str], Cost]] = {
    "d-tx": dispatching_dynamic,
    "d-tx-optimistic": dispatching_dynamic,
    "d-tx-ni": dispatching_dynamic,
    "s-tx": dispatching_planned,
    "s-tx-safe": dispatching_safe,
}


# The measurement


def crowd(overlay: Overlay, roles: str) -> Script:
    """At every broker a client of each role, so that one world serves all placements.

    Each engine (E) has a process of its own, named after its broker and advertised by nobody else.
    """
    homes = {f"{role}-{broker}": broker for role in roles for broker in overlay.brokers}
    setup = [(f"E-{broker}", Op("adv", broker, INSTANCES)) for broker in overlay.brokers]
    return Script(overlay.links, homes, setup)


def prepare(script: Script, *setup: tuple[str, Op]) -> None:
    """What is to hold before the transaction that is measured."""
    script.world.moments.clear()
    for client, op in setup:
        script.world.complete(regular(script.world.clients[client], op))
    script.start = script.world.now
    script.messages_before = script.world.messages - script.world.tidying


def measure(script: Script, client: str, protocol: Protocol, *body: Op) -> tuple[Cost, list[str]]:
    """What it cost until its coordinator knew; and to whom it has delivered."""
    started = script.transaction(client, protocol, *body)
    script.run()
    assert script.outcome(started) == "committed"
    deliveries = [m for m in script.world.moments if m.name == "delivered"]
    delivered = max(((m.time - script.start) / CROSSING_S for m in deliveries), default=-1.0)
    cost = Cost(script.messages, started.ended - started.began, delivered)
    return cost, [m.node for m in deliveries]


def dispatch(script: Script, protocol: Protocol, placement: Placement, instance: int) -> Cost:
    engine, dispatcher, agent = placement
    point = (instance,)
    prepare(script, (f"D-{dispatcher}", Op("sub", engine, point)))
    asked = ask(f"A-{agent}", Op("sub", engine, point))
    body = (ask(f"D-{dispatcher}", asked, Op("usub", engine, point)), Op("pub", engine, point))
    cost, receivers = measure(script, f"E-{engine}", protocol, *body)
    assert receivers == [f"A-{agent}"]
    return cost


@pytest.mark.parametrize("protocol", MODELS)
@pytest.mark.parametrize("name", OVERLAYS)
def test_dispatching_costs_what_the_model_says(name: str, protocol: Protocol) -> None:
    overlay = Overlay(OVERLAYS[name])
    script = crowd(overlay, "EDA")
    for instance, placement in enumerate(overlay.placements((name, protocol) in SAMPLED)):
        cost = dispatch(script, protocol, placement, instance)
        assert (placement, cost) == (placement, MODELS[protocol](overlay, *placement))
    assert script.residue() == []


@pytest.mark.parametrize(
    ("links", "placement", "cost"),
    [
        ((), ("b1", "b1", "b1"), Cost(26, 22, 22)),
        (LINE_3, ("b1", "b2", "b3"), Cost(52, 48, 46)),
        (LINE_5, ("b1", "b3", "b5"), Cost(78, 74, 70)),
        (LINE_9, ("b1", "b5", "b9"), Cost(130, 126, 118)),
    ],
)
def test_the_model_gives_the_numbers_that_were_worked_out_by_hand(
    links: Tree, placement: Placement, cost: Cost
) -> None:
    overlay = Overlay(links)
    assert dispatching_dynamic(overlay, *placement) == cost
    assert dispatch(crowd(overlay, "EDA"), "d-tx", placement, 0) == cost


@pytest.mark.parametrize("protocol", ["s-tx", "s-tx-safe"])
@pytest.mark.parametrize("name", OVERLAYS)
def test_consolidation_costs_as_many_messages_as_the_model_says(name: str, protocol: Protocol) -> None:
    overlay = Overlay(OVERLAYS[name])
    script = crowd(overlay, "ECAB")
    every = list(product(overlay.brokers, repeat=4))
    chosen = Random(name).sample(every, min(len(every), CONSOLIDATIONS_MAX))
    for number, (engine, taker, first, second) in enumerate(chosen):
        one, other = (2 * number,), (2 * number + 1,)
        mine, theirs = f"A-{first}", f"B-{second}"
        prepare(script, (mine, Op("sub", engine, one)), (theirs, Op("sub", engine, other)))
        body = (
            ask(mine, Op("usub", engine, one)),
            ask(theirs, Op("usub", engine, other)),
            Op("sub", engine, one),
            Op("sub", engine, other),
        )
        cost, _ = measure(script, f"C-{taker}", protocol, *body)
        votes = 2 * len(overlay.brokers) if protocol == "s-tx-safe" else 0
        expected = votes + consolidation_messages(overlay, engine, taker, (first, second))
        assert (engine, taker, first, second, cost.messages) == (engine, taker, first, second, expected)
        assert cost.crossings >= shortest_consolidation(overlay, engine, taker, (first, second))
    assert script.residue() == []


# Without a transaction: a wait that the engine knows to be just long enough


class Waiting:
    """BL-WAIT: three clients that use regular operations, and an engine that waits before it publishes."""

    def __init__(self, overlay: Overlay, placement: Placement, wait: float) -> None:
        self.world = World(overlay.links, overlay.brokers, latency=lambda *_: CROSSING_S)
        self.clients = [
            Reacting(self.world, role, home, take)
            for role, home, take in zip("EDA", placement, (self._ended, self._asked, self._work), strict=True)
        ]
        self.engine, self.dispatcher, self.agent = self.clients
        self.known = False
        self.world.run()
        for client in self.clients:
            self.world.complete(client.advertise({"s": "control"}))
            self.world.complete(client.subscribe({"s": "control", "to": client.client_id}))
        self.world.complete(self.engine.advertise(INSTANCE))
        # All of the process: of what is taken back whole brokers forget the record, with messages of their own.
        self.world.complete(self.dispatcher.subscribe({"s": INSTANCE["s"]}))
        self.start, before = self.world.now, self.world.messages
        self.delivered = self.end = 0.0
        self.world.spawn(self.engine.publish({"s": "control", "to": "D"}))
        late = self.start + (wait + EPSILON) * CROSSING_S
        self.world.at(late, lambda: self.engine.spawn(self.engine.publish(INSTANCE)))
        self.world.run()
        self.messages = self.world.messages - before

    def _asked(self, event: Event) -> None:
        assert event["s"] == "control"
        self.dispatcher.spawn(self.dispatcher.publish({"s": "control", "to": "A"}))
        self.dispatcher.spawn(self.dispatcher.unsubscribe(INSTANCE))

    def _work(self, event: Event) -> None:
        if event["s"] == "control":
            self.agent.spawn(self.agent.subscribe(INSTANCE))
        else:
            self.delivered = self.world.now
            self.agent.spawn(self.agent.publish({"s": "control", "to": "E"}))

    def _ended(self, event: Event) -> None:
        self.known, self.end = True, self.world.now


class Reacting(SimClient):
    """A client that does something about each publication."""

    def __init__(self, world: World, client: str, home: str, react: Callable[[Event], None]) -> None:
        incarnation = 100 + len(world.clients)
        super().__init__(world, client, home, incarnation, None)
        self._react = react
        world.bring_in(self, incarnation)

    def take(self, message: Input) -> None:
        super().take(message)
        if isinstance(message, Publish):
            self._react(message.event)


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_perfect_wait_costs_what_the_model_says(name: str) -> None:
    overlay = Overlay(OVERLAYS[name])
    for placement in overlay.placements(sampled="9" in name):
        engine, dispatcher, agent = placement
        d = overlay.d
        wait = 4 + d(engine, dispatcher) + d(dispatcher, agent) + d(agent, engine)
        run = Waiting(overlay, placement, wait)
        accepted = 2  # answers to the agent's sub and the dispatcher's usub, for which nobody waits
        crossings, delivered = ((time - run.start) / CROSSING_S for time in (run.end, run.delivered))
        cost = Cost(run.messages - accepted, round(crossings), round(delivered))
        assert run.known
        assert (placement, cost) == (placement, waiting(overlay, *placement))


@pytest.mark.parametrize("placement", list(product(("b1", "b2", "b3"), repeat=3)))
def test_a_wait_that_is_shorter_by_one_crossing_loses_the_publication(placement: Placement) -> None:
    overlay = Overlay(LINE_3)
    engine, dispatcher, agent = placement
    d = overlay.d
    wait = 4 + d(engine, dispatcher) + d(dispatcher, agent) + d(agent, engine)
    assert not Waiting(overlay, placement, wait - 1).known
