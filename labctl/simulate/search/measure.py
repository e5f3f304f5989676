"""What one dispatching transaction costs, in virtual time: the same cores on overlays of any size.

A dispatcher D is asked by E to hand a point over to an agent A, and E publishes to it (the paper's first
use case). Latency is the time until E knows the outcome; no node needs time for its own work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from random import Random
from statistics import median
from typing import Any

from msgspec import Struct

from broker.protocol.hops import Hop, is_client
from broker.protocol.vocabulary import Protocol
from labctl.simulate.programs.programs import Op, Program, TxProgram
from labctl.simulate.runner import SimRun
from labctl.simulate.world import World
from labctl.topology import Topology, standard

REPEATS_MAX = 30
CROSSING_S = 2**-10
"""A power of two, so that sums are exact, and short beside the lifetime of a transaction."""
BUDGET = 5000
"""Brokers times repetitions: large overlays are measured less often."""


class MedianDelays(Struct, frozen=True):
    """Medians in milliseconds, and the spread of the log-normal distribution around them."""

    client_ms: float = 3.3
    broker_ms: float = 2.2
    sigma: float = 0.4


class Measured(Struct, frozen=True):
    protocol: str
    brokers: int
    placement: str
    homes: dict[str, str]
    messages: int
    """Without those by which brokers tidy up behind it."""
    crossings: int
    """Links that are crossed one after the other until the coordinator knows."""
    p50_ms: float
    max_ms: float
    repeats: int


class TimedNetwork:
    """The delays of a world: the same for every crossing, so that time counts them, or what chance says."""

    def __init__(self, delays: MedianDelays) -> None:
        self._delays = delays
        self.counts_crossings = True

    def latency(self, random: Random, source: Hop, target: Hop) -> float:
        if self.counts_crossings:
            return CROSSING_S
        delays = self._delays
        median_ms = delays.client_ms if is_client(source) or is_client(target) else delays.broker_ms
        return 1e-3 * median_ms * exp(delays.sigma * random.gauss(0.0, 1.0))


def placements(tree: Topology, seed: int = 0) -> dict[str, dict[str, str]]:
    """Where E, D and A are: all at one broker, as far apart as they can be, and anywhere."""
    centre = tree.brokers[0]
    together = dict.fromkeys("EDA", centre)
    if len(tree.brokers) == 1:
        return {"together": together}
    one = _farthest(tree, (centre,))
    other = _farthest(tree, (one,))
    far = {"E": one, "D": _farthest(tree, (one, other)), "A": other}
    random = Random(f"placement {len(tree.brokers)} {seed}")
    return {"together": together, "far": far, "random": {c: random.choice(tree.brokers) for c in "EDA"}}


def _farthest(tree: Topology, brokers: Sequence[str]) -> str:
    """Away from all of them, above all from the nearest."""
    distances = [_distances(tree, broker) for broker in brokers]
    return max(tree.brokers, key=lambda name: sorted(distance[name] for distance in distances))


def _distances(tree: Topology, start: str) -> dict[str, int]:
    found, border = {start: 0}, [start]
    for broker in border:
        for name in tree.neighbours(broker):
            if name not in found:
                found[name] = found[broker] + 1
                border.append(name)
    return found


def measure(
    protocols: Sequence[Protocol], sizes: Iterable[int], delays: MedianDelays, seed: int = 0
) -> Iterable[Measured]:
    for size in sizes:
        tree = standard(size)
        repeats = max(3, min(REPEATS_MAX, BUDGET // size))
        for placement, homes in placements(tree, seed).items():
            bench = MeasuredOverlay(tree, homes, protocols, repeats, delays, seed)
            for protocol in protocols:
                yield bench.measure(protocol, placement)


class MeasuredOverlay:
    """One overlay with its three clients; transactions follow one another, each on a point of its own."""

    def __init__(
        self,
        tree: Topology,
        homes: dict[str, str],
        protocols: Sequence[Protocol],
        repeats: int,
        delays: MedianDelays,
        seed: int,
    ) -> None:
        self._network = TimedNetwork(delays)
        self._repeats = repeats
        self._homes = homes
        transactions = [
            _dispatching(p, n) for n, p in enumerate(p for p in protocols for _ in range(repeats + 1))
        ]
        space = tuple(range(len(transactions)))
        setup = (("E", Op("adv", "d", space)), ("D", Op("sub", "d", space)))
        program = Program(tree.links, tree.brokers, homes, setup, tuple(transactions), seed=seed)
        self._left = {p: [(n, t) for n, t in enumerate(transactions) if t.protocol == p] for p in protocols}
        self._run = SimRun(program, make_world=self._make_world)
        self._run.prepare()
        self._run.world.forget_history()

    def _make_world(self, links: Any, brokers: Any, seed: int, *_: Any, **__: Any) -> World:
        return World(links, brokers, seed, self._network.latency, announcing=self._homes.values())

    def measure(self, protocol: Protocol, placement: str) -> Measured:
        (number, transaction), *others = self._left[protocol]
        self._network.counts_crossings = True
        crossings, messages = self._time(number, transaction)
        self._network.counts_crossings = False
        times = [self._time(*other)[0] for other in others]
        return Measured(
            protocol, len(self._run.world.brokers), placement, self._homes, messages, round(crossings / CROSSING_S),
            round(1e3 * median(times), 3), round(1e3 * max(times), 3), len(times),
        )  # fmt: skip

    def _time(self, number: int, transaction: TxProgram) -> tuple[float, int]:
        """Until the coordinator knows, and messages until nothing is under way any more."""
        world = self._run.world
        began, before, ended = world.now, world.messages - world.tidying, 0.0

        async def transact() -> None:
            nonlocal ended
            await self._run.transact(number, transaction)
            ended = world.now

        agent = world.clients["A"]
        agent.deliveries.clear()
        world.complete(transact())
        if [event.event["x"] for event, _ in agent.deliveries] != [number] or self._run.errors:
            raise RuntimeError(f"a {transaction.protocol} transaction has failed: {self._run.errors}")
        return ended - began, world.messages - world.tidying - before


def _dispatching(protocol: Protocol, value: int) -> TxProgram:
    point = (value,)
    asked = Op("tcm", to="A", nested=(("A", (Op("sub", "d", point),)),))
    reaction = (asked, Op("usub", "d", point))
    return TxProgram("E", protocol, (Op("tcm", to="D", nested=(("D", reaction),)), Op("pub", "d", point)))
