"""What a transaction costs, beside what its messages would cost a bare relay in the same run.

One dispatching transaction (ask the dispatcher, who asks an agent and lets go of the instance; publish
its first step) with E, D and A at the three brokers of a line, each client a process of its own. How
many link crossings follow one another until the coordinator knows is counted in the simulator, with the
same cores. One crossing is an eighth of a round trip through three relays that only decode and forward;
what they are given are the frames that follow one another in that transaction, in turn. Each protocol's
rounds take turns with those of its relays; medians are compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import mean, median
from typing import Any

from msgspec import Struct

from broker.protocol import wire
from broker.protocol.hops import is_client
from broker.protocol.vocabulary import PROTOCOLS, S_TX
from client.core.transactions import Frame, Tcm
from labctl.bench import chain
from labctl.bench.ends import roles
from labctl.bench.rounds import Rounds
from labctl.overlay import local
from labctl.simulate.clients import SimClient
from labctl.simulate.world import Passage, World
from labctl.topology import Topology
from labctl.workers import workers

ROLES = "labctl.bench.ends.roles"
LINE = (("b1", "b2"), ("b2", "b3"))
HOMES = {"E": "b1", "D": "b2", "A": "b3"}
RELAY_CROSSINGS = 8
REGULAR_TX_PER_S = 10
REGULAR_TURNS = 4
"""In a round."""
LINK_S = 1e-3

Say = Callable[[str], None]


class TransactionResult(Struct, frozen=True):
    protocol: str
    p50_us: float
    p99_us: float
    mean_us: float
    crossings: int
    """Link crossings one after the other until the coordinator knows."""
    messages: int
    crossing_us: float
    """Of a bare relay, with the frames of this protocol."""
    ratio: float
    """p50 by crossings times crossing_us."""
    transactions_per_s: float
    """One after the other."""
    throughput_times_latency: float
    aborted: int
    """Tries that were in conflict with something else, such as a client that was just leaving; tried again."""
    stolen_share: float
    """Of the processors' time, taken from this machine by its hypervisor meanwhile."""
    regular_share: float | None = None
    """Of the rate of regular events, while ten such transactions a second run beside them."""
    regular_shares: list[float] = []
    """The single ones, of which that is the median."""


EncodedFrame = tuple[str, int]
"""The messages that travel together, in hexadecimal, and how many they are."""


class Way(Struct, frozen=True):
    """What one transaction sends."""

    frames: list[EncodedFrame]
    """Those that follow one another until the coordinator knows: one for each link crossing."""
    messages: int
    """All of them."""
    into_brokers: int
    """Of the crossings, those that end at a broker."""


def run(
    protocols: Sequence[str] = PROTOCOLS,
    transactions: int = 500,
    rounds: int = 3,
    regular: bool = True,
    report: Say = lambda text: None,
) -> list[TransactionResult]:
    plan = chain.ChainSettings(round_trips=2000)
    ways = {protocol: way(protocol) for protocol in protocols}
    taken: dict[str, Rounds[dict[str, float]]] = {protocol: Rounds(rounds) for protocol in protocols}
    shares: Rounds[list[float]] = Rounds(rounds if regular and S_TX in protocols else 0)
    with ExitStack() as stack:
        report("starting three brokers")
        topology = Topology(("b1", "b2", "b3"), LINE)
        state = stack.enter_context(local.running(topology, f"bench-tx-{os.getpid()}"))
        addresses = {broker.id: broker.address for broker in state.brokers}

        def beside_relays(protocol: str) -> dict[str, float]:
            crossing_us = chain.relay_trips(plan, ways[protocol].frames)["p50_us"] / RELAY_CROSSINGS
            figures = measure(addresses, protocol, transactions, f"r{len(taken[protocol])}")
            return {**figures, "crossing_us": crossing_us}

        while not (shares.are_enough and all(own.are_enough for own in taken.values())):
            for protocol, own in taken.items():
                if not own.are_enough:
                    report(f"{own}: {protocol}")
                    own.take(partial(beside_relays, protocol))
            if not shares.are_enough:
                report(f"{shares}: regular events beside {S_TX}")
                shares.take(lambda: _regular_shares(addresses, len(shares)))
    all_shares = [share for sample in shares.samples for share in sample]
    return [
        _result(protocol, ways[protocol], own, all_shares if protocol == S_TX else [])
        for protocol, own in taken.items()
    ]


def _result(
    protocol: str, way: Way, rounds: Rounds[dict[str, float]], shares: list[float]
) -> TransactionResult:
    def middle(name: str) -> float:
        return median(figures[name] for figures in rounds.samples)

    crossings, crossing_us = len(way.frames), middle("crossing_us")
    products = [figures["transactions_per_s"] * figures["mean_us"] / 1e6 for figures in rounds.samples]
    return TransactionResult(
        protocol=protocol,
        p50_us=round(middle("p50_us"), 1),
        p99_us=round(middle("p99_us"), 1),
        mean_us=round(middle("mean_us"), 1),
        crossings=crossings,
        messages=way.messages,
        crossing_us=round(crossing_us, 1),
        ratio=round(middle("p50_us") / (crossings * crossing_us), 2),
        transactions_per_s=round(middle("transactions_per_s"), 1),
        throughput_times_latency=round(median(products), 3),
        aborted=int(sum(figures["aborted"] for figures in rounds.samples)),
        stolen_share=round(rounds.stolen_share, 4),
        regular_share=round(median(shares), 3) if shares else None,
        regular_shares=[round(share, 3) for share in sorted(shares)],
    )


def measure(
    addresses: Mapping[str, str],
    protocol: str,
    transactions: int,
    salt: str,
    history: Mapping[str, str] | None = None,
    in_flight: int = 1,
) -> dict[str, Any]:
    """Carry out so many, one after the other or some at a time. `history`: the folder and the detail of what
    clients keep."""
    keeps = history or {}
    participants = [
        ("participant", {"address": addresses[HOMES[client]], "client": client, **keeps})
        for client in ("D", "A")
    ]
    engine_does = {"address": addresses["b1"], "protocol": protocol, "transactions": transactions, **keeps}
    engine_does["in_flight"] = in_flight
    with workers(ROLES, *participants) as members:
        for member in members:
            member.wait_ready()
            member.go()
        with workers(ROLES, ("engine", {**engine_does, "salt": salt})) as (engine,):
            engine.wait_ready()
            engine.go()
            return engine.result()


def _regular_shares(addresses: dict[str, str], number: int) -> list[float]:
    """Regular events through the chain with transactions beside them, each time by those before and after: the
    machine changes its pace faster than it could be measured more than once."""
    plan = chain.ChainSettings()
    line = [addresses[name] for name in ("b1", "b2", "b3")]
    participants = [
        ("participant", {"address": addresses[HOMES[client]], "client": client}) for client in ("D", "A")
    ]
    paced = {"address": addresses["b1"], "protocol": S_TX, "per_s": REGULAR_TX_PER_S}
    shares = []
    before = chain.broker_rate(plan, chain.BARE, line)
    for turn in range(REGULAR_TURNS):
        with workers(ROLES, *participants, ("paced", {**paced, "salt": f"p{number}-{turn}"})) as members:
            for member in members:
                member.wait_ready()
                member.go()
            beside = chain.broker_rate(plan, chain.BARE, line)
        after = chain.broker_rate(plan, chain.BARE, line)
        shares.append(beside / mean((before, after)))
        before = after
    return shares


def way(protocol: str) -> Way:
    """From the simulator, where every link takes as long: what one transaction sends, and what follows what."""
    world = World(LINE, latency=lambda random, source, target: LINK_S, traces=True)

    async def on_tcm(client: SimClient, tcm: Tcm, frame: Frame) -> None:
        await roles.react(client.client_id, tcm, frame)

    clients = [world.connect(client, home, on_tcm) for client, home in HOMES.items()]
    world.run()
    for client in clients:
        world.complete(roles.settle_in(client, client.client_id))
    began, messages = world.now, world.messages
    world.passages.clear()
    ended: list[float] = []

    async def once() -> None:
        await roles.dispatch(clients[0], protocol, "x")
        ended.append(world.now)

    world.complete(once())
    crossings = round((ended[0] - began) / LINK_S)
    frames, into_brokers = _backwards(world.passages, began, crossings, clients[0].hop)
    return Way(frames, world.messages - messages, into_brokers)


def _backwards(
    passages: Sequence[Passage], began: float, crossings: int, node: str
) -> tuple[list[EncodedFrame], int]:
    """From what tells `node` that it is over back to what it began with: the largest of what could be waited for."""
    together: dict[tuple[int, str], dict[str, list[bytes]]] = {}
    for passage in passages:
        arrival = round((passage.arrived - began) / LINK_S), passage.target
        sources = together.setdefault(arrival, {})
        sources.setdefault(passage.source, []).append(wire.encode(passage.message))
    found: list[EncodedFrame] = []
    into_brokers = 0
    for crossing in range(crossings, 0, -1):
        sources = together[crossing, node]
        into_brokers += not is_client(node)
        node = max(sources, key=lambda source: len(b"".join(sources[source])))
        found.insert(0, (b"".join(sources[node]).hex(), len(sources[node])))
    return found, into_brokers
