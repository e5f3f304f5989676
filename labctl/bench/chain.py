"""Events and round trips through a chain of brokers, beside the bare limit of this machine.

Every figure stands beside one of the same run: the rounds of brokers, relays and (on request) peer
brokers take turns, so that a noisy minute hurts all of them alike, and medians are compared. The
ends write prepared messages and count, for all of them, so that what differs is what stands in the
middle. What a program gets that uses the client library at both ends stands beside it (`library_...`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

from msgspec import Struct

from labctl.bench import rest
from labctl.bench.ends import events
from labctl.bench.rounds import Rounds
from labctl.overlay import local
from labctl.topology import Topology
from labctl.workers import Worker, workers

RELAY = "labctl.bench.ends.relay"
BARE = "labctl.bench.ends.bare"
ENDS = "labctl.bench.ends.library"
Say = Callable[[str], None]


class ChainResult(Struct, frozen=True):
    brokers: int
    subscriptions: int
    """At each broker, beside the measured one."""
    events: int
    payload_bytes: int
    message_bytes: int
    rounds: int
    events_per_s: float
    limit_events_per_s: float
    events_ratio: float
    rtt_p50_us: float
    rtt_p99_us: float
    rtt_p999_us: float
    limit_rtt_p50_us: float
    limit_rtt_p99_us: float
    limit_rtt_p999_us: float
    rtt_ratio: float
    library_events_per_s: float
    library_rtt_p50_us: float
    start_ms: float
    """Of one broker, to its ready line."""
    rest_cpu_percent: float
    stolen_share: float
    """Of the processors' time, taken from this machine by its hypervisor meanwhile."""
    peer: str | None = None
    peer_events_per_s: float | None = None
    peer_ratio: float | None = None


class ChainSettings(Struct, frozen=True):
    brokers: int = 3
    subscriptions: int = 1000
    events: int = 300_000
    payload_bytes: int = 64
    round_trips: int = 3000
    rounds: int = 5
    peer: str | None = None


class Round(Struct, frozen=True):
    rates: dict[str, float]
    """Of brokers, relays, the client library, and the peer if there is one."""
    trips: dict[str, dict[str, float]]


def run(plan: ChainSettings, report: Say = lambda text: None) -> ChainResult:
    rounds: Rounds[Round] = Rounds(plan.rounds)
    report("watching a broker start and rest")
    quiet = rest.measure()
    with ExitStack() as stack:
        addresses = stack.enter_context(_broker_chain(plan, report))
        peer = stack.enter_context(_peer_chain(plan, report))
        while not rounds.are_enough:
            rounds.take(lambda: _round(plan, addresses, peer, lambda whose: report(f"{rounds}: {whose}")))
    return _result(plan, rounds, quiet)


def _round(
    plan: ChainSettings, addresses: list[str], peer: Callable[[int, int], float] | None, report: Say
) -> Round:
    report("relays")
    rates, trips = {"relays": _relay_rate(plan)}, {"relays": relay_trips(plan)}
    report("brokers")
    for ends, module in (("brokers", BARE), ("library", ENDS)):
        rates[ends] = broker_rate(plan, module, addresses)
        trips[ends] = broker_trips(plan, module, addresses)
    if peer is not None:
        report(f"{plan.peer}")
        rates["peer"] = peer(plan.events, plan.payload_bytes)
    return Round(rates, trips)


def _result(plan: ChainSettings, rounds: Rounds[Round], quiet: rest.Rest) -> ChainResult:
    samples = rounds.samples

    def rate(whose: str) -> float:
        return median(sample.rates[whose] for sample in samples)

    def middle(whose: str, name: str) -> float:
        return median(sample.trips[whose][name] for sample in samples)

    ours, limit = rate("brokers"), rate("relays")
    peer = rate("peer") if plan.peer is not None else None
    return ChainResult(
        brokers=plan.brokers,
        subscriptions=plan.subscriptions,
        events=plan.events,
        payload_bytes=plan.payload_bytes,
        message_bytes=len(events.message(0, b"x" * plan.payload_bytes)),
        rounds=plan.rounds,
        events_per_s=round(ours),
        limit_events_per_s=round(limit),
        events_ratio=round(ours / limit, 3),
        rtt_p50_us=middle("brokers", "p50_us"),
        rtt_p99_us=middle("brokers", "p99_us"),
        rtt_p999_us=middle("brokers", "p999_us"),
        limit_rtt_p50_us=middle("relays", "p50_us"),
        limit_rtt_p99_us=middle("relays", "p99_us"),
        limit_rtt_p999_us=middle("relays", "p999_us"),
        rtt_ratio=round(middle("brokers", "p50_us") / middle("relays", "p50_us"), 3),
        library_events_per_s=round(rate("library")),
        library_rtt_p50_us=middle("library", "p50_us"),
        start_ms=quiet.start_ms,
        rest_cpu_percent=quiet.cpu_percent,
        stolen_share=round(rounds.stolen_share, 4),
        peer=plan.peer,
        peer_events_per_s=None if peer is None else round(peer),
        peer_ratio=None if peer is None else round(ours / peer, 2),
    )


@contextmanager
def _broker_chain(plan: ChainSettings, report: Say) -> Iterator[list[str]]:
    """Brokers in a line, each with its background subscriptions."""
    report(f"starting {plan.brokers} brokers, {plan.subscriptions} subscriptions at each")
    names = [f"b{n}" for n in range(1, plan.brokers + 1)]
    line = Topology(tuple(names), tuple(pairwise(names)))
    with local.running(line, f"bench-{os.getpid()}") as state:
        addresses = {broker.id: broker.address for broker in state.brokers}
        roles = [
            ("background", {"address": addresses[n], "broker": n, "subscriptions": plan.subscriptions})
            for n in names
        ]
        with workers(ENDS, *roles) as holders:
            for holder in holders:
                holder.wait_ready()
            yield [addresses[name] for name in names]


@contextmanager
def _peer_chain(plan: ChainSettings, report: Say) -> Iterator[Callable[[int, int], float] | None]:
    if plan.peer is None:
        yield None
        return
    from labctl.bench.ends import mosquitto

    report(f"starting {plan.brokers} bridged Mosquitto brokers, {plan.subscriptions} subscriptions at each")
    with mosquitto.chain(plan.brokers, plan.subscriptions) as measure:
        yield measure


def broker_rate(plan: ChainSettings, module: str, addresses: list[str]) -> float:
    common = {"events": plan.events, "payload_bytes": plan.payload_bytes}
    with workers(
        module,
        ("publisher", {"address": addresses[0], **common}),
        ("subscriber", {"address": addresses[-1], **common}),
    ) as (publisher, subscriber):
        return _measure_rate(publisher, subscriber)


def broker_trips(plan: ChainSettings, module: str, addresses: list[str]) -> dict[str, Any]:
    common = {"round_trips": plan.round_trips, "payload_bytes": plan.payload_bytes}
    with workers(module, ("echo", {"address": addresses[-1], **common})) as (echo,):
        echo.wait_ready()
        echo.go()
        with workers(module, ("ping", {"address": addresses[0], **common})) as (ping,):
            ping.wait_ready()
            ping.go()
            return ping.result()


def _relay_rate(plan: ChainSettings) -> float:
    common = {"events": plan.events, "payload_bytes": plan.payload_bytes}
    with (
        _relay_chain(plan) as (first, last),
        workers(
            RELAY,
            ("publisher", {"port": first, **common}),
            ("subscriber", {"port": last, **common}),
        ) as (publisher, subscriber),
    ):
        return _measure_rate(publisher, subscriber)


def relay_trips(plan: ChainSettings, frames: Sequence[tuple[str, int]] = ()) -> dict[str, Any]:
    """Of events, or of these frames (encoded messages in hexadecimal, and how many they are) in turn."""
    common = {"round_trips": plan.round_trips, "payload_bytes": plan.payload_bytes, "frames": frames}
    with _relay_chain(plan) as (first, last), workers(RELAY, ("echo", {"port": last})) as (echo,):
        echo.wait_ready()
        echo.go()
        with workers(RELAY, ("ping", {"port": first, **common})) as (ping,):
            ping.wait_ready()
            ping.go()
            return ping.result()


@contextmanager
def _relay_chain(plan: ChainSettings) -> Iterator[tuple[int, int]]:
    """Ports of the first and the last relay."""
    with ExitStack() as stack:
        port, last = 0, 0
        for _ in range(plan.brokers):
            (relay,) = stack.enter_context(workers(RELAY, ("relay", {"next": port})))
            port = relay.wait_ready()["port"]
            last = last or port
        yield port, last


def _measure_rate(publisher: Worker, subscriber: Worker) -> float:
    subscriber.wait_ready()
    publisher.wait_ready()
    subscriber.go()
    publisher.go()
    return float(subscriber.result()["events_per_s"])
