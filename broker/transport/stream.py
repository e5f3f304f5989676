"""Frames over one connection: bytes to whole frames, and nothing about what is in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from broker.protocol import wire
from broker.protocol.messages import Goodbye
from broker.protocol.vocabulary import Message
from broker.protocol.wire import BODY_BYTES_MAX, HEADER_BYTES, WireError


class StreamOwner(Protocol):
    def stream_opened(self, stream: Stream) -> None: ...

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        """With the header's two numbers. May raise `WireError`: the stream then says goodbye and closes."""

    def turn_ended(self, stream: Stream) -> None:
        """All frames of one read have been handed over: time to write what they led to."""

    def stream_closed(self, stream: Stream, reason: str) -> None: ...


class Stream(asyncio.Protocol):
    """One connection, of either side. Its owner hangs what it needs to know on `context`."""

    def __init__(self, owner: StreamOwner, context: object = None) -> None:
        self._owner = owner
        self.context = context
        self.body_bytes_max = BODY_BYTES_MAX
        """An owner that does not know its peer yet gives it less."""
        self.fault = ""
        """How the peer broke the protocol; empty as long as it has not."""
        self._parts: list[bytes] = []
        self._missing_bytes = 0
        """Until the frame that has begun is whole; what is there waits in parts, and is joined once."""
        self._is_closing = False
        self.was_dismissed = False
        """By us, with a goodbye."""
        self._transport: asyncio.Transport | None = None
        self.peer_address = ""
        self.heard = 0.0
        """Loop time of the last bytes."""
        self._reason = "the connection was lost"
        self._loop = asyncio.get_running_loop()
        self._limit: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[str] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._is_closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is not a subclass
        self.heard = self._loop.time()
        name = transport.get_extra_info("peername")
        self.peer_address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
        self._owner.stream_opened(self)

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        if self._is_closing:
            return
        if self._parts:
            self._parts.append(data)
            self._missing_bytes -= len(data)
            if self._missing_bytes > 0:
                return
            data = b"".join(self._parts)
            self._parts.clear()
        owner, start, end = self._owner, 0, len(data)
        try:
            while start < end:
                begin = next_start = start + HEADER_BYTES
                if begin <= end:
                    body_bytes, first, processed = wire.read_header(data, start, self.body_bytes_max)
                    next_start = begin + body_bytes
                if next_start > end:
                    self._parts.append(data[start:])
                    self._missing_bytes = next_start - end
                    break
                owner.frame_received(self, first, processed, data[begin:next_start])
                if self._is_closing:
                    break
                start = next_start
        except WireError as error:
            self.fail(str(error))
        owner.turn_ended(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._reason = str(exc) or type(exc).__name__
        self._transport = None
        self._is_closing = True
        self._parts.clear()
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        self._owner.stream_closed(self, self._reason)
        if not self.closed.done():
            self.closed.set_result(self._reason)

    def limit(self, seconds: float, expired: Callable[[], None]) -> None:
        """Calls `expired` then, unless another limit has taken its place or the connection has ended.

        A timer of the loop alone would keep what is left of a connection until its time comes: whoever
        connects and leaves a thousand times a second would fill our memory."""
        if self._limit is not None:
            self._limit.cancel()
        self._limit = self._loop.call_later(seconds, expired)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._is_closing:
            self._transport.write(data)

    @property
    def unwritten_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport else 0

    def say(self, message: Message) -> None:
        """Outside the link's numbering: greetings and goodbyes."""
        self.write(wire.frame(wire.encode(message), 1, 0, 0))

    def fail(self, reason: str) -> None:
        """The peer broke the protocol: tell it, and take nothing more from it."""
        self.fault = wire.brief(reason)
        self.close(Goodbye("protocol", self.fault))

    def close(self, goodbye: Goodbye | None = None) -> None:
        """Flushes what was written. A peer that does not take it is cut off by `abort`."""
        if self._transport is None or self._is_closing:
            return
        if goodbye is not None:
            self._reason = goodbye.reason
            self.was_dismissed = True
            self.say(goodbye)
        self._is_closing = True
        self._parts.clear()
        if goodbye is not None and self._transport.can_write_eof():
            # Not closed here: with bytes of the peer unread that would be a reset, and could overtake the
            # goodbye. The peer closes when it has read it.
            self._transport.write_eof()
        else:
            self._transport.close()
        self.limit(CLOSE_S_MAX, self.abort)

    def answer_ping(self) -> None:
        self.write(SIGN_OF_LIFE)

    def abort(self, reason: str = "") -> None:
        if self._transport is not None:
            self._reason = reason or self._reason
            self._transport.abort()


SIGN_OF_LIFE = wire.frame(b"", 0, 0, 0)
CLOSE_S_MAX = 2.0
"""How long a closed connection may take to flush."""
