"""A client of a simulated overlay: the library's verbs over virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any

from broker.core import Input
from broker.protocol import events
from broker.protocol.filters import Value
from broker.protocol.hops import broker_hop, client_hop
from broker.protocol.messages import Publish
from broker.protocol.wire import AnyMessage
from broker.routing.joining import ClientAway, ClientBack
from client.core.errors import SessionClosed
from client.core.session import Delivery
from client.core.transactions import Frame, Tcm
from client.core.verbs import Verbs
from labctl.simulate.connections import SimTimer
from labctl.simulate.tasks import SimFuture

if TYPE_CHECKING:
    from labctl.simulate.world import World

OnTcm = Callable[["SimClient", Tcm, Frame], Coroutine[Any, Any, None]]


class SimClient(Verbs):
    """A client of the simulated overlay; programs use it like a `client.Connection`."""

    def __init__(
        self, world: World, client_id: str, home: str, incarnation: int, on_tcm: OnTcm | None
    ) -> None:
        self.world = world
        self.home = home
        self.home_hop = broker_hop(home)
        self.is_alive = True
        self.has_crashed = False
        self.heard_until = 1 << 62
        """Number of the last message to its broker that was not lost with it."""
        self.deaf_until = world.link_count(self.home_hop, client_hop(client_id))
        """Number of the last message on the link from its broker that is for an earlier life with its id."""
        self.deliveries: list[tuple[Delivery, str]] = []
        self._arrived = SimFuture()
        self.hop = client_hop(client_id)
        ids = count(1)

        async def answer(tcm: Tcm, frame: Frame) -> None:
            if on_tcm is not None:
                await on_tcm(self, tcm, frame)

        def draw_id() -> int:
            return incarnation * 1_000_000 + next(ids)

        super().__init__(client_id, draw_id, self, inf, answer, self._note)
        self.transactions.incarnation = incarnation

    async def arrived(self) -> None:
        await self._arrived

    def wait_at_most(self, seconds: float) -> None:
        """From now on, for each answer."""
        self._timeout_s = self.transactions.timeout_s = seconds

    async def publish(self, event: Mapping[str, Value], payload: bytes = b"") -> None:
        self._check_open()
        message = self._session.publish(event, payload)
        self._note(events.ISSUED, op=message.id, kind="pub", event=message.event)
        self.send(message)

    def crash(self, lost: int = 0) -> None:
        """Gone without a word; the last `lost` messages that it sent are lost with it."""
        if not self.is_alive:
            return
        self.is_alive, self.has_crashed = False, True
        sent = self.world.link_count(self.hop, self.home_hop)
        self.heard_until = max(1, sent - lost)
        self.world.record(self.client_id, events.CRASHED, {})
        self._gone("its connection broke")

    def leave(self) -> None:
        if self.is_alive:
            self.is_alive = False
            self.world.record(self.client_id, events.LEFT, {})
            self._gone("it said goodbye")

    def dismissed(self, reason: str) -> None:
        """Its broker has ended its session, and has told it."""
        if self.is_alive:
            self.is_alive = False
            self.world.record(self.client_id, events.CRASHED, {"reason": reason})
            self.lost(SessionClosed(reason))

    def _gone(self, reason: str) -> None:
        self.world.depart(self, reason)
        self.lost(SessionClosed(f"{self.client_id} is gone"))

    def go_away(self, seconds: float) -> None:
        """Lose the connection and find it again."""
        self.send_input(ClientAway())
        self.world.at(self.world.now + seconds, self.send_input, ClientBack())

    def send_input(self, message: Input) -> None:
        if self.is_alive:
            self.world.transmit(self.hop, self.home_hop, message)

    def take(self, message: Input) -> None:
        if isinstance(message, Publish):
            self._note(events.DELIVERED, op=message.id, event=message.event)
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

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> SimTimer:
        timer = SimTimer(callback)
        if delay_s < inf:
            self.world.at(self.world.now + delay_s, timer.fire)
        return timer

    def delivered(self, publication: Delivery, tx: str) -> None:
        self._note(events.DELIVERED, tx=tx, op=publication.id, event=publication.event)
        self.deliveries.append((publication, tx))

    def joined(self) -> None:
        if not self._arrived.done():
            self.world.clients[self.client_id] = self
            self.world.record(self.client_id, events.CONNECTED, {"home": self.home})
            self._arrived.set_result(None)

    def turn_away(self) -> None:
        """Somebody else has its id."""
        self.is_alive = False
        self.lost(SessionClosed(f"{self.client_id} is in use"))
        self._arrived.set_exception(SessionClosed(f"{self.client_id} is in use"))

    def _check_open(self) -> None:
        if not self.is_alive:
            raise SessionClosed(f"{self.client_id} is gone")

    def _note(self, name: str, /, **fields: Any) -> None:
        self.world.record(self.client_id, name, fields)
