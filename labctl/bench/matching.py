"""What one next-hop decision costs: the matching index under a stated workload.

Subscriptions: half are equality on two attributes (`process`, `instance`), half are ranges on three of
the ten attributes `a0` to `a9`, whose values lie between 0 and 10^6; a range's width is uniform up to
20 % of that. A thousand clients, eight hops.

Events: each has `process`, `instance` and three of the ten range attributes. At 100 000 subscriptions
about 417 have their ranges on just these three, and each of those contains the event with probability
0.1^3, so one event in three has a match; the pairs of process and instance are so many that one event
in four has an equal subscription. Together about half of the events match somewhere (`matched_share`
says how many did). No two events are equal.

`decision_us_all_attributes` is for events with all ten range attributes: all 50 000 ranges have to be
considered, every event matches tens of them, and the index may stop only when all eight hops are in.

Times are the best of three rounds over all events, with the garbage collector off: what is timed makes
no cycles, and a collection would count the benchmark's own objects. The percentile is over each event's
best time, so that it speaks of events and not of the machine's other work. Memory and holes are measured
in processes of their own, so that memory which was freed before cannot hide what is used.

The yardstick, in the same run on the same events, is a plain bitset index (`labctl.bench.bitset`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from random import Random
from subprocess import run as run_process
from time import perf_counter_ns

import msgspec
from msgspec import Struct

from broker.matching.index import Index
from broker.matching.records import Record
from broker.protocol.filters import Event, Filter, Interval, between, make_filter
from broker.protocol.messages import Operation
from broker.protocol.vocabulary import NO_KEY, Kind
from labctl.bench.bitset import BitsetIndex

RANGE_NAMES = tuple(f"a{number}" for number in range(10))
DOMAIN_MAX = 10**6
WIDTH_MAX = DOMAIN_MAX // 5
PROCESSES = 400
PAIR_SHARE = 0.32
"""Equality subscriptions for each pair of process and instance."""
HOPS = tuple(f"broker:b{number}" for number in range(8))
CLIENTS = 1000
HOLES = 1_000_000
FEW = 100
ROUNDS = 3
TURNS = 9

Say = Callable[[str], None]
Decide = Callable[[Event], object]


class MatchingResult(Struct, frozen=True, kw_only=True):
    """Microseconds, but for what the names say."""

    subscriptions: int
    matched_share: float
    decision_us: float
    decision_p99_us: float
    decision_us_at_100: float
    ratio: float
    """How many times longer than with 100 subscriptions."""
    decision_us_all_attributes: float
    bitset_decision_us: float
    bitset_decision_us_at_100: float
    bitset_decision_us_all_attributes: float
    insert_us: float
    remove_us: float
    bytes_per_subscription: float
    holes: int
    decision_us_without_holes: float
    """Beside all the subscriptions, a dispatcher with `sub({process: p1})`; the same events."""
    decision_us_with_holes: float
    """The same dispatcher with all its holes."""
    own_decision_us_without_holes: float
    """The same for events of p1 alone: each of them matches the dispatcher's subscription ..."""
    own_decision_us_with_holes: float
    """... and half of them lie in a hole, so that the dispatcher's hop is not found by it."""
    lone_decision_us_without_holes: float
    """The same client alone in the index: here the second look-up is the greater part."""
    lone_decision_us_with_one_hole: float
    lone_decision_us_with_holes: float


class HoleFigures(Struct, frozen=True):
    """What the process that digs them finds."""

    without: float
    with_all: float
    own_without: float
    own_with_all: float
    lone_without: float
    lone_with_one: float
    lone_with_all: float


def run(
    subscriptions: int = 100_000, events: int = 2000, seed: int = 1, report: Say | None = None
) -> MatchingResult:
    """Measure everything; see the module's docstring for what is measured."""
    say = report or (lambda _: None)
    workload = Workload(subscriptions, seed)
    some, full = workload.events(events, 3), workload.events(events, len(RANGE_NAMES))
    filters = list(islice(workload.filters(), subscriptions))
    say(f"filing {subscriptions} subscriptions")
    index, small = filled(filters), filled(filters[:FEW])
    say("deciding")
    decision_us, decision_us_at_100 = time_us(index.hops, some), time_us(small.hops, some)
    p99_us = percentile_us(index.hops, some, 0.99)
    full_us = time_us(index.hops, full)
    say("inserting and removing")
    insert_us, remove_us = time_changes_us(index, list(islice(workload.filters("more"), events)))
    say("comparing with a bitset index")
    bitset, small_bitset = yardstick(filters), yardstick(filters[:FEW])
    check_agreement(index, bitset, some[:500] + full[:100])
    bitset_us, bitset_us_at_100 = time_us(bitset.hops, some), time_us(small_bitset.hops, some)
    bitset_full_us = time_us(bitset.hops, full)
    say("measuring memory in another process")
    bytes_each = float(elsewhere("print_memory()", encoded(filters)))
    say(f"digging {HOLES} holes in another process")
    found = msgspec.json.decode(
        elsewhere(f"print_holes({subscriptions}, {events}, {seed})"), type=HoleFigures
    )
    return MatchingResult(
        subscriptions=subscriptions,
        matched_share=sum(1 for event in some if index.hops(event)) / len(some),
        decision_us=decision_us,
        decision_p99_us=p99_us,
        decision_us_at_100=decision_us_at_100,
        ratio=decision_us / decision_us_at_100,
        decision_us_all_attributes=full_us,
        bitset_decision_us=bitset_us,
        bitset_decision_us_at_100=bitset_us_at_100,
        bitset_decision_us_all_attributes=bitset_full_us,
        insert_us=insert_us,
        remove_us=remove_us,
        bytes_per_subscription=bytes_each,
        holes=HOLES,
        decision_us_without_holes=found.without,
        decision_us_with_holes=found.with_all,
        own_decision_us_without_holes=found.own_without,
        own_decision_us_with_holes=found.own_with_all,
        lone_decision_us_without_holes=found.lone_without,
        lone_decision_us_with_one_hole=found.lone_with_one,
        lone_decision_us_with_holes=found.lone_with_all,
    )


class Workload:
    """Filters and events, the same for the same seed."""

    def __init__(self, subscriptions: int, seed: int) -> None:
        self._seed = seed
        self._instances = max(1, round(subscriptions / 2 / PAIR_SHARE / PROCESSES))

    def filters(self, salt: str = "subscriptions") -> Iterator[Filter]:
        """Equality and ranges in turn, without end."""
        random = Random(f"{salt} {self._seed}")
        while True:
            yield make_filter(self._pair(random))
            yield make_filter({name: _range(random) for name in random.sample(RANGE_NAMES, 3)})

    def events(self, count: int, ranges: int) -> list[Event]:
        """Different from each other, because no value of a range attribute comes twice."""
        random = Random(f"events {ranges} {self._seed}")
        return [self._pair(random) | self._point(random, ranges) for _ in range(count)]

    def events_of_p1(self, count: int) -> list[Event]:
        """Half of them in one of the holes, at three range attributes each."""
        random = Random(f"p1 {self._seed}")
        events = [self._point(random, 3) for _ in range(count)]
        for event in events:
            event |= {"process": "p1", "instance": f"x{random.randrange(2 * HOLES)}"}
        return events

    def _pair(self, random: Random) -> Event:
        process, instance = random.randrange(PROCESSES), random.randrange(self._instances)
        return {"process": f"p{process}", "instance": f"x{instance}"}

    def _point(self, random: Random, ranges: int) -> Event:
        names = sorted(random.sample(RANGE_NAMES, ranges))
        return {name: random.random() * DOMAIN_MAX for name in names}


def _range(random: Random) -> Interval:
    low = random.randrange(DOMAIN_MAX)
    return between(low, low + random.randrange(WIDTH_MAX))


def client_of(number: int) -> int:
    """Equality and ranges alternate; by taking two at a time every client and hop has both."""
    return number // 2 % CLIENTS


def hop_of(number: int) -> str:
    return HOPS[client_of(number) % len(HOPS)]


def subscription(number: int, filter_: Filter) -> Record:
    return Record("sub", f"c{client_of(number)}", (NO_KEY, 0, 1, number), filter_)


def filled(filters: Iterable[Filter]) -> Index:
    index = Index()
    for number, filter_ in enumerate(filters):
        index.add(subscription(number, filter_), hop_of(number))
    return index


def yardstick(filters: Iterable[Filter]) -> BitsetIndex:
    return BitsetIndex([(filter_, hop_of(number)) for number, filter_ in enumerate(filters)])


def check_agreement(index: Index, bitset: BitsetIndex, events: Sequence[Event]) -> None:
    """A figure of a wrong answer is worth nothing."""
    for event in events:
        if set(index.hops(event)) != bitset.hops(event):
            raise RuntimeError(f"the index and the bitset disagree about {event}")


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def time_us(decide: Decide, events: Sequence[Event]) -> float:
    """Mean time of one decision in the best of the rounds."""
    with without_collector():
        return min(_round_ns(decide, events) for _ in range(ROUNDS)) / len(events) / 1000


def times_in_turn_us(decides: Sequence[Decide], events: Sequence[Event]) -> list[float]:
    """The same for several that are to be compared: a slow moment of the machine hits all of them."""
    with without_collector():
        rounds = [[_round_ns(decide, events) for decide in decides] for _ in range(TURNS)]
    return [min(times) / len(events) / 1000 for times in zip(*rounds, strict=True)]


def _round_ns(decide: Decide, events: Sequence[Event]) -> int:
    start = perf_counter_ns()
    for event in events:
        decide(event)
    return perf_counter_ns() - start


def percentile_us(decide: Decide, events: Sequence[Event], share: float) -> float:
    """Of each event's best time; a round goes through all events, so that none finds its own traces."""
    with without_collector():
        rounds = [[_round_ns(decide, (event,)) for event in events] for _ in range(ROUNDS)]
    best: list[int] = sorted(min(times) for times in zip(*rounds, strict=True))
    return best[min(len(best) - 1, int(share * len(best)))] / 1000


def time_changes_us(index: Index, filters: Sequence[Filter]) -> tuple[float, float]:
    """Mean time to insert and to remove one subscription: these filters join what is there, and go in
    another order."""
    inserts, removes = [], []
    with without_collector():
        for round_ in range(ROUNDS):
            records = [subscription(len(index) + n, filter_) for n, filter_ in enumerate(filters)]
            hops = [hop_of(len(index) + n) for n in range(len(filters))]
            start = perf_counter_ns()
            for record, hop in zip(records, hops, strict=True):
                index.add(record, hop)
            inserts.append(perf_counter_ns() - start)
            Random(round_).shuffle(records)
            start = perf_counter_ns()
            for record in records:
                index.remove(record)
            removes.append(perf_counter_ns() - start)
    return min(inserts) / len(filters) / 1000, min(removes) / len(filters) / 1000


def elsewhere(call: str, data: bytes = b"") -> bytes:
    """What a function of this module prints in a process of its own, which reads `data`."""
    command = [sys.executable, "-c", f"from labctl.bench import matching; matching.{call}"]
    return run_process(command, input=data, capture_output=True, check=True).stdout


def encoded(filters: Iterable[Filter]) -> bytes:
    """As they come over the wire, each behind its length."""
    pieces = []
    for number, filter_ in enumerate(filters):
        record = subscription(number, filter_)
        message = msgspec.msgpack.encode(Operation("sub", record.client, record.stamp, record.filter))
        pieces += [len(message).to_bytes(4, "big"), message]
    return b"".join(pieces)


def print_memory() -> None:
    """Bytes of resident memory for each subscription of standard input, the record and all its parts included."""
    data = memoryview(sys.stdin.buffer.read())
    decode = msgspec.msgpack.Decoder(Operation).decode
    index = Index()
    gc.collect()
    before = _resident_bytes()
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        got = decode(data[4:end])
        index.add(Record(got.kind, got.client, got.stamp, got.filter), hop_of(len(index)))
        data = data[end:]
    gc.collect()
    sys.stdout.write(f"{(_resident_bytes() - before) / len(index)}")


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def print_holes(subscriptions: int, events: int, seed: int) -> None:
    """Decisions beside one client, with and without its holes, in turn; and those about what it wants."""
    workload = Workload(subscriptions, seed)
    filters = list(islice(workload.filters(), subscriptions))
    whole, dug = filled(filters), filled(filters)
    lone_whole, lone_one, lone_dug = Index(), Index(), Index()
    indexes = (whole, dug, lone_whole, lone_one, lone_dug)
    for index in indexes:
        index.add(_dispatcher("sub", 0, {"process": "p1"}), HOPS[0])
    _dig(lone_one, range(1))
    for index in (dug, lone_dug):
        _dig(index, range(HOLES))
    beside = times_in_turn_us([whole.hops, dug.hops], workload.events(events, 3))
    own = times_in_turn_us([index.hops for index in indexes], workload.events_of_p1(events))
    sys.stdout.buffer.write(msgspec.json.encode(HoleFigures(*beside, *own)))


def _dig(index: Index, instances: range) -> None:
    for number in instances:
        hole = _dispatcher("usub", 1 + number, {"process": "p1", "instance": f"x{number}"})
        index.add(hole, HOPS[0])


def _dispatcher(kind: Kind, number: int, constraints: dict[str, str]) -> Record:
    return Record(kind, "dispatcher", (NO_KEY, 0, 1, number), make_filter(constraints))
