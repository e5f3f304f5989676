"""A link that can be cut, frozen and taken away: a TCP proxy on loopback, run by the test's own loop.

async with Cuttable(overlay.address("b2")) as link:
    ...  # somebody dials link.address
    link.cut()
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from random import Random
from types import TracebackType

from broker.protocol.address import parse_address

CHUNK_BYTES = 64 << 10
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: what is unsent is dropped and the peer gets a reset."""


async def cut_at_random(links: Sequence[Cuttable], random: Random, pause_s_max: float) -> None:
    """For ever, in rounds: each of them is cut once in a round."""
    while True:
        for link in random.sample(links, len(links)):
            await asyncio.sleep(random.uniform(0, pause_s_max))
            link.cut(reset=random.random() < 0.5)


async def all_cut(links: Sequence[Cuttable]) -> None:
    """Each has lost a connection and has another one; what is still missing is done now."""
    async with asyncio.timeout(30):
        for link in links:
            while link.connections < 2:
                link.cut()
                await asyncio.sleep(0.02)


class Cuttable:
    """Forwards every connection to `target`. Whoever waits for room on one side is waited for on the other."""

    def __init__(self, target: str) -> None:
        self._target = parse_address(target)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._answers_flow = asyncio.Event()
        self._answers_flow.set()
        self._is_there = True
        self.address = ""
        self.connections = 0
        """How many have been accepted so far."""

    async def __aenter__(self) -> Cuttable:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self, reset: bool = True) -> None:
        """End the present connections: what is under way is lost. Without `reset` it is a quiet end."""
        for writer in self._writers:
            raw: socket.socket = writer.get_extra_info("socket")
            if reset and raw.fileno() >= 0:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            writer.transport.abort()

    def freeze(self) -> None:
        """Half-open: connections stay, and new ones are accepted, but nothing gets through."""
        self._flows.clear()

    def freeze_answers(self) -> None:
        """What is said gets through, and what is answered does not."""
        self._answers_flow.clear()

    def thaw(self) -> None:
        """What was under way goes on."""
        self._flows.set()
        self._answers_flow.set()

    def thaw_for_others(self) -> None:
        """What is frozen stays so for ever; connections from now on work."""
        self._flows = asyncio.Event()
        self._flows.set()

    def take_away(self) -> None:
        """Cut, and let nobody in until `bring_back`."""
        self._is_there = False
        self.cut()

    def bring_back(self) -> None:
        self._is_there = True

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_there:
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.create_task(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flows = self._flows
        ends = [writer]
        self._writers.add(writer)
        try:
            await flows.wait()
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            ends.append(far_writer)
            self._writers.add(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer, flows))
                group.create_task(_pump(far_reader, writer, flows, self._answers_flow))
        except* OSError:
            pass  # one end is gone; so is the other, now
        finally:
            self._writers.difference_update(ends)
            for end in ends:
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *flows: asyncio.Event) -> None:
    while data := await reader.read(CHUNK_BYTES):
        for flow in flows:
            await flow.wait()
        writer.write(data)
        await writer.drain()
    writer.close()
