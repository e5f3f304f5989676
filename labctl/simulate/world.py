"""An overlay of broker cores and client sessions under a simulated network and clock.

Links are reliable and FIFO, with a delay for each message; everything happens in the order of virtual
time, so one seed is one schedule. What happens is recorded like in a real run (`SimMoment`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from heapq import heappop, heappush
from itertools import count
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

from broker.core import Broker, Input
from broker.gate.gate import Gate
from broker.protocol.events import CLIENT_REFUSED
from broker.protocol.filters import Overlap
from broker.protocol.hops import Hop, Sends, broker_hop, client_hop
from broker.protocol.limits import Limits
from broker.protocol.messages import Forget, Over, Publish
from broker.routing.joining import ClientArrived, ClientGone
from broker.routing.ready import ProtocolError, Ready
from labctl.simulate.clients import OnTcm, SimClient
from labctl.simulate.programs.programs import Conditions
from labctl.simulate.tasks import SimFuture, Task

Tree = Iterable[tuple[str, str]]
Latency = Callable[[Random, Hop, Hop], float]
Happening = tuple[float, int, Callable[..., None], tuple[Any, ...]]
"""When, which of those at the same time, what, and with which arguments."""

TIDYING = frozenset({Over, Forget})


class SimMoment(NamedTuple):
    """Something that happened at a node; `number` counts there."""

    node: str
    number: int
    time: float
    name: str
    fields: dict[str, Any]


class Passage(NamedTuple):
    """A message on its way over a link."""

    sent: float
    arrived: float
    source: Hop
    target: Hop
    number: int
    message: Input


class Parcel:
    """Publications that were sent on a link one behind the other at one moment: they travel together."""

    __slots__ = ("due", "messages", "newest", "sent")

    def __init__(self, sent: float, due: float) -> None:
        self.sent = sent
        self.due = due
        self.newest = 0
        """Number of its last message on the link."""
        self.messages: list[tuple[int, Publish]] = []


class Stray(NamedTuple):
    """A broker was sent what it could not place."""

    broker: str
    source: Hop
    message: Input
    error: str


class World:
    def __init__(
        self,
        links: Tree,
        brokers: Iterable[str] = (),
        seed: int = 0,
        latency: Latency | None = None,
        overlap: Overlap = "all",
        limits: Limits | None = None,
        traces: bool = False,
        announcing: Iterable[str] | None = None,
    ) -> None:
        """`announcing`: the brokers that make themselves known. Those of the clients are enough, and in an
        overlay of a thousand spare it a million messages; without it, all do.
        """
        self.random = Random(seed)
        edges = list(links)
        names = sorted({*brokers, *(name for edge in edges for name in edge)})
        near: dict[str, list[str]] = {name: [] for name in names}
        for one, other in edges:
            near[one].append(other)
            near[other].append(one)
        self.brokers = {n: Broker(n, near[n], i + 1, overlap, limits) for i, n in enumerate(names)}
        self.clients: dict[str, SimClient] = {}
        """By id: the one that has joined, or wants to."""
        self._members: dict[tuple[Hop, Hop], SimClient] = {}
        """By their links: more than one may want to join with an id."""
        self.now = 0.0
        self.messages = 0
        self.tidying = 0
        """Of these, those by which brokers tidy up behind transactions, for many of them together where they can."""
        self.moments: list[SimMoment] = []
        self.passages: list[Passage] = []
        self.strays: list[Stray] = []
        self.longest_s = 0.0
        """That a message was under way."""
        self.keeps_history = True
        self.conditions = Conditions(overlap, limits=limits or Limits())
        self._traces = traces
        self._latency: Latency = latency or (lambda random, source, target: random.expovariate(1000.0))
        self._heap: list[Happening] = []
        self._order = count()
        self._lives = count(100)
        self._soon: deque[Callable[[], None]] = deque()
        self._link_times: dict[tuple[Hop, Hop], float] = {}
        self._link_counts: dict[tuple[Hop, Hop], int] = {}
        self._parcels: dict[tuple[Hop, Hop], Parcel] = {}
        """The newest of each link."""
        self._parting: set[str] = set()
        """Clients that are gone, and their brokers do not know it yet."""
        self._numbers: dict[str, int] = {}
        self._gates = {name: Gate() for name in names}
        self._is_expiring = False
        self._by_hop = {broker_hop(name): broker for name, broker in self.brokers.items()}
        for broker in self.brokers.values():
            broker.state.keeps_history = True
        self.begin(edges)
        for name in names if announcing is None else sorted(set(announcing)):
            self.announce(name)
        self.run()
        self.moments.clear()

    takes_twins = True
    """Whether two clients can want one id at the same time."""

    def begin(self, edges: Iterable[tuple[str, str]]) -> None:
        """Whatever a kind of world needs before its brokers speak."""

    def live_under(self, conditions: Conditions) -> None:
        """From now on, and before anything is open: its clocks and times."""
        self.conditions = conditions

    # Driving it

    def forget_history(self) -> None:
        """Keep none from now on: a world that lives long does not grow with what has happened in it."""
        self.keeps_history = False
        for broker in self.brokers.values():
            broker.state.keeps_history = False
        self.moments.clear()

    def at(self, time: float, callback: Callable[..., None], *arguments: object) -> None:
        heappush(self._heap, (time, next(self._order), callback, arguments))

    def run(self, steps_max: int = 1_000_000) -> None:
        """Until nothing is under way any more."""
        for _ in range(steps_max):
            if not self.step():
                return
        raise RuntimeError(f"still busy after {steps_max} steps")

    def step(self) -> bool:
        """The next thing that happens; False if nothing is under way."""
        while self._soon:
            self._soon.popleft()()
        if not self._heap:
            return False
        self.now, _, callback, arguments = heappop(self._heap)
        callback(*arguments)
        return True

    def announce(self, broker: str) -> None:
        """A broker makes itself known, as it does when it is started."""
        self._let_out(self.brokers[broker], self.brokers[broker].start())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> Task:
        return Task(work, self._soon.append)

    def complete(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run one piece of work, and everything that follows from it, to the end."""
        task = self.spawn(work)
        self.run()
        if task.error is not None:
            raise task.error
        assert task.is_done, "it waits for what never comes"
        return task.result

    def sleep(self, seconds: float) -> SimFuture:
        future = SimFuture()
        self.at(self.now + seconds, future.set_result, None)
        return future

    # Clients

    def connect(
        self, client: str, home: str, on_tcm: OnTcm | None = None, is_twin: bool = False
    ) -> SimClient:
        """`is_twin`: another one wants the same id at this moment, and one of the two will be refused."""
        incarnation = next(self._lives)
        member = SimClient(self, client, home, incarnation, on_tcm)
        self.bring_in(member, incarnation, is_twin)
        return member

    def bring_in(self, member: SimClient, incarnation: int, is_twin: bool = False) -> None:
        """Any client of this world, made elsewhere."""
        self._members[member.hop, member.home_hop] = member
        if not is_twin:
            self.clients[member.client_id] = member
        self.transmit(member.hop, member.home_hop, ClientArrived(incarnation))

    def bring_back(
        self, client: str, home: str, on_tcm: OnTcm | None = None, is_twin: bool = False
    ) -> SimClient | None:
        """A client that is gone connects again, with its id; None: a broker still knows it, and would refuse."""
        is_known = client in self._parting or self.brokers[home].state.crt.claims(client)
        return None if is_known else self.connect(client, home, on_tcm, is_twin)

    # The network

    def transmit(self, source: Hop, target: Hop, message: Input) -> None:
        link, now = (source, target), self.now
        number = self._link_counts[link] = self._link_counts.get(link, 0) + 1
        if isinstance(message, Publish):
            due = self._join_parcel(link, number, message)
        else:
            due = self._due(link)
            heappush(self._heap, (due, next(self._order), self._arrive, (source, target, number, message)))
        if self._traces:
            self.passages.append(Passage(now, due, source, target, number, message))

    def _due(self, link: tuple[Hop, Hop]) -> float:
        """When what is sent on a link now arrives: not before what was sent on it earlier."""
        due = max(self.now + self._latency(self.random, *link), self._link_times.get(link, 0.0))
        self.longest_s = max(self.longest_s, due - self.now)
        self._link_times[link] = due
        return due

    def _join_parcel(self, link: tuple[Hop, Hop], number: int, message: Publish) -> float:
        parcel = self._parcels.get(link)
        if parcel is None or parcel.sent != self.now or parcel.newest != number - 1 or not parcel.messages:
            parcel = self._parcels[link] = Parcel(self.now, self._due(link))
            heappush(self._heap, (parcel.due, next(self._order), self._arrive_together, (link, parcel)))
        parcel.newest = number
        parcel.messages.append((number, message))
        return parcel.due

    def depart(self, client: SimClient, reason: str) -> None:
        """The broker learns that a client is gone, after all that was heard of it."""
        link = (client.hop, broker_hop(client.home))
        arrival = max(self.now, self._link_times.get(link, 0.0))
        self._parting.add(client.client_id)
        self.at(arrival + 1e-9, self._part, client, reason)

    def _part(self, client: SimClient, reason: str) -> None:
        self._parting.discard(client.client_id)
        self._take(self.brokers[client.home], client.hop, ClientGone(reason))

    def _arrive_together(self, link: tuple[Hop, Hop], parcel: Parcel) -> None:
        """A broker decides on them together, as it does over TCP."""
        source, target = link
        messages, parcel.messages = parcel.messages, []
        broker = self._by_hop.get(target)
        if broker is None or len(messages) == 1:
            for number, message in messages:
                self._arrive(source, target, number, message)
            return
        last = self._members[link].heard_until if source not in self._by_hop else messages[-1][0]
        heard = [message for number, message in messages if number <= last]
        self.messages += len(heard)
        try:
            ready = broker.publish(source, heard) if heard else Ready([], [])
        except ProtocolError as error:
            self.strays.append(Stray(broker.id, source, heard[0], str(error)))
            return
        self._let_out(broker, ready)

    def _arrive(self, source: Hop, target: Hop, number: int, message: Input) -> None:
        broker = self._by_hop.get(target)
        if broker is None:
            client = self._members.get((target, source))
            if client is not None and client.is_alive and number > client.deaf_until:
                self.messages += 1
                client.take(message)
            return
        if source not in self._by_hop and number > self._members[source, target].heard_until:
            return  # it was lost with its sender
        self.messages += 1
        self.tidying += type(message) in TIDYING
        self._take(broker, source, message)
        if not self._is_expiring and broker.has_open_transactions:
            self._is_expiring = True
            self.at(self.now + self.conditions.expire_s, self._expire)

    def _take(self, broker: Broker, source: Hop, message: Input) -> None:
        try:
            ready = broker.handle(self.time_at(broker), source, message)
        except ProtocolError as error:
            self.strays.append(Stray(broker.id, source, message, str(error)))
            return
        self._let_out(broker, ready)

    def time_at(self, broker: Broker) -> float:
        """By the broker's own clock."""
        clock = self.conditions.clocks.get(broker.id)
        return self.now if clock is None else clock.offset_s + clock.rate * self.now

    def _let_out(self, broker: Broker, ready: Ready) -> None:
        self._gates[broker.id].submit(self._carry_out, broker.id, ready)

    def _carry_out(self, broker: str, ready: Ready) -> None:
        if ready.sends:
            self._perform(broker, ready.sends)
        for notice in ready.notices:
            self.record(broker, notice.name, notice.fields)
            if notice.name == CLIENT_REFUSED:
                self._members[client_hop(notice.fields["client"]), broker_hop(broker)].turn_away()

    def _expire(self) -> None:
        self._is_expiring = False
        for broker in self.brokers.values():
            if broker.has_open_transactions:
                self._let_out(broker, broker.expire(self.time_at(broker)))
        if len(self._heap) and any(b.has_open_transactions for b in self.brokers.values()):
            self._is_expiring = True
            self.at(self.now + self.conditions.expire_s, self._expire)

    def _perform(self, broker: str, sends: Sends) -> None:
        source = broker_hop(broker)
        if len(sends) > 1 and type(sends[0][1]) is Publish:
            sends = sorted(
                sends, key=itemgetter(0)
            )  # they come from a set, in an order that is not the seed's
        for hop, message in sends:
            if hop:
                self.transmit(source, hop, message)

    def record(self, node: str, name: str, fields: dict[str, Any]) -> None:
        if self.keeps_history:
            number = self._numbers[node] = self._numbers.get(node, 0) + 1
            self.moments.append(SimMoment(node, number, self.now, name, fields))

    def link_count(self, source: Hop, target: Hop) -> int:
        return self._link_counts.get((source, target), 0)
