"""Bare ends of a broker chain: as little between the socket and the figure as the protocol allows.

They greet, join and keep the link's numbers like any client, but write prepared messages and count what
arrives, as the ends of the relays and of Mosquitto do; so what differs between the figures is what
stands in the middle. What a program gets through the client library is measured by `labctl.bench.ends.library`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from broker.protocol import wire
from broker.protocol.address import parse_address
from broker.protocol.delay import Delay
from broker.protocol.filters import anything, make_filter
from broker.protocol.link import WINDOW_BYTES
from broker.protocol.messages import (
    Accepted,
    Goodbye,
    Hello,
    Joined,
    Publish,
    Request,
    Settle,
    Settled,
    Welcome,
)
from broker.protocol.vocabulary import Kind
from broker.protocol.wire import PROTOCOL_VERSION, AnyMessage
from broker.transport.channel import Channel
from broker.transport.stream import Stream
from labctl.bench.ends import events
from labctl.bench.ends.meters import RateMeter, TripMeter
from labctl.workers import BenchError, Ready, serve

SILENCE_S = 60.0
ANSWER_S_MAX = 10.0
ANSWERS = frozenset({Joined, Accepted, Settled})


class BareClient:
    def __init__(self, name: str, on_messages: Callable[[list[AnyMessage]], None]) -> None:
        self._name = name
        self._incarnation = time.time_ns()
        self._broker_incarnation = 0
        self._on_messages = on_messages
        self.channel = Channel(name, Delay(), SILENCE_S)
        self._answered = asyncio.Event()
        self._asks = "to be let in"
        """What is asked at present; empty: nothing."""
        self._refusal = ""
        self.room = asyncio.Event()

    async def connect(self, where: str) -> None:
        await self._dial(where)
        await self._answer()  # joined

    async def _dial(self, where: str) -> None:
        host, port = parse_address(where)
        await asyncio.get_running_loop().create_connection(lambda: Stream(self), host, port)

    async def go_away(self) -> None:
        """Without a word, as if the connection were lost."""
        stream = self.channel.stream
        assert isinstance(stream, Stream)
        stream.abort()
        await stream.closed

    async def come_back(self, where: str) -> None:
        """The broker goes on where this end's knowledge ends."""
        await self._dial(where)

    async def request(self, kind: Kind, **constraints: Any) -> None:
        await self._ask(Request(1, kind, make_filter(constraints)))

    async def settle(self) -> None:
        await self._ask(Settle(self._name, 1))

    async def _ask(self, question: Request | Settle) -> None:
        self._asks = f"{question}"
        self.channel.send(question)
        self.channel.flush()
        await self._answer()

    async def send(self, messages: bytes, count: int) -> None:
        """A whole frame; waits while a window of them is under way."""
        link, stream = self.channel.link, self.channel.stream
        assert stream is not None
        while link.queue_bytes > WINDOW_BYTES:
            self.room.clear()
            await self.room.wait()
        frame = link.pass_on(messages, count)
        if frame is not None:
            stream.write(frame)

    def send_at_once(self, messages: bytes, count: int = 1) -> None:
        """Few enough to fit into the window."""
        frame = self.channel.link.pass_on(messages, count)
        if frame is not None and self.channel.stream is not None:
            self.channel.stream.write(frame)

    async def _answer(self) -> None:
        try:
            await asyncio.wait_for(self._answered.wait(), ANSWER_S_MAX)
        except TimeoutError:
            self._refusal = f"no answer within {ANSWER_S_MAX:g} s"
        self._answered.clear()
        if self._refusal:
            raise BenchError(f"{self._name} asked {self._asks}: {self._refusal}")
        self._asks = ""

    # The owner's side of a stream

    def stream_opened(self, stream: Stream) -> None:
        lives = (self._incarnation, self._broker_incarnation)
        stream.say(
            Hello(PROTOCOL_VERSION, "client", self._name, "", *lives, self.channel.link.processed, "all")
        )

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        messages = wire.decode(body)
        if first == 0:
            for message in messages:
                if isinstance(message, Welcome):
                    self._broker_incarnation = message.incarnation
                    self.channel.attach(stream, message.received)
                elif isinstance(message, Goodbye):
                    self._refusal = message.reason
                    self._answered.set()
            return
        if self.channel.link.accept(first, processed, len(messages)):
            self.channel.pump()
            self.room.set()
        if messages:
            if self._asks and ANSWERS.intersection(map(type, messages)):
                self._answered.set()  # the answer may stand behind something that came with it
            self._on_messages(messages)
            self.channel.done(len(messages), len(body))

    def turn_ended(self, stream: Stream) -> None:
        self.channel.flush()

    def stream_closed(self, stream: Stream, reason: str) -> None:
        self.channel.detach()


async def publisher(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    payload = b"x" * arguments["payload_bytes"]
    batches = list(events.batches(arguments["events"], payload))
    client = BareClient("publisher", lambda _messages: None)
    await client.connect(arguments["address"])
    await client.request("adv", process=anything())
    await client.settle()
    await ready({})
    for messages, count in batches:
        await client.send(messages, count)
        await asyncio.sleep(0)
    await asyncio.sleep(SILENCE_S)  # until the benchmark stops us
    return {}


async def subscriber(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    meter = RateMeter(arguments["events"])

    def arrived(messages: list[AnyMessage]) -> None:
        count = sum(type(message) is Publish for message in messages)
        if count:
            meter.add(count)

    client = BareClient("subscriber", arrived)
    await client.connect(arguments["address"])
    await client.request("sub", process="p1")
    await client.settle()
    await ready({})
    return await meter.done


async def echo(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    payload = b"x" * arguments["payload_bytes"]
    pongs = iter([events.message(n, payload, "pong") for n in range(arguments["round_trips"])])

    def arrived(messages: list[AnyMessage]) -> None:
        if type(messages[0]) is Publish:
            client.send_at_once(next(pongs))

    client = BareClient("echo", arrived)
    await client.connect(arguments["address"])
    await client.request("adv", process="pong")
    await client.request("sub", process="ping")
    await client.settle()
    await ready({})
    await asyncio.sleep(SILENCE_S)  # until the benchmark stops us
    return {}


async def ping(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    payload = b"x" * arguments["payload_bytes"]
    pings = [events.message(n, payload, "ping") for n in range(arguments["round_trips"])]

    def arrived(messages: list[AnyMessage]) -> None:
        if type(messages[0]) is Publish:
            meter.arrived()

    client = BareClient("ping", arrived)
    meter = TripMeter(len(pings), lambda number: client.send_at_once(pings[number]))
    await client.connect(arguments["address"])
    await client.request("adv", process="ping")
    await client.request("sub", process="pong")
    await client.settle()
    await ready({})
    meter.start()
    return await meter.done


if __name__ == "__main__":
    serve({"publisher": publisher, "subscriber": subscriber, "echo": echo, "ping": ping})
