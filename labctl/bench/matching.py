"""What one next-hop decision costs: the matching index under a stated workload.

Subscriptions: half are equality on two attributes (`process`, `instance`), half are ranges on three of
the ten attributes `a0` to `a9`, whose values lie between 0 and 10^6; a range's width is uniform up to
20 % of that. A thousand clients, eight hops.

Events: each has `process`, `instance` and three of the ten range attributes, so one signature in 120
of the range subscriptions applies to it. At 100 000 subscriptions that signature has about 417, each
of which contains the event with probability 0.097^3, which gives about one event in three a match; the
pairs of process and instance are as many as give one event in four an equal subscription. Together
about half of the events match somewhere (`matched_share` says how many did). No two events are equal.
`decision_us_all_attributes` is for events that have all ten: all 120 signatures apply, every event
matches tens of subscriptions, and the index can stop only when all eight hops are found.

Times are the best of three rounds over all events, with the garbage collector off: what is timed makes
no cycles, and a collection would only count the benchmark's own objects. A percentile is over each
event's best time, so that it speaks of events and not of the machine's other work. Memory and holes are
measured in processes of their own, so that no memory is counted that was freed before.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from random import Random
from time import perf_counter_ns

import msgspec
from msgspec import Struct

from broker.filters import Event, Filter, Interval, between, make_filter
from broker.index import Index, Record
from broker.wire import NO_KEY, Operation
from labctl.bench.bitset import BitsetIndex

RANGE_NAMES = tuple(f"a{number}" for number in range(10))
DOMAIN_MAX = 10**6
WIDTH_MAX = DOMAIN_MAX // 5
PROCESSES = 400
EQUAL_SHARE = 0.32
"""Equality subscriptions for each pair of process and instance."""
HOPS = tuple(f"broker:b{number}" for number in range(8))
CLIENTS = 1000
HOLES = 1_000_000
FEW_SUBSCRIPTIONS = 100
ROUNDS = 3

Report = Callable[[str], None]
Decide = Callable[[Event], object]


class MatchingResult(Struct, frozen=True, kw_only=True):
    subscriptions: int
    matched_share: float
    decision_us: float
    decision_p99_us: float
    decision_us_at_100: float
    ratio: float
    """How many times longer than among 100 subscriptions."""
    decision_us_all_attributes: float
    bitset_decision_us: float
    bitset_decision_us_at_100: float
    bitset_decision_us_all_attributes: float
    insert_us: float
    remove_us: float
    bytes_per_subscription: float
    holes: int
    decision_us_without_holes: float
    decision_us_with_holes: float


class HolesResult(Struct, frozen=True):
    """One client with `sub({process: p1})`, alone in the index and beside all the subscriptions."""

    alone_without_us: float
    alone_with_us: float
    beside_without_us: float
    beside_with_us: float


def run(
    subscriptions: int = 100_000, events: int = 2000, seed: int = 1, report: Report | None = None
) -> MatchingResult:
    """Measure everything; the figures are those of the module's docstring."""
    say = report or (lambda _: None)
    workload = Workload(subscriptions, seed)
    some, all_attributes = workload.events(events, 3), workload.events(events, len(RANGE_NAMES))
    wanted = list(islice(workload.filters(), subscriptions))
    say(f"filing {subscriptions} subscriptions")
    index = filled(wanted)
    say("deciding")
    decision_us = time_us(index.hops, some)
    decision_us_at_100 = time_us(filled(wanted[:FEW_SUBSCRIPTIONS]).hops, some)
    say("inserting and removing")
    insert_us, remove_us = time_changes_us(index, list(islice(workload.filters("extra"), events)))
    say("building the bitset index beside it")
    pairs = [(filter_, hop_of(number)) for number, filter_ in enumerate(wanted)]
    bitset, small_bitset = BitsetIndex(pairs), BitsetIndex(pairs[:FEW_SUBSCRIPTIONS])
    check_agreement(index, bitset, some[:500] + all_attributes[:100])
    say("measuring memory in another process")
    bytes_per_subscription = measured_elsewhere("memory", subscriptions, events, seed)["bytes"]
    say(f"digging {HOLES} holes in another process")
    holes = measured_elsewhere("holes", subscriptions, events, seed)
    return MatchingResult(
        subscriptions=subscriptions,
        matched_share=sum(1 for event in some if index.hops(event)) / len(some),
        decision_us=decision_us,
    )


class Workload:
    """Subscriptions and events, the same for the same seed."""

    def __init__(self, subscriptions: int, seed: int) -> None:
        self._seed = seed
        self._instances = max(1, round(subscriptions / 2 / EQUAL_SHARE / PROCESSES))

    def filters(self, salt: str = "subscriptions") -> Iterator[Filter]:
        random = Random(f"{salt} {self._seed}")
        while True:
            yield make_filter(self._pair(random))
            yield make_filter({name: _range(random) for name in random.sample(RANGE_NAMES, 3)})

    def events(self, count: int, ranges: int) -> list[Event]:
        """All different: a value of a range attribute does not come twice."""
        random = Random(f"events {ranges} {self._seed}")
        return [
            self._pair(random)
            | {name: random.random() * DOMAIN_MAX for name in sorted(random.sample(RANGE_NAMES, ranges))}
            for _ in range(count)
        ]

    def _pair(self, random: Random) -> Event:
        return {
            "process": f"p{random.randrange(PROCESSES)}",
            "instance": f"x{random.randrange(self._instances)}",
        }


def _range(random: Random) -> Interval:
    low = random.randrange(DOMAIN_MAX)
    return between(low, low + random.randrange(WIDTH_MAX))


def hop_of(number: int) -> str:
    return HOPS[client_of(number) % len(HOPS)]


def filled(filters: Sequence[Filter]) -> Index:
    index = Index()
    for number, filter_ in enumerate(filters):
        index.add(Record("sub", f"c{client_of(number)}", (NO_KEY, 0, 1, number), filter_), hop_of(number))
    return index


def time_us(decide: Decide, events: Sequence[Event]) -> float:
    best = min(_round_ns(decide, events) for _ in range(ROUNDS))
    return best / len(events) / 1000


def _round_ns(decide, events):
    start = perf_counter_ns()
    for event in events:
        decide(event)
    return perf_counter_ns() - start


def client_of(number: int) -> int:
    """Both kinds of subscriptions at every client: their numbers alternate, so clients take two in turn."""
    return number // 2 % CLIENTS
