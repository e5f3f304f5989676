"""Asking a broker about itself."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from broker.protocol import wire
from broker.protocol.address import AddressError, parse_address
from broker.protocol.messages import Goodbye, Hello, StatusAnswer, StatusRequest, Welcome
from broker.protocol.wire import PROTOCOL_VERSION, WireError
from broker.transport.dial import why
from broker.transport.stream import Stream
from client.core.errors import ConnectionFailed


async def fetch_status(where: str, dump: bool = False, timeout_s: float = 5.0) -> dict[str, Any]:
    """A broker's links, queues and open work; with `dump` its tables too."""
    try:
        host, port = parse_address(where)
        async with asyncio.timeout(timeout_s):
            monitor = _Monitor(dump)
            _, stream = await asyncio.get_running_loop().create_connection(
                lambda: Stream(monitor), host, port
            )
            try:
                return await monitor.document
            finally:
                stream.abort()
    except TimeoutError:
        raise ConnectionFailed(f"{where} does not answer within {timeout_s:g} s") from None
    except AddressError as error:
        raise ConnectionFailed(str(error)) from None
    except OSError as error:
        raise ConnectionFailed(f"{where}: {why(error)}") from None


class _Monitor:
    def __init__(self, dump: bool) -> None:
        self._dump = dump
        self._parts: list[bytes] = []
        self.document: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def stream_opened(self, stream: Stream) -> None:
        stream.say(Hello(PROTOCOL_VERSION, "monitor", "monitor", "", 0, 0, 0, "all"))

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        for message in wire.decode(body):
            if isinstance(message, Welcome):
                stream.say(StatusRequest(self._dump))
            elif isinstance(message, StatusAnswer):
                self._parts.append(message.part)
                if not message.more and not self.document.done():
                    self.document.set_result(msgspec.json.decode(b"".join(self._parts)))
            elif isinstance(message, Goodbye):
                self._fail(message.reason)
            else:
                raise WireError(f"{type(message).__name__} to a monitor")

    def turn_ended(self, stream: Stream) -> None:
        pass

    def stream_closed(self, stream: Stream, reason: str) -> None:
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if not self.document.done():
            self.document.set_exception(ConnectionFailed(reason))
