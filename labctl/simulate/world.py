"""An overlay of broker cores and client sessions under a simulated network and clock.

Links are reliable and FIFO, with a delay for each message; everything happens in the order of virtual
time, so one seed is one schedule. What happens is recorded like in a real run (`Moment`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

from broker.core import Broker, ClientArrived, ClientAway, ClientBack, ClientGone, Input, ProtocolError
from broker.filters import Overlap, Value
from broker.hops import Hop, Sends, broker_hop, client_hop, name_of
from broker.limits import Limits
from broker.wire import AnyMessage, Publish
from client.errors import SessionClosed
from client.session import Delivery
from client.transactions import Frame, Tcm
from client.verbs import Verbs
from labctl.simulate.tasks import SimFuture, Task

Tree = Iterable[tuple[str, str]]
Latency = Callable[[Random, Hop, Hop], float]
Happening = tuple[float, int, Callable[..., None], tuple[Any, ...]]
"""When, which of those at the same time, what, and with which arguments."""
OnTcm = Callable[["SimClient", Tcm, Frame], Coroutine[Any, Any, None]]

TIMEOUT_S = 1e9
EXPIRE_S = 1.0


class Moment(NamedTuple):
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
        self.now = 0.0
        self.messages = 0
        self.moments: list[Moment] = []
        self.passages: list[Passage] = []
        self.strays: list[Stray] = []
        self.keeps_history = True
        self._traces = traces
        self._latency: Latency = latency or (lambda random, source, target: random.expovariate(1000.0))
        self._heap: list[Happening] = []
        self._order = count()
        self._lives = count(100)
        self._soon: deque[Callable[[], None]] = deque()
        self._link_times: dict[tuple[Hop, Hop], float] = {}
        self._link_counts: dict[tuple[Hop, Hop], int] = {}
        self._numbers: dict[str, int] = {}
        self._is_expiring = False
        self._by_hop = {broker_hop(name): broker for name, broker in self.brokers.items()}
        for broker in self.brokers.values():
            broker.site.keeps_history = True
        for name in names if announcing is None else sorted(set(announcing)):
            self._perform(name, self.brokers[name].start().sends)
        self.run()
        self.moments.clear()

    # Driving it

    def forget_history(self) -> None:
        """Keep none from now on: a world that lives long does not grow with what has happened in it."""
        self.keeps_history = False
        for broker in self.brokers.values():
            broker.site.keeps_history = False
        self.moments.clear()

    def at(self, time: float, callback: Callable[..., None], *arguments: object) -> None:
        heappush(self._heap, (time, next(self._order), callback, arguments))

    def run(self, steps_max: int = 1_000_000) -> None:
        """Until nothing is under way any more."""
        soon, heap = self._soon, self._heap
        for _ in range(steps_max):
            while soon:
                soon.popleft()()
            if not heap:
                return
            self.now, _, callback, arguments = heappop(heap)
            callback(*arguments)
        raise RuntimeError(f"still busy after {steps_max} steps")

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

    def connect(self, client: str, home: str, on_tcm: OnTcm | None = None) -> SimClient:
        incarnation = next(self._lives)
        member = SimClient(self, client, home, incarnation, on_tcm)
        self.clients[client] = member
        self.transmit(client_hop(client), broker_hop(home), ClientArrived(incarnation))
        return member

    # The network

    def transmit(self, source: Hop, target: Hop, message: Input) -> None:
        link, times, now = (source, target), self._link_times, self.now
        due = now + self._latency(self.random, source, target)
        earliest = times.get(link, 0.0)
        times[link] = due = max(due, earliest)
        number = self._link_counts[link] = self._link_counts.get(link, 0) + 1
        if self._traces:
            self.passages.append(Passage(now, due, source, target, number, message))
        heappush(self._heap, (due, next(self._order), self._arrive, (source, target, number, message)))

    def depart(self, client: SimClient, reason: str) -> None:
        """The broker learns that a client is gone, after all that was heard of it."""
        link = (client.hop, broker_hop(client.home))
        arrival = max(self.now, self._link_times.get(link, 0.0))
        self.at(arrival + 1e-9, self._take, self.brokers[client.home], client.hop, ClientGone(reason))

    def _arrive(self, source: Hop, target: Hop, number: int, message: Input) -> None:
        broker = self._by_hop.get(target)
        if broker is None:
            client = self.clients.get(name_of(target))
            if client is not None and client.is_alive:
                self.messages += 1
                client.take(message)
            return
        if source not in self._by_hop and number > self.clients[name_of(source)].heard_until:
            return  # it was lost with its sender
        self.messages += 1
        self._take(broker, source, message)
        if not self._is_expiring and broker.has_open_transactions:
            self._is_expiring = True
            self.at(self.now + EXPIRE_S, self._expire)

    def _take(self, broker: Broker, source: Hop, message: Input) -> None:
        try:
            ready = broker.handle(self.now, source, message)
        except ProtocolError as error:
            self.strays.append(Stray(broker.id, source, message, str(error)))
            return
        for event in ready.events:
            self.record(broker.id, event.name, event.fields)
        if ready.sends:
            self._perform(broker.id, ready.sends)

    def _expire(self) -> None:
        self._is_expiring = False
        for broker in self.brokers.values():
            if broker.has_open_transactions:
                ready = broker.expire(self.now)
                for event in ready.events:
                    self.record(broker.id, event.name, event.fields)
                self._perform(broker.id, ready.sends)
        if len(self._heap) and any(b.has_open_transactions for b in self.brokers.values()):
            self._is_expiring = True
            self.at(self.now + EXPIRE_S, self._expire)

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
            self.moments.append(Moment(node, number, self.now, name, fields))

    def link_count(self, source: Hop, target: Hop) -> int:
        return self._link_counts.get((source, target), 0)


class SimClient(Verbs):
    """A client of the simulated overlay; programs use it like a `client.Connection`."""

    def __init__(
        self, world: World, client_id: str, home: str, incarnation: int, on_tcm: OnTcm | None
    ) -> None:
        self.world = world
        self.home = home
        self.is_alive = True
        self.heard_until = 1 << 62
        """Number of the last message to its broker that was not lost with it."""
        self.deliveries: list[tuple[Delivery, str]] = []
        self._arrived = SimFuture()
        self.hop = client_hop(client_id)
        ids = count(1)

        async def answer(tcm: Tcm, frame: Frame) -> None:
            if on_tcm is not None:
                await on_tcm(self, tcm, frame)

        def draw_id() -> int:
            return incarnation * 1_000_000 + next(ids)

        super().__init__(client_id, draw_id, self, TIMEOUT_S, answer, self._note)
        self.transactions.incarnation = incarnation
        world.record(client_id, "connected", {"home": home})

    async def arrived(self) -> None:
        await self._arrived

    async def publish(self, event: Mapping[str, Value], payload: bytes = b"") -> None:
        self._check_open()
        message = self._session.publish(event, payload)
        self._note("issued", op=message.id, kind="pub", event=message.event)
        self.send(message)

    def crash(self, lost: int = 0) -> None:
        """Gone without a word; the last `lost` messages that it sent are lost with it."""
        if not self.is_alive:
            return
        self.is_alive = False
        sent = self.world.link_count(self.hop, broker_hop(self.home))
        self.heard_until = max(1, sent - lost)
        self.world.record(self.client_id, "crashed", {})
        self._gone("its connection broke")

    def leave(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self.world.record(self.client_id, "left", {})
            self._gone("it said goodbye")

    def _gone(self, reason: str) -> None:
        self.world.depart(self, reason)
        self.lost(SessionClosed(f"{self.client_id} is gone"))

    def go_away(self, seconds: float) -> None:
        """Lose the connection and find it again."""
        self.send_input(ClientAway())
        self.world.at(self.world.now + seconds, self.send_input, ClientBack())

    def send_input(self, message: Input) -> None:
        if self.is_alive:
            self.world.transmit(self.hop, broker_hop(self.home), message)

    def take(self, message: Input) -> None:
        if isinstance(message, Publish):
            self._note("delivered", op=message.id, event=message.event)
            self.deliveries.append((message, ""))
        else:
            self.receive(message)  # type: ignore[arg-type]

    # What the verbs need

    def send(self, *messages: AnyMessage) -> None:
        for message in messages:
            self.send_input(message)

    def future(self) -> SimFuture:
        return SimFuture()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.world.spawn(work)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> NoTimer:
        return NoTimer()  # virtual time passes for nobody's patience

    def delivered(self, publication: Delivery, tx: str) -> None:
        self._note("delivered", tx=tx, op=publication.id, event=publication.event)
        self.deliveries.append((publication, tx))

    def joined(self) -> None:
        if not self._arrived.done():
            self._arrived.set_result(None)

    def _check_open(self) -> None:
        if not self.is_alive:
            raise SessionClosed(f"{self.client_id} is gone")

    def _note(self, name: str, /, **fields: Any) -> None:
        self.world.record(self.client_id, name, fields)


class NoTimer:
    def cancel(self) -> None:
        """There is nothing to cancel."""
