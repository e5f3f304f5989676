"""Very many transactions in one world that lives long: what is left of them at the end.

They run one after the other and side by side, commit, conflict, are aborted, and lose clients. Filters are few,
so that transactions undo each other: however many there were, a client has no more records than there are filters.
Between the rounds every client returns to the space that it began with, by regular operations. So whatever grows
from round to round grows with the number of transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

from msgspec import Struct, structs

from broker.core import Broker
from broker.matching.records import Record
from broker.protocol import events
from broker.protocol.vocabulary import NO_STAMP, PROTOCOLS, Protocol
from broker.routing.srt import ANSWERS_MAX
from broker.transactions.dtx.order import RECENT_MAX
from broker.transactions.stx.wellformed import GOOD_MAX
from labctl.simulate.programs.generate import SPAN_S, VALUES, Maker
from labctl.simulate.programs.programs import Fault, Op, Program
from labctl.simulate.runner import SimRun, regular
from labctl.simulate.search.novelty import known_marks
from labctl.simulate.world import World
from labctl.topology import standard

CLIENTS = ("c1", "c2", "c3", "c4", "c5")
TOGETHER_MAX = 6
ROUND = 100
"""Transactions between two returns to the beginning."""
CRASHES = 0.1
RECORDS = 4
"""Of a client at its broker when it begins: an advertisement and a subscription of each of two spaces."""
RECORDS_MAX = 2 * (2 ** len(VALUES) - 1) + RECORDS
"""Of a client at its broker: a `sub` or `usub` and an `adv` or `uadv` with each filter, and the control space."""
LEAVES = (int, float, str, bytes, type(None), Random)
LIMITED = {
    "brokers[].transactions.dtx.order._recent": RECENT_MAX,
    "brokers[].transactions.stx._checker._good": GOOD_MAX,
    "brokers[].routing.srt._answers": ANSWERS_MAX,
    "brokers[].state.marks": len(known_marks()),
}
"""What remembers the past by intention, and how much of it at each broker."""


class Soaked(Struct):
    transactions: int = 0
    committed: int = 0
    messages: int = 0
    records_max: int = 0
    """The most that any broker had at the end of a round, before clients returned to their beginning."""
    faults: list[str] = []


class Soak:
    def __init__(self, brokers: int, protocols: Iterable[Protocol] = PROTOCOLS, seed: int = 0) -> None:
        tree = standard(brokers)
        self._random = Random(f"soak {seed}")
        self._protocols = tuple(protocols)
        self._makers = 0
        homes = {client: tree.brokers[place % brokers] for place, client in enumerate(CLIENTS)}
        self._program = Program(tree.links, tree.brokers, homes, (), ())
        self._run = SimRun(self._program)
        self._run.prepare()
        self.world = self._run.world
        self.result = Soaked(faults=[])
        self._committed: set[str] = set()
        self._return()

    def run(self, transactions: int, report: Callable[[Soaked], object] = lambda _: None) -> Soaked:
        first: dict[str, int] = {}
        result = self.result
        while result.transactions < transactions and not result.faults:
            self._round(min(ROUND, transactions - result.transactions))
            first = first or sizes(self.world)
            report(result)
        grown = growth(first, sizes(self.world), len(self.world.brokers))
        result.faults += [f"{path} has grown from {old} to {new}" for path, old, new in grown]
        result.messages = self.world.messages
        return result

    def _round(self, transactions: int) -> None:
        left = transactions
        while left:
            count = min(left, self._random.choice((1, 1, 2, 3, TOGETHER_MAX)))
            self._together(count)
            left -= count
        self._note_outcomes()
        result = self.result
        result.transactions += transactions
        result.faults += [*self._run.errors, *self._run.left(), *self._strangers(), *self._crowds()]
        result.records_max = max(
            result.records_max, *(len(_records(broker)) for broker in self.world.brokers.values())
        )
        self._return()
        result.faults += self._leftovers()

    def _together(self, count: int) -> None:
        self._makers += 1
        maker = Maker("soak", self._makers, self._protocols)
        maker.clients = list(CLIENTS)
        for _ in range(count):
            maker.transaction(aborts=0.2)
        faults: tuple[Fault, ...] = ()
        if self._random.random() < CRASHES:
            time, lost = 2 * SPAN_S * self._random.random(), self._random.choice((0, 1, 2))
            faults = (Fault("crash", self._random.choice(CLIENTS), time, lost),)
        changed = structs.replace(self._program, transactions=tuple(maker.transactions), faults=faults)
        self._run.follow(changed)
        for fault in faults:
            self._return_of(fault.client)

    def _return_of(self, client: str) -> None:
        """A client that has crashed begins a new life."""
        self.world.connect(client, self._program.homes[client], self._run.answer)
        self.world.run()
        self.world.complete(self._run.introduce(self.world.clients[client]))
        self._begin_anew(client)

    def _return(self) -> None:
        for client in CLIENTS:
            self._regular(client, Op("adv", "d", VALUES))
        for client in CLIENTS:
            self._begin_anew(client)
        self._committed.clear()
        self.world.moments.clear()
        self._known = {
            (r.client, r.stamp) for broker in self.world.brokers.values() for r in _records(broker)
        }

    def _begin_anew(self, client: str) -> None:
        """Advertise everything, subscribe to nothing but a point of its own, and forget what came."""
        own = (CLIENTS.index(client) % len(VALUES),)
        for op in (Op("adv", "d", VALUES), Op("usub", "d", VALUES), Op("sub", "d", own)):
            self._regular(client, op)
        self.world.clients[client].deliveries.clear()

    def _regular(self, client: str, op: Op) -> None:
        self.world.complete(regular(self.world.clients[client], op))

    # What must hold

    def _note_outcomes(self) -> None:
        for moment in self.world.moments:
            if moment.name == events.COMMITTED and moment.fields["tx"] not in self._committed:
                self._committed.add(moment.fields["tx"])
                self.result.committed += 1

    def _strangers(self) -> Iterator[str]:
        """Records that no committed transaction and no regular operation has written."""
        written = set(self._known)
        for moment in self.world.moments:
            fields = moment.fields
            if moment.name == events.PROCESSED and (not fields["tx"] or fields["tx"] in self._committed):
                written.add((fields.get("client", ""), fields.get("stamp", NO_STAMP)))
        for broker in self.world.brokers.values():
            for record in _records(broker):
                if record.tag or (record.client, record.stamp) not in written:
                    yield f"{broker.id} has {record.kind} {record.filter} of {record.client}: whose is it?"

    def _crowds(self) -> Iterator[str]:
        """What a client's operations have undone must have gone, also without any regular operation."""
        for broker in self.world.brokers.values():
            for client in broker.state.guests:
                count = sum(record.client == client for record in _records(broker))
                if count > RECORDS_MAX:
                    yield f"{broker.id} has {count} records of {client}, and there are {RECORDS_MAX} at most"

    def _leftovers(self) -> Iterator[str]:
        """After the return a client has, at its broker, the records that it began with."""
        for broker in self.world.brokers.values():
            for client in broker.state.guests:
                count = sum(record.client == client for record in _records(broker))
                if count != RECORDS:
                    yield f"{broker.id} has {count} records of {client} after its return, not {RECORDS}"


def _records(broker: Broker) -> list[Record]:
    return [record for _, record in (*broker.routing.srt, *broker.routing.prt)]


# What a world holds


def sizes(world: World) -> dict[str, int]:
    """Of every container in a world, by the names that lead to it; what is in a container counts together."""
    found: dict[str, int] = {}
    seen: set[int] = {id(world)}
    for name, value in vars(world).items():
        _count(value, name, found, seen)
    return found


def _count(value: Any, path: str, found: dict[str, int], seen: set[int]) -> None:
    if isinstance(value, LEAVES) or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (list, tuple, set, frozenset, dict, deque)):
        if not isinstance(value, tuple):
            found[path] = found.get(path, 0) + len(value)
        items = value.values() if isinstance(value, dict) else value
        for item in items:
            _count(item, f"{path}[]", found, seen)
        return
    names = getattr(value, "__struct_fields__", None) or (*getattr(value, "__dict__", ()), *_slots(value))
    for name in names:
        _count(getattr(value, name, None), f"{path}.{name}", found, seen)


def _slots(value: Any) -> tuple[str, ...]:
    slots = getattr(type(value), "__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def growth(before: dict[str, int], after: dict[str, int], brokers: int) -> list[tuple[str, int, int]]:
    """What has become larger than it was, and is not meant to."""
    found = []
    for path, size in after.items():
        memory = next((name for name in LIMITED if path.startswith(name)), "")
        allowed = before.get(path, 0)
        if memory:
            allowed = brokers * LIMITED[memory] if path == memory else size
        if size > allowed:
            found.append((path, before.get(path, 0), size))
    return found
