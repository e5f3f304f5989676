"""What carries a session: the channel to its broker, and whatever it takes to keep it connected.

A lost connection is taken up again, with back-off, for as long as the broker remembers the session. What
the messages mean is the business of `client.connection`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from broker.node.log import JsonLog
from broker.node.vitals import Vitals
from broker.protocol import wire
from broker.protocol.messages import Goodbye, Hello, Ping, Welcome
from broker.protocol.wire import PROTOCOL_VERSION, AnyMessage, WireError
from broker.transport.channel import Channel, look_s
from broker.transport.dial import Backoff, carry
from broker.transport.stream import Stream
from client.core.errors import (
    ClientError,
    ClientIdInUse,
    ConnectionFailed,
    RefusedByBroker,
    SessionClosed,
    SlowConsumer,
)
from client.settings import Settings

DIAL_S_FIRST = 0.02
DIAL_S_MAX = 1.0
LEAVE_S_MAX = 5.0
"""How long a client that leaves waits for the broker to take what it has sent."""


class User(Protocol):
    def welcomed(self, welcome: Welcome) -> None: ...

    def received(self, messages: list[AnyMessage], byte_count: int) -> None:
        """To be confirmed with `Channel.done`, now or later."""

    def interrupted(self) -> None:
        """What was received and not confirmed will come again."""

    def ended(self, error: ClientError) -> None:
        """For good: the broker does not want us, or cannot be found again."""


class Carrier:
    def __init__(self, user: User, client_id: str, host: str, port: int, settings: Settings) -> None:
        self._user = user
        self._client_id = client_id
        self._host, self._port = host, port
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._start_log()
        self.channel = Channel(f"client:{client_id}", settings.delay, settings.silence_s)
        self.room = asyncio.Event()
        """Set whenever the broker has processed something of ours, and when it never will."""
        self.broker = ""
        self.incarnation = time.time_ns()
        self._broker_incarnation = 0
        self._was_up = False
        """The connection that is being kept has been welcomed."""
        self._is_over = False
        self._tasks = (asyncio.create_task(self._keep_connected()), asyncio.create_task(self._look_after()))

    async def leave(self) -> bool:
        """Flush, say goodbye, stop; whether the broker has confirmed everything."""
        channel = self.channel
        channel.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S_MAX):
                while channel.is_busy and not self._is_over:
                    self.room.clear()
                    await self.room.wait()
        confirmed = not channel.is_busy
        if channel.stream is not None:
            channel.stream.say(Goodbye("leaving", f"{self._client_id} is leaving"))
        await self.stop()
        return confirmed

    async def stop(self) -> None:
        self._is_over = True
        stream = self.channel.stream
        if stream is not None:
            stream.close()
            await asyncio.wait([stream.closed])
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.channel.close()
        self._stop_log()

    # The owner's side of a stream

    def stream_opened(self, stream: Stream) -> None:
        stream.say(
            Hello(
                PROTOCOL_VERSION, "client", self._client_id, "", self.incarnation,
                self._broker_incarnation, self.channel.link.processed, "all",
            )
        )  # fmt: skip

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        messages = wire.decode(body)
        if first == 0:
            for message in messages:
                self._outside_link(stream, message)
            return
        channel = self.channel
        if channel.stream is not stream:
            raise WireError("a message before the greeting")
        if channel.link.accept(first, processed, len(messages)):
            channel.pump()
            self.room.set()
        if messages:
            self._user.received(messages, len(body))

    def turn_ended(self, stream: Stream) -> None:
        self.channel.flush()

    def stream_closed(self, stream: Stream, reason: str) -> None:
        if self.channel.stream is stream:
            self.channel.detach()
            self._user.interrupted()
            self.note("away", reason=reason)

    def _outside_link(self, stream: Stream, message: AnyMessage) -> None:
        if isinstance(message, Welcome) and self.channel.stream is None:
            self.channel.attach(stream, message.received)
            self.broker, self._broker_incarnation = message.broker, message.incarnation
            self._was_up = True
            self.room.set()
            self._user.welcomed(message)
            self.note("up", broker=message.broker)
        elif isinstance(message, Ping):
            stream.answer_ping()
        elif isinstance(message, Goodbye):
            stream.close()
            self._dismissed(message)
        else:
            raise WireError(f"{type(message).__name__} outside a link")

    def _dismissed(self, goodbye: Goodbye) -> None:
        self.note("goodbye", code=goodbye.code, reason=goodbye.reason)
        if goodbye.code == "stopping":
            return  # it may come back
        kinds: dict[str, Callable[[str], ClientError]] = {
            "in-use": lambda reason: ClientIdInUse(reason, "in-use"),
            "refused": RefusedByBroker,
            "slow-consumer": SlowConsumer,
        }
        self._end(kinds.get(goodbye.code, SessionClosed)(goodbye.reason))

    # Staying connected

    async def _keep_connected(self) -> None:
        lost_at = self._loop.time()
        backoff = Backoff(self.channel, DIAL_S_FIRST, DIAL_S_MAX)
        while not self._is_over:
            self._was_up = False
            reason = await carry(self.channel, self, self._host, self._port)
            patience_s = self._settings.reconnect_s if self.broker else self._settings.connect_s
            if self._was_up:
                lost_at = self._loop.time()
            elif self._loop.time() - lost_at > patience_s:
                self._end(ConnectionFailed(f"{self._host}:{self._port}: {reason}"))
                return
            await backoff.pause()

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(look_s(self._settings.silence_s))
            self.channel.look_after(self._loop.time())

    def _end(self, error: ClientError) -> None:
        if not self._is_over:
            self._is_over = True
            self.room.set()
            self._user.ended(error)

    # The log

    def _start_log(self) -> None:
        self._log: JsonLog | None = None
        if self._settings.log_file is None:
            return
        self._log_fd = os.open(self._settings.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._log = JsonLog(self._log_fd, self._client_id, self._settings.log_bytes_max)
        self._vitals = Vitals(self._log.emit)
        self._vitals.start()

    def _stop_log(self) -> None:
        if self._log is not None:
            self._vitals.stop()
            self._log = None
            os.close(self._log_fd)

    def note(self, event: str, **fields: Any) -> None:
        if self._log is not None:
            self._log.log(event, **fields)
