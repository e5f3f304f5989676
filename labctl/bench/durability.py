"""What it costs that brokers can be killed: transactions and regular events with each mode, in turn, on one disk.

Three brokers in a line for each mode, all up for the whole benchmark. Latencies are of dispatching transactions
(`labctl.bench.transactions`) one after the other, rates of ten in flight; regular events as in `labctl.bench.chain`.
What one fdatasync takes is measured in the same rounds, and for regular events what a bare loop does that appends as
many of the same frames at a time as the brokers did, and syncs.

A step of a transaction is durable where its critical path crosses a broker: whatever that is given is synced before
anything that it leads to leaves.

Then, each if it is asked for: how soon a broker goes on (`labctl.bench.recovery`), and durable publications beside
peers (`labctl.bench.peers`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from msgspec import Struct

from broker.protocol.vocabulary import D_TX, S_TX
from labctl.bench import chain, peers, recovery
from labctl.bench.ends import disk, events
from labctl.bench.peers import PeerResult
from labctl.bench.recovery import RecoveryResult
from labctl.bench.rounds import Rounds
from labctl.bench.transactions import LINE, measure, way
from labctl.overlay import launch, local
from labctl.overlay import state as states
from labctl.topology import Topology

MODES = ("none", "os", "fsync")
IN_FLIGHT = 10
ROUND_TRIPS = 1000

Report = Callable[[str], None]


class DurableTransactions(Struct, frozen=True):
    protocol: str
    durable: str
    p50_us: float
    """One after the other."""
    transactions_per_s: float
    """Ten in flight."""
    share: float
    """Of the rate without durability."""
    durable_steps: int
    """On the critical path."""
    syncs_per_step: float | None
    """What a durable step adds to the p50, in fdatasyncs."""
    fdatasync_us: float
    stolen_share: float


class DurableEvents(Struct, frozen=True):
    durable: str
    events_per_s: float
    share: float
    """Of the rate without durability."""
    rtt_p50_us: float
    events_per_sync: float | None
    """At the first broker."""
    limit_events_per_s: float | None
    """Of a bare loop that appends as much and syncs."""
    limit_share: float | None
    stolen_share: float


class DurabilityResult(Struct, frozen=True):
    transactions: list[DurableTransactions]
    events: list[DurableEvents]
    recovery: RecoveryResult | None
    peers: list[PeerResult] = []


class Sample(Struct, frozen=True):
    alone: dict[tuple[str, str], float]
    """By protocol and mode: p50."""
    together: dict[tuple[str, str], float]
    rates: dict[str, float]
    trips: dict[str, float]
    events_per_sync: dict[str, float]
    limits: dict[str, float]
    fdatasync_us: float


def run(
    transactions: int = 300,
    event_count: int = 300_000,
    rounds: int = 3,
    subscriptions: int = 100_000,
    beside: Sequence[str] = (),
    publish_s: float = 1.0,
    report: Report = lambda text: None,
) -> DurabilityResult:
    """`subscriptions`: of a broker that is started again; 0: none is. `beside`: which peers."""
    peers.check(beside)
    taken: Rounds[Sample] = Rounds(rounds)
    protocols = (S_TX, D_TX)
    with ExitStack() as stack:
        report("starting three brokers for each mode")
        overlays = {mode: _up(stack, mode) for mode in MODES}
        while not taken.are_enough:
            taken.take(
                partial(
                    _sample,
                    overlays,
                    protocols,
                    transactions,
                    event_count,
                    len(taken),
                    partial(_say, report, taken),
                )
            )
    recovered = recovery.run(subscriptions, subscriptions // 100, report=report) if subscriptions else None
    published = peers.run(beside, publish_s, rounds, report) if beside else []
    return DurabilityResult(*_results(taken, protocols), recovered, published)


def _say(report: Report, taken: Rounds[Sample], what: str) -> None:
    report(f"{taken}: {what}")


def _up(stack: ExitStack, mode: str) -> Mapping[str, str]:
    topology = Topology(("b1", "b2", "b3"), LINE)
    name = f"bench-durable-{mode}-{os.getpid()}"
    settings = local.OverlaySettings() if mode == "none" else local.OverlaySettings(durable=mode)  # type: ignore[arg-type]
    state = stack.enter_context(local.running(topology, name, settings))
    return {broker.id: broker.address for broker in state.brokers}


def _sample(
    overlays: Mapping[str, Mapping[str, str]],
    protocols: Sequence[str],
    transactions: int,
    event_count: int,
    number: int,
    report: Report,
) -> Sample:
    folder = states.overlays()
    alone, together = {}, {}
    for protocol in protocols:
        for mode, addresses in overlays.items():
            report(f"{protocol}, {mode}")
            salt = f"r{number}"
            alone[protocol, mode] = measure(addresses, protocol, transactions, salt)["p50_us"]
            many = measure(addresses, protocol, 2 * transactions, f"{salt}-many", in_flight=IN_FLIGHT)
            together[protocol, mode] = many["transactions_per_s"]
    rates, trips, grouped, limits = {}, {}, {}, {}
    plan = chain.ChainSettings(events=event_count, round_trips=ROUND_TRIPS)
    for mode, addresses in overlays.items():
        report(f"regular events, {mode}")
        line = [addresses[name] for name in ("b1", "b2", "b3")]
        before = _syncs(addresses["b1"])
        rates[mode] = chain.broker_rate(plan, chain.BARE, line)
        if syncs := _syncs(addresses["b1"]) - before:
            grouped[mode] = event_count / syncs
            limits[mode] = _limit(folder, grouped[mode])
        trips[mode] = chain.broker_trips(plan, chain.BARE, line)["p50_us"]
    return Sample(alone, together, rates, trips, grouped, limits, disk.sync_us(folder))


def _syncs(address: str) -> int:
    """How often a broker has synced so far."""
    answers = asyncio.run(launch.ask({"it": address}, dump=False, timeout_s=10.0))
    answer = answers["it"]
    journal = answer.get("journal") if isinstance(answer, dict) else None
    return int(journal["syncs"]) if journal else 0


def _limit(folder: Path, events_per_sync: float) -> float:
    """The frames of the publisher, as many of them at a time."""
    batches = events.batches(int(events_per_sync) + 1000, b"x" * chain.ChainSettings().payload_bytes)
    frames: list[bytes] = []
    count = size = 0
    for messages, size in batches:
        frames.append(messages)
        count += size
        if count >= events_per_sync:
            break
    return disk.loop_rate(folder, frames, size)


def _results(
    taken: Rounds[Sample], protocols: Sequence[str]
) -> tuple[list[DurableTransactions], list[DurableEvents]]:
    samples, stolen = taken.samples, round(taken.stolen_share, 4)
    fdatasync_us = median(sample.fdatasync_us for sample in samples)
    transactions = []
    for protocol in protocols:
        steps = way(protocol).into_brokers
        bare = median(sample.alone[protocol, "none"] for sample in samples)
        for mode in MODES:
            p50 = median(sample.alone[protocol, mode] for sample in samples)
            share = median(s.together[protocol, mode] / s.together[protocol, "none"] for s in samples)
            transactions.append(
                DurableTransactions(
                    protocol=protocol,
                    durable=mode,
                    p50_us=round(p50, 1),
                    transactions_per_s=round(median(s.together[protocol, mode] for s in samples), 1),
                    share=round(share, 3),
                    durable_steps=steps,
                    syncs_per_step=round((p50 - bare) / steps / fdatasync_us, 2) if mode == "fsync" else None,
                    fdatasync_us=round(fdatasync_us, 1),
                    stolen_share=stolen,
                )
            )
    return transactions, [_events(mode, samples, stolen) for mode in MODES]


def _events(mode: str, samples: Sequence[Sample], stolen: float) -> DurableEvents:
    rate = median(sample.rates[mode] for sample in samples)
    is_limited = all(mode in sample.limits for sample in samples)  # os syncs now and then, not in every round
    limit = median(sample.limits[mode] for sample in samples) if is_limited else None
    return DurableEvents(
        durable=mode,
        events_per_s=round(rate),
        share=round(median(sample.rates[mode] / sample.rates["none"] for sample in samples), 3),
        rtt_p50_us=round(median(sample.trips[mode] for sample in samples), 1),
        events_per_sync=None if limit is None else round(median(s.events_per_sync[mode] for s in samples)),
        limit_events_per_s=None if limit is None else round(limit),
        limit_share=None if limit is None else round(rate / limit, 3),
        stolen_share=stolen,
    )
