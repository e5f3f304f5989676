"""Dialling a peer: one connection from its beginning to its end, and the pauses between two of them."""

from __future__ import annotations

import asyncio
import os
import random

from broker.gate.channel import Channel
from broker.transport.stream import Stream, StreamOwner

HANDSHAKE_S_MAX = 5.0
"""For the connection, and again for the greeting: a network that swallows everything is not waited for,
the next connection may find a better one."""


async def carry(channel: Channel, owner: StreamOwner, host: str, port: int) -> str:
    """Connect, and return when that connection has ended, with the reason; the channel is its context.

    The owner greets when the stream opens, and attaches it to the channel when it is welcomed.
    """
    loop = asyncio.get_running_loop()
    limit_s = min(HANDSHAKE_S_MAX, channel.silence_s)
    try:
        async with asyncio.timeout(limit_s):
            _, stream = await loop.create_connection(lambda: Stream(owner, channel), host, port)
    except TimeoutError:
        return f"no connection within {limit_s:g} s"
    except OSError as error:
        return why(error)

    def check_welcome() -> None:
        if channel.stream is not stream:
            stream.abort(f"no greeting within {limit_s:g} s")

    stream.limit(limit_s, check_welcome)
    try:
        return await asyncio.shield(stream.closed)
    finally:
        stream.abort()


def why(error: OSError) -> str:
    """In the system's words: asyncio's own begin with the call that failed."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)


class Backoff:
    """Pauses that double while dialling leads to nothing.

    A connection that moved no message counts as nothing, unless it lasted: a peer that is welcomed and
    dismissed in turn would otherwise be dialled as fast as it can refuse.
    """

    def __init__(self, channel: Channel, first_s: float, max_s: float) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._first_s = self._pause_s = first_s
        self._max_s = max_s
        self._resumed_at = self._loop.time()
        self._moved = channel.moved

    async def pause(self) -> None:
        """After a connection, or the attempt at one, has ended."""
        lasted = self._loop.time() - self._resumed_at > 2 * self._max_s
        if lasted or self._channel.moved != self._moved:
            self._pause_s = self._first_s
        # By chance shorter, so that those who lost a peer together do not come back in step.
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(self._max_s, 2 * self._pause_s)
        self._resumed_at, self._moved = self._loop.time(), self._channel.moved
