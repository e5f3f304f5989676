"""Frames over one connection: bytes to whole frames, and nothing about what is in them."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from broker import wire
from broker.wire import HEADER_BYTES, Goodbye, Message, WireError


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
        self._tail = b""
        self._transport: asyncio.Transport | None = None
        self.peer_address = ""
        self.heard = 0.0
        """Loop time of the last bytes."""
        self._reason = "the connection was lost"
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[str] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own is not a subclass
        self.heard = self._loop.time()
        name = transport.get_extra_info("peername")
        self.peer_address = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
        self._owner.stream_opened(self)

    def data_received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        if self._tail:
            data = self._tail + data
        try:
            self._tail = self._hand_over(data)
        except WireError as error:
            self.close(Goodbye("protocol", str(error)))
        self._owner.turn_ended(self)

    def _hand_over(self, data: bytes) -> bytes:
        """Every whole frame goes to the owner; what is left over is returned."""
        start, end = 0, len(data)
        while end - start >= HEADER_BYTES:
            body_bytes, first, processed = wire.read_header(data, start)
            body_start = start + HEADER_BYTES
            start_of_next = body_start + body_bytes
            if start_of_next > end:
                break
            self._owner.frame_received(self, first, processed, data[body_start:start_of_next])
            if not self.is_open:
                return b""
            start = start_of_next
        return data[start:]

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._reason = str(exc) or type(exc).__name__
        self._transport = None
        self._owner.stream_closed(self, self._reason)
        if not self.closed.done():
            self.closed.set_result(self._reason)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    @property
    def unwritten_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport else 0

    def say(self, message: Message) -> None:
        """Outside the link's numbering: greetings and goodbyes."""
        self.write(wire.frame(wire.encode(message), 1, 0, 0))

    def close(self, goodbye: Goodbye | None = None) -> None:
        """Flushes what was written. A peer that does not take it is cut off by `abort`."""
        if self._transport is None:
            return
        if goodbye is not None:
            self._reason = goodbye.reason
            self.say(goodbye)
        self._transport.close()
        self._loop.call_later(CLOSE_S_MAX, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


CLOSE_S_MAX = 2.0
"""How long a closed connection may take to flush."""
