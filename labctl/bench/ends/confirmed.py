"""A publisher to a durable broker that counts what is acknowledged, and the subscriber for which it is stored.

Acknowledged is what the link tells as processed; a durable broker tells that of what is on its disk. It tells it
within 50 ms, or with whatever else it has to say: so a question (`Settle`) stands behind what is written together,
and the answer to it, which leaves at once, tells it.

The subscriber is away meanwhile. It comes back in the end and is given everything, once and in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from broker.protocol import wire
from broker.protocol.filters import anything
from broker.protocol.messages import Goodbye, Publish, Refused, Settle, Settled
from broker.protocol.wire import AnyMessage
from labctl.bench.ends import events
from labctl.bench.ends.bare import BareClient
from labctl.bench.ends.meters import AcknowledgementMeter
from labctl.workers import BenchError, Ready, serve

RETURN_S_MAX = 30.0


class Reader:
    """Away while there is something for it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = BareClient("reader", self._arrived)
        self._count = 0
        self._came = asyncio.Event()
        self._fault = ""

    async def subscribe_and_go(self) -> None:
        await self._client.connect(self._address)
        await self._client.request("sub", process="p1")
        await self._client.settle()
        await self._client.go_away()

    def _arrived(self, messages: list[AnyMessage]) -> None:
        for message in messages:
            if isinstance(message, Publish):
                if message.event["n"] != self._count:
                    self._fault = self._fault or f"event {self._count} was due, {message.event['n']} came"
                self._count += 1
        self._came.set()

    async def come_back(self, expected: int) -> None:
        """Raises `BenchError` unless so many were stored, in order."""
        await self._client.come_back(self._address)
        try:
            async with asyncio.timeout(RETURN_S_MAX):
                while self._count < expected and not self._fault:
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            self._fault = f"{self._count} came within {RETURN_S_MAX:g} s"
        if self._fault:
            raise BenchError(f"of {expected} acknowledged events not all were stored: {self._fault}")
        assert self._client.channel.stream is not None
        self._client.channel.stream.say(Goodbye("leaving", "the reader has read"))


class Publisher:
    def __init__(self, in_flight: int, seconds: float, payload: bytes) -> None:
        self.client = BareClient("publisher", self._arrived)
        self.meter = AcknowledgementMeter(in_flight, seconds, self._publish)
        self._payload = payload
        self._published = 0
        self._questions: deque[tuple[int, int]] = deque()
        """Behind which message of the link each stands, and how many publications it is about."""

    def _publish(self, count: int) -> None:
        first = self._published
        self._published += count
        messages = [events.message(n, self._payload) for n in range(first, self._published)]
        link = self.client.channel.link
        self._questions.append((link.taken + count, count))
        question = wire.encode(Settle("publisher", self._published))
        self.client.send_at_once(b"".join((*messages, question)), count + 1)

    def _arrived(self, messages: list[AnyMessage]) -> None:
        acknowledged = 0
        for message in messages:
            if isinstance(message, Refused):
                self._fail(f"an event was refused: {message.reason}")
            elif isinstance(message, Settled) and self._questions:
                last, count = self._questions.popleft()
                if self.client.channel.link.sent_processed < last:
                    self._fail("an answer came before what stands before its question was processed")
                acknowledged += count
        if acknowledged and not self.meter.done.done():
            self.meter.acknowledged(acknowledged)

    def _fail(self, reason: str) -> None:
        if not self.meter.done.done():
            self.meter.done.set_exception(BenchError(reason))


async def publisher(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    address = arguments["address"]
    reader = Reader(address)
    await reader.subscribe_and_go()
    payload = b"x" * arguments["payload_bytes"]
    publishing = Publisher(arguments["in_flight"], arguments["seconds"], payload)
    await publishing.client.connect(address)
    await publishing.client.request("adv", process=anything())
    await publishing.client.settle()
    await ready({})
    publishing.meter.start()
    figures = await publishing.meter.done
    await ready(figures)
    await reader.come_back(int(figures["acknowledged"]))
    return {}


if __name__ == "__main__":
    serve({"publisher": publisher})
