"""The bare limit: relays that only decode the frames and forward each message's bytes, and their ends.

What a chain of these passes is what this machine could pass through a chain of brokers that decide for
nothing. Framing, decoding, joining and writing are those of the broker; matching, numbering, flow
control and sessions are not there. Run as a worker (`labctl.workers`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from broker.protocol import wire
from broker.protocol.messages import Goodbye, Publish
from broker.transport.stream import Stream
from labctl.bench.ends import events
from labctl.bench.ends.meters import RateMeter, TripMeter
from labctl.workers import Ready, serve


class Paced(Stream):
    """A stream whose peer's fullness stops the other side's reading: TCP's own back-pressure."""

    def pause_writing(self) -> None:
        self._owner.full(self, True)  # type: ignore[attr-defined]

    def resume_writing(self) -> None:
        self._owner.full(self, False)  # type: ignore[attr-defined]

    def reading(self, on: bool) -> None:
        if self._transport is not None:
            (self._transport.resume_reading if on else self._transport.pause_reading)()


class Relay:
    """Two streams; what comes from one goes to the other."""

    def __init__(self) -> None:
        self.other: dict[Stream, Paced] = {}
        self.arrived: asyncio.Queue[Paced] = asyncio.Queue()
        self._out: list[bytes | Raw] = []
        self._early: dict[Stream, bytes] = {}
        """What came before there was somewhere to write it."""

    def stream_opened(self, stream: Stream) -> None:
        if isinstance(stream, Paced):
            self.arrived.put_nowait(stream)

    def join(self, left: Paced, right: Paced) -> None:
        self.other = {left: right, right: left}
        for stream in (left, right):
            self.other[stream].write(self._early.pop(stream, b""))

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        out = self._out
        messages = wire.decode(body)
        for message, piece in zip(messages, wire.split(body, len(messages)), strict=True):
            if type(message) is not Goodbye:
                out.append(piece)

    def turn_ended(self, stream: Stream) -> None:
        pieces, self._out = self._out, []
        if not pieces:
            return
        frame = wire.frame(b"".join(pieces), len(pieces), 1, 0)
        if stream in self.other:
            self.other[stream].write(frame)
        else:
            self._early[stream] = self._early.get(stream, b"") + frame

    def stream_closed(self, stream: Stream, reason: str) -> None:
        other = self.other.get(stream)
        if other is not None:
            other.close()

    def full(self, stream: Stream, is_full: bool) -> None:
        if stream in self.other:
            self.other[stream].reading(not is_full)


async def relay(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    """Listens, dials the next (if there is one), joins the two; until it is stopped."""
    loop = asyncio.get_running_loop()
    owner = Relay()
    listener = await loop.create_server(lambda: Paced(owner), "127.0.0.1", 0)
    waiting = asyncio.ensure_future(ready({"port": listener.sockets[0].getsockname()[1]}))
    left = await owner.arrived.get()
    if arguments["next"]:
        await loop.create_connection(lambda: Paced(owner), "127.0.0.1", arguments["next"])
    right = await owner.arrived.get()  # of the last relay, both peers come to it
    owner.join(left, right)
    await waiting
    return {}


class Counter:
    """A bare subscriber: decodes and counts."""

    def __init__(self, meter: RateMeter) -> None:
        self._meter = meter

    def stream_opened(self, stream: Stream) -> None:
        pass

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        self._meter.add(sum(type(message) is Publish for message in wire.decode(body)))

    def turn_ended(self, stream: Stream) -> None:
        pass

    def stream_closed(self, stream: Stream, reason: str) -> None:
        pass


async def subscriber(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    meter = RateMeter(arguments["events"])
    await loop.create_connection(lambda: Stream(Counter(meter)), "127.0.0.1", arguments["port"])
    await ready({})
    return await meter.done


class Pacer:
    """A bare publisher's owner: knows when its stream is full."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.room.set()

    def stream_opened(self, stream: Stream) -> None:
        pass

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        pass

    def turn_ended(self, stream: Stream) -> None:
        pass

    def stream_closed(self, stream: Stream, reason: str) -> None:
        pass

    def full(self, stream: Stream, is_full: bool) -> None:
        (self.room.clear if is_full else self.room.set)()


async def publisher(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    pacer = Pacer()
    payload = b"x" * arguments["payload_bytes"]
    frames = [wire.frame(*batch, 1, 0) for batch in events.batches(arguments["events"], payload)]
    _, stream = await loop.create_connection(lambda: Paced(pacer), "127.0.0.1", arguments["port"])
    await ready({})
    for frame in frames:
        stream.write(frame)
        await asyncio.sleep(0)
        await pacer.room.wait()
    await stream.closed
    return {}


class Echoing(Pacer):
    """Sends every message back."""

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        count = len(wire.decode(body))
        stream.write(wire.frame(b"".join(wire.split(body, count)), count, 1, 0))


async def echo(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    owner = Echoing()
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(lambda: Stream(owner), "127.0.0.1", arguments["port"])
    await ready({})
    await stream.closed
    return {}


class Pong(Pacer):
    def __init__(self, meter: TripMeter) -> None:
        super().__init__()
        self._meter = meter

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        wire.decode(body)
        self._meter.arrived()


async def ping(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    payload, count = b"x" * arguments["payload_bytes"], arguments["round_trips"]
    given = [(bytes.fromhex(text), messages) for text, messages in arguments["frames"]]
    given = given or [(events.message(number, payload), 1) for number in range(count)]
    frames = [wire.frame(encoded, messages, 1, 0) for encoded, messages in given]
    meter = TripMeter(count, lambda number: stream.write(frames[number % len(frames)]))
    owner = Pong(meter)
    _, stream = await loop.create_connection(lambda: Stream(owner), "127.0.0.1", arguments["port"])
    await ready({})
    meter.start()
    return await meter.done


if __name__ == "__main__":
    serve({"relay": relay, "subscriber": subscriber, "publisher": publisher, "echo": echo, "ping": ping})
