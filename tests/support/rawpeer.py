"""A peer that says whatever a test wants, byte by byte, and hears everything that a broker answers."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Literal

from broker.protocol import wire
from broker.protocol.messages import Goodbye, Hello, Joined, StatusAnswer, Welcome
from broker.protocol.vocabulary import Message
from broker.protocol.wire import HEADER, HEADER_BYTES, AnyMessage

ANSWER_S_MAX = 10.0
_lives = itertools.count(time.time_ns())


def hello(
    name: str = "raw",
    role: Literal["client", "broker", "monitor"] = "client",
    *,
    version: int = wire.PROTOCOL_VERSION,
    peer: str = "",
    incarnation: int | None = None,
    peer_incarnation: int = 0,
    received: int = 0,
) -> Hello:
    """A good greeting, but for what is given; every one is a new life."""
    life = next(_lives) if incarnation is None else incarnation
    return Hello(version, role, name, peer, life, peer_incarnation, received, "all")


def frame(*messages: Message, first: int = 0, processed: int = 0) -> bytes:
    return wire.frame(b"".join(map(wire.encode, messages)), len(messages), first, processed)


def frame_of(body: bytes, first: int = 0, processed: int = 0) -> bytes:
    """A frame around any bytes."""
    return HEADER.pack(len(body), first, processed) + body


class RawPeer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seed: float) -> None:
        self.random = Random(seed)
        self._reader = reader
        self._writer = writer
        self.heard = 0
        """Messages of the link that have come."""

    async def send(self, data: bytes) -> None:
        """What the broker no longer takes is not our concern: its answer is."""
        self._writer.write(data)
        with suppress(ConnectionError):
            await self._writer.drain()

    async def say(self, *messages: Message, first: int = 0, processed: int = 0) -> None:
        await self.send(frame(*messages, first=first, processed=processed))

    async def frame(self) -> list[AnyMessage] | None:
        """The messages of the next frame; None when the broker has closed."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                size, first, _ = HEADER.unpack(await self._reader.readexactly(HEADER_BYTES))
                messages = wire.decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self.heard += len(messages) if first else 0
        return messages

    async def answer(self) -> AnyMessage | None:
        """The next message outside a link; what comes on the link is passed over."""
        while (messages := await self.frame()) is not None:
            for message in messages:
                if isinstance(message, (Welcome, Goodbye, StatusAnswer)):
                    return message
        return None

    async def goodbye(self) -> Goodbye | None:
        """The reason that the broker gives before it closes; None if it closes without."""
        found = None
        while (message := await self.answer()) is not None:
            found = message if isinstance(message, Goodbye) else found
        return found

    async def greet(self, greeting: Hello) -> Welcome:
        await self.say(greeting)
        welcome = await self.answer()
        assert isinstance(welcome, Welcome), welcome
        return welcome

    async def join(self, name: str) -> int:
        """Greet as a client, and wait until the overlay has let it in; its incarnation."""
        greeting = hello(name)
        await self.greet(greeting)
        while not any(isinstance(message, Joined) for message in await self.frame() or ()):
            pass
        return greeting.incarnation

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        connection: socket.socket = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def hang_up(self) -> None:
        self._writer.close()


@asynccontextmanager
async def raw_peer(address: str, seed: float = 0) -> AsyncIterator[RawPeer]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield RawPeer(reader, writer, seed)
    finally:
        writer.transport.abort()
