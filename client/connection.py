"""The asyncio shell around `client.session`: `async with connect("host:port", client_id="E") as session`.

A lost connection is taken up again, with back-off, for as long as the broker remembers the session:
nothing is lost, doubled or reordered, and requests under way simply take longer. Deliveries go to a
callback or wait in a bounded queue; a consumer that is slower than its publishers slows them down.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from msgspec import Struct

from broker import wire
from broker.address import AddressError, parse_address
from broker.delay import Delay
from broker.filters import Value
from broker.transport.channel import Channel
from broker.transport.log import JsonLog
from broker.transport.stream import Stream
from broker.transport.vitals import Vitals
from broker.wire import (
    PROTOCOL_VERSION,
    AnyMessage,
    Goodbye,
    Hello,
    Kind,
    Publish,
    Welcome,
    WireError,
)
from client.errors import (
    ClientError,
    ClientIdInUse,
    ConnectionFailed,
    RefusedByBroker,
    SessionClosed,
    SlowConsumer,
    TimedOut,
)
from client.session import Arrived, Delivery, Done, PublicationRefused, Session

DIAL_S_FIRST = 0.02
DIAL_S_MAX = 1.0
DIAL_S_PATIENCE = 2.0
"""How long a first connection is tried: an overlay may be just coming up."""
PUBLISH_TURN = 256
"""After so many publications in a row a publisher lets the loop write and read."""
PUBLISH_BYTES_MAX = 2 << 20
"""A publisher waits while more than this is on its way to the broker."""
CLOSE_S_MAX = 5.0


class Settings(Struct, frozen=True):
    """How patient a connection is, and what it emulates and records."""

    timeout_s: float = 10.0
    """Of every request."""
    reconnect_s: float = 30.0
    """How long a lost connection is sought again."""
    queue_max: int = 10_000
    """How many deliveries wait here unread before the broker keeps them."""
    delay: Delay = Delay()
    """Emulated on the way to the broker."""
    log_file: str | os.PathLike[str] | None = None
    """Gets a line of JSON for what happens to the connection, and vitals once a second."""


def connect(
    where: str, *, client_id: str, on_delivery: Callable[[Delivery], None] | None = None, **settings: Any
) -> Connection:
    """A client of the broker at `host:port`, to be used with `async with`; further settings as in `Settings`."""
    try:
        host, port = parse_address(where)
    except AddressError as error:
        raise ConnectionFailed(str(error)) from None
    return Connection(host, port, client_id, on_delivery, Settings(**settings))


class Connection:
    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        on_delivery: Callable[[Delivery], None] | None,
        settings: Settings,
    ) -> None:
        self._host, self._port = host, port
        self.client_id = client_id
        self._on_delivery = on_delivery
        self._settings = settings
        self._session = Session(client_id, partial(random.getrandbits, 64))
        self._incarnation = time.time_ns()
        self._broker_incarnation = 0
        self._deliveries: deque[Delivery] = deque()
        self._held: deque[tuple[list[AnyMessage], int]] = deque()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._ended: ClientError | None = None
        self._is_leaving = False
        self._was_up = False
        """The connection that is being kept has been welcomed."""
        self._since_turn = 0
        self._flush_is_due = False
        self.refusals: list[str] = []
        """Publications that the broker did not take, as sentences; empty unless advertisements changed."""
        self.broker = ""
        self.brokers = 0

    async def __aenter__(self) -> Connection:
        loop = self._loop = asyncio.get_running_loop()
        self._channel = Channel(f"client:{self.client_id}", self._settings.delay)
        self._joined: asyncio.Future[None] = loop.create_future()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._start_log()
        self._keeper = asyncio.create_task(self._keep_connected())
        try:
            await asyncio.wait_for(asyncio.shield(self._joined), self._settings.timeout_s)
        except TimeoutError:
            await self._stop()
            what = "the overlay did not confirm the client" if self.broker else "no broker answered"
            where = f"{self._host}:{self._port}"
            raise ConnectionFailed(f"{where}: {what} within {self._settings.timeout_s:g} s") from None
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What a program does with it

    async def advertise(self, constraints: Mapping[str, Any]) -> None:
        """Announce what will be published; returns when the edge broker has accepted it."""
        await self._request("adv", constraints)

    async def unadvertise(self, constraints: Mapping[str, Any]) -> None:
        await self._request("uadv", constraints)

    async def subscribe(self, constraints: Mapping[str, Any]) -> None:
        """Ask for matching publications; returns when the edge broker has accepted it."""
        await self._request("sub", constraints)

    async def unsubscribe(self, constraints: Mapping[str, Any]) -> None:
        """Take the filter out of what is subscribed; it may be a part of an earlier subscription."""
        await self._request("usub", constraints)

    async def publish(self, event: Mapping[str, Value], payload: bytes = b"") -> None:
        """Send an event; waits only while the broker is behind."""
        if self._ended is not None:
            raise self._ended
        message = self._session.publish(event, payload)
        self._channel.outbox.append(wire.encode(message))
        self._since_turn += 1
        if self._since_turn >= PUBLISH_TURN:
            await self._let_others_work()
        elif not self._flush_is_due:
            self._flush_soon()

    async def settled(self, timeout_s: float | None = None) -> None:
        """Returns when everything issued before it holds at every broker."""
        message = self._session.settle()
        await self._ask(message, message.number, timeout_s)

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """What arrives, until the session is closed."""
        while True:
            while self._deliveries:
                delivery = self._deliveries.popleft()
                self._take_held()
                yield delivery
            if self._ended is not None:
                if self._is_leaving:
                    return
                raise self._ended
            self._news.clear()
            await self._news.wait()

    async def next_delivery(self, timeout_s: float | None = None) -> Delivery:
        """The next one; `TimedOut` if none comes in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(aiter(self.deliveries()))
        except TimeoutError:
            raise TimedOut(f"nothing was delivered to {self.client_id} within {timeout_s:g} s") from None
        except StopAsyncIteration:
            raise SessionClosed(f"the session of {self.client_id} is closed") from None

    async def close(self) -> None:
        """Flush, say goodbye, and go: the overlay forgets this client at once."""
        self._is_leaving = True
        if self._ended is None:
            self._channel.flush()
            deadline = self._loop.time() + CLOSE_S_MAX
            link = self._channel.link
            while self._channel.is_busy and self._ended is None and self._loop.time() < deadline:
                await asyncio.sleep(0.001 if link.queue_bytes else 0.01)
            if self._channel.stream is not None:
                self._channel.stream.say(Goodbye("leaving", f"{self.client_id} is leaving"))
        await self._stop()

    # Requests

    async def _request(self, kind: Kind, constraints: Mapping[str, Any]) -> None:
        message = self._session.request(kind, constraints)
        await self._ask(message, message.number, None)

    async def _ask(self, message: wire.Message, number: int, timeout_s: float | None) -> None:
        if self._ended is not None:
            raise self._ended
        answer = self._waiting[number] = self._loop.create_future()
        self._channel.send(message)
        self._channel.flush()
        limit = self._settings.timeout_s if timeout_s is None else timeout_s
        try:
            await asyncio.wait_for(answer, limit)
        except TimeoutError:
            raise TimedOut(f"no answer to {type(message).__name__} {number} within {limit:g} s") from None
        finally:
            self._waiting.pop(number, None)

    async def _let_others_work(self) -> None:
        self._since_turn = 0
        self._channel.flush()
        await asyncio.sleep(0)
        while self._channel.link.queue_bytes > PUBLISH_BYTES_MAX:
            self._room.clear()
            await self._room.wait()
            if self._ended is not None:
                raise self._ended

    def _flush_soon(self) -> None:
        """The first publication of a turn leaves at once; those that follow it leave together."""
        self._flush_is_due = True
        self._channel.flush()
        self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        self._since_turn = 0
        self._channel.flush()

    # What arrives: the owner's side of a stream

    def stream_opened(self, stream: Stream) -> None:
        stream.say(
            Hello(
                PROTOCOL_VERSION, "client", self.client_id, "", self._incarnation,
                self._broker_incarnation, self._channel.link.processed, "all",
            )
        )  # fmt: skip

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        messages = wire.decode(body)
        if first == 0:
            for message in messages:
                self._outside_link(stream, message)
            return
        if self._channel.link.accept(first, processed, len(messages)):
            self._channel.pump()
            self._room.set()
        if self._held or len(self._deliveries) >= self._settings.queue_max:
            if messages:
                self._held.append((messages, len(body)))
        elif messages:
            self._process(messages, len(body))

    def turn_ended(self, stream: Stream) -> None:
        self._channel.flush()

    def stream_closed(self, stream: Stream, reason: str) -> None:
        if self._channel.stream is stream:
            self._channel.detach()
            self._held.clear()
            self._note("away", reason=reason)

    def _outside_link(self, stream: Stream, message: AnyMessage) -> None:
        if isinstance(message, Welcome):
            self._session.limits = message.limits
            self.broker, self._broker_incarnation = message.broker, message.incarnation
            self._was_up = True
            self._channel.attach(stream, message.received)
            self._note("up", broker=message.broker)
        elif isinstance(message, Goodbye):
            stream.close()
            self._dismissed(message)
        else:
            raise WireError(f"{type(message).__name__} outside a link")

    def _dismissed(self, goodbye: Goodbye) -> None:
        self._note("goodbye", code=goodbye.code, reason=goodbye.reason)
        if goodbye.code == "stopping":
            return  # it may come back
        kinds: dict[str, Callable[[str], ClientError]] = {
            "in-use": lambda reason: ClientIdInUse(reason, "in-use"),
            "refused": RefusedByBroker,
            "slow-consumer": SlowConsumer,
        }
        self._end(kinds.get(goodbye.code, SessionClosed)(goodbye.reason))

    def _process(self, messages: list[AnyMessage], byte_count: int) -> None:
        callback, queue = self._on_delivery, self._deliveries
        for message in messages:
            if type(message) is not Publish:
                self._other(message)
            elif callback is None:
                queue.append(message)
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

    def _other(self, message: AnyMessage) -> None:
        outcome = self._session.receive(message)
        if isinstance(outcome, Done):
            self._answered(outcome)
        elif isinstance(outcome, Arrived):
            self.brokers = outcome.brokers
            if not self._joined.done():
                self._joined.set_result(None)
        elif isinstance(outcome, PublicationRefused):
            self.refusals.append(outcome.reason)
            self._note("publication-refused", reason=outcome.reason)

    def _answered(self, outcome: Done) -> None:
        answer = self._waiting.get(outcome.number)
        if answer is None or answer.done():
            return
        if outcome.error is None:
            answer.set_result(None)
        else:
            answer.set_exception(outcome.error)

    def _take_held(self) -> None:
        """The program has read: there may be room for a frame that was held."""
        while self._held and len(self._deliveries) < self._settings.queue_max:
            self._process(*self._held.popleft())

    # Staying connected

    async def _keep_connected(self) -> None:
        lost_at, pause_s = self._loop.time(), DIAL_S_FIRST
        while self._ended is None:
            self._was_up = False
            try:
                _, stream = await self._loop.create_connection(lambda: Stream(self), self._host, self._port)
                await self._watch(stream)
                reason = stream.closed.result()
            except OSError as error:
                reason = error.strerror or str(error)
            if self._was_up:
                lost_at, pause_s = self._loop.time(), DIAL_S_FIRST
            elif self._loop.time() - lost_at > (
                self._settings.reconnect_s if self.broker else DIAL_S_PATIENCE
            ):
                self._end(ConnectionFailed(f"{self._host}:{self._port}: {reason}"))
            else:
                pause_s = min(DIAL_S_MAX, pause_s * 2)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    async def _watch(self, stream: Stream) -> None:
        """Until the stream is closed, by either side or for its silence."""
        while not stream.closed.done():
            await asyncio.wait([stream.closed], timeout=1.0)
            if self._channel.stream is stream and not self._channel.look_after(self._loop.time()):
                stream.abort()

    def _end(self, error: ClientError) -> None:
        """For good. Whoever waits is told why."""
        if self._ended is not None:
            return
        self._ended = error
        for future in (*self._waiting.values(), self._joined):
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen, even if nobody awaits it
        self._news.set()
        self._room.set()

    async def _stop(self) -> None:
        self._end(SessionClosed(f"the session of {self.client_id} is closed"))
        stream = self._channel.stream
        self._keeper.cancel()
        if stream is not None:
            stream.close()
            await asyncio.wait([stream.closed], timeout=CLOSE_S_MAX)
        await asyncio.gather(self._keeper, return_exceptions=True)
        self._channel.close()
        self._stop_log()

    # The log

    def _start_log(self) -> None:
        self._log: JsonLog | None = None
        if self._settings.log_file is None:
            return
        self._log_fd = os.open(self._settings.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._log = JsonLog(self._log_fd, self.client_id)
        self._vitals = Vitals(self._log.emit)
        self._vitals.start()

    def _stop_log(self) -> None:
        if self._log is not None:
            self._vitals.stop()
            self._log = None
            os.close(self._log_fd)

    def _note(self, event: str, **fields: Any) -> None:
        if self._log is not None:
            self._log.log(event, **fields)
