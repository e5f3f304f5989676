"""The asyncio shell around `client.core.session`: `async with connect("host:port", client_id="E") as session`.

A lost connection is taken up again by `client.carrier`: nothing is lost, doubled or reordered, and
requests under way simply take longer. Deliveries go to a callback or wait in a bounded queue; a consumer
that is slower than its publishers slows them down.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from broker.protocol import wire
from broker.protocol.address import AddressError, parse_address
from broker.protocol.events import CONNECTED, CRASHED, DELIVERED, ISSUED, LEFT
from broker.protocol.filters import Value
from broker.protocol.messages import Publish, Welcome
from broker.protocol.wire import AnyMessage
from client.carrier import LEAVE_S_MAX, Carrier
from client.core.errors import ClientError, ConnectionFailed, SessionClosed, TimedOut
from client.core.session import Delivery
from client.core.transactions import Handler
from client.core.verbs import Verbs
from client.history import ClientHistory
from client.settings import Settings

LONE_S = 100e-6
"""A publication that follows the one before it by more is not held back to go with others."""
PUBLISH_TURN_BYTES = 24 << 10
"""After so much in a row a publisher lets the loop write and read."""
PUBLISH_BYTES_MAX = 2 << 20
"""A publisher waits while more than this is on its way to the broker."""


def connect(
    where: str,
    *,
    client_id: str,
    on_delivery: Callable[[Delivery], None] | None = None,
    on_tcm: Handler | None = None,
    **settings: Any,
) -> Connection:
    """A client of the broker at `host:port`, to be used with `async with`; further settings as in `Settings`.

    `on_tcm(tcm, frame)` is called for each control message of a D-TX transaction; what it does with
    `frame` (subscribe, publish, ...) becomes part of that transaction.
    """
    try:
        host, port = parse_address(where)
    except AddressError as error:
        raise ConnectionFailed(str(error)) from None
    return Connection(host, port, client_id, on_delivery, on_tcm, Settings(**settings))


class Connection(Verbs):
    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        on_delivery: Callable[[Delivery], None] | None,
        on_tcm: Handler | None,
        settings: Settings,
    ) -> None:
        note = None if settings.history is None else self._note
        super().__init__(client_id, partial(random.getrandbits, 64), self, settings.timeout_s, on_tcm, note)
        self._host, self._tcp_port = host, port
        self._on_delivery = on_delivery
        self._settings = settings
        self._deliveries: deque[Delivery] = deque()
        self._payload_bytes = 0
        """Of the deliveries that wait."""
        self._held: deque[tuple[list[AnyMessage], int]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: ClientError | None = SessionClosed("not connected yet: use `async with connect(...)`")
        self._was_opened = False
        self._is_leaving = False
        self._turn_bytes = 0
        self._flush_is_due = False
        self._flushed_at = 0.0
        self._history: ClientHistory | None = None
        self.broker = ""

    async def __aenter__(self) -> Connection:
        if self._was_opened:
            raise SessionClosed(f"the session of {self.client_id} has been used; connect again")
        self._was_opened = True
        loop = self._loop = asyncio.get_running_loop()
        self._joined: asyncio.Future[None] = loop.create_future()
        self._news = asyncio.Event()
        self._carrier = Carrier(self, self.client_id, self._host, self._tcp_port, self._settings)
        self.transactions.incarnation = self._carrier.incarnation
        self._channel = self._carrier.channel
        self._ended = None
        try:
            self._start_history()
            await asyncio.wait_for(asyncio.shield(self._joined), self._settings.timeout_s)
        except TimeoutError:
            what = "the overlay did not confirm the client" if self.broker else "no broker answered"
            limit = f"within {self._settings.timeout_s:g} s"
            error = ConnectionFailed(f"{self._host}:{self._tcp_port}: {what} {limit}")
            self.ended(error)
            await self._stop()
            raise error from None
        except BaseException:
            self.ended(self._closed())
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except TimedOut:
            # What the program failed of matters more than what it could not send any more.
            if error is None:
                raise

    # What a program does with it

    async def publish(self, event: Mapping[str, Value], payload: bytes = b"") -> None:
        """Send an event; waits only while the broker is behind."""
        if not self.publish_nowait(event, payload):
            await self._let_others_work()

    def publish_nowait(self, event: Mapping[str, Value], payload: bytes = b"") -> bool:
        """The same for a callback, which cannot wait. False: it is sent, but it is time to let the broker catch up."""
        if self._ended is not None:
            raise self._ended
        message = self._session.publish(event, payload)
        if self._history is not None and self._history.is_full:
            self._note(ISSUED, op=message.id, kind="pub", event=message.event)
        encoded = wire.encode(message)
        self._channel.put(encoded)
        self._turn_bytes += len(encoded)
        if not self._flush_is_due:
            self._flush_soon()
        return self._turn_bytes < PUBLISH_TURN_BYTES

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """What arrives, until the session is closed."""
        while await self._delivery_waits():
            while self._deliveries:
                yield self._take()

    async def next_delivery(self, timeout_s: float | None = None) -> Delivery:
        """The next one; `TimedOut` if none comes in time."""
        try:
            async with asyncio.timeout(timeout_s):
                waits = await self._delivery_waits()
        except TimeoutError:
            raise TimedOut(f"nothing was delivered to {self.client_id} within {timeout_s:g} s") from None
        if not waits:
            raise self._closed()
        return self._take()

    async def close(self) -> None:
        """Flush, say goodbye, and go: the overlay forgets this client at once.

        `TimedOut` if the broker has not taken everything: whether it will is not known.
        """
        if self._is_leaving:
            return
        self._is_leaving = True
        was_alive = self._ended is None
        self.ended(self._closed())
        if not was_alive:
            await self._stop()
            return
        confirmed = await self._carrier.leave()
        self._stop_history()
        if not confirmed:
            raise TimedOut(
                f"{self.client_id} has left, and the broker had not taken all it had sent within {LEAVE_S_MAX:g} s"
            )

    def _closed(self) -> SessionClosed:
        return SessionClosed(f"the session of {self.client_id} is closed")

    # What the verbs need

    def send(self, *messages: AnyMessage) -> None:
        channel, history = self._channel, self._history
        if len(messages) == 1 and history is None:
            channel.send_at_once(messages[0])
            return
        for message in messages:
            channel.send(message)
            if history is not None:
                history.sent(self.broker, channel.newest, message)
        channel.flush()

    def future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, callback)

    def delivered(self, publication: Delivery, tx: str) -> None:
        if self._history is not None:
            self._note(DELIVERED, tx=tx, op=publication.id, event=publication.event)
        if self._on_delivery is None:
            self._keep(publication)
            self._news.set()
        else:
            self._call(self._on_delivery, publication)

    def joined(self) -> None:
        if not self._joined.done():
            self._joined.set_result(None)
            self.note(CONNECTED, home=self.broker)

    def refused(self, reason: str) -> None:
        super().refused(reason)
        self._carrier.note("publication-refused", reason=reason)

    def _check_open(self) -> None:
        if self._ended is not None:
            raise self._ended

    # Publishing

    async def _let_others_work(self) -> None:
        self._turn_bytes = 0
        self._channel.flush()
        await asyncio.sleep(0)
        while self._channel.queue_bytes > PUBLISH_BYTES_MAX:
            if self._ended is not None:
                raise self._ended
            self._carrier.room.clear()
            await self._carrier.room.wait()

    def _flush_soon(self) -> None:
        """A lone publication leaves at once; those that follow one another closely leave together."""
        now = time.monotonic()
        if now - self._flushed_at > LONE_S:
            self._flushed_at = now
            self._flush()
        else:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        self._channel.flush()
        # A publisher that does a little in every turn must wait as well.
        is_behind = self._channel.queue_bytes > PUBLISH_BYTES_MAX
        self._turn_bytes = PUBLISH_TURN_BYTES if is_behind else 0

    # What the carrier tells

    def welcomed(self, welcome: Welcome) -> None:
        self._session.limits = welcome.limits
        self.broker = welcome.broker

    def received(self, messages: list[AnyMessage], byte_count: int) -> None:
        if self._held or (self._deliveries and self._is_full):
            self._held.append((messages, byte_count))
        else:
            self._process(messages, byte_count)

    def interrupted(self) -> None:
        self._held.clear()

    def ended(self, error: ClientError) -> None:
        """For good. Whoever waits is told why."""
        if self._ended is not None:
            return
        self._ended = error
        self.note(LEFT if self._is_leaving else CRASHED, reason=str(error))
        if not self._joined.done():
            self._joined.set_exception(error)
            self._joined.exception()  # seen, even if nobody awaits it
        self.lost(error)
        for task in self._tasks:
            task.cancel()
        self._news.set()
        self._carrier.room.set()

    def _process(self, messages: list[AnyMessage], byte_count: int) -> None:
        callback, queue = self._on_delivery, self._deliveries
        number = self._channel.link.processed
        history = self._history if self._history is not None and self._history.is_full else None
        for message in messages:
            if history is not None:
                number += 1
                history.arrived(self.broker, number, message)
            if type(message) is not Publish:
                self.receive(message)
            elif callback is None:
                self._keep(message)
            else:
                self._call(callback, message)
        if queue:
            self._news.set()
        self._channel.done(len(messages), byte_count)

    def _call(self, callback: Callable[[Delivery], None], message: Delivery) -> None:
        try:
            callback(message)
        except Exception as error:  # noqa: BLE001 the program's own fault must not cut its connection
            self._loop.call_exception_handler(
                {"message": f"on_delivery of {self.client_id} raised", "exception": error}
            )

    # The history

    def _start_history(self) -> None:
        if self._settings.history is not None:
            self._history = ClientHistory(self._settings, self.client_id, self._carrier.incarnation)

    def _stop_history(self) -> None:
        if self._history is not None:
            self._history.close()

    async def _stop(self) -> None:
        await self._carrier.stop()
        self._stop_history()

    def _note(self, name: str, /, **fields: Any) -> None:
        if self._history is not None:
            self._history.note(name, **fields)

    # Deliveries that wait for the program

    @property
    def _is_full(self) -> bool:
        settings = self._settings
        return len(self._deliveries) >= settings.queue_max or self._payload_bytes > settings.queue_bytes_max

    async def _delivery_waits(self) -> bool:
        """True as soon as there is one; False when there will be none, because the program has closed."""
        while not self._deliveries:
            if self._ended is not None:
                if self._is_leaving:
                    return False
                raise self._ended
            self._news.clear()
            await self._news.wait()
        return True

    def _keep(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._payload_bytes += len(delivery.payload)

    def _take(self) -> Delivery:
        delivery = self._deliveries.popleft()
        self._payload_bytes -= len(delivery.payload)
        while self._held and not self._is_full:
            self._process(*self._held.popleft())
        return delivery
