"""A peer: a chain of bridged Mosquitto brokers on loopback, or one that stores, driven by bare MQTT 3.1.1 ends.

The ends write prepared packets and count what arrives, QoS 0, so that Mosquitto is not held down by a
slow client library. An event's attributes become its topic (`p1/17`); the subscriber has `p1/#`, and
each broker the same number of other subscriptions as ours.

One that stores acknowledges what is published with QoS 1 and keeps it for a subscriber that is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from labctl.bench.ends import servers
from labctl.bench.ends.meters import AcknowledgementMeter, RateMeter
from labctl.workers import BenchError, Ready, serve, workers

MODULE = "labctl.bench.ends.mosquitto"
PACKETS_PER_WRITE = 256
PUBLISH, SUBSCRIBE, CONNECT, DISCONNECT = 0x30, 0x82, 0x10, 0xE0
QOS_1 = 0x02
FORGET, KEEP = 0x02, 0x00
"""What becomes of the session of a client that is away."""
RETURN_S_MAX = 30.0


def program() -> str:
    found = servers.find("mosquitto")
    if found is None:
        raise BenchError("Mosquitto is not installed; on Debian or Ubuntu: apt-get install mosquitto")
    return found


@contextlib.contextmanager
def chain(brokers: int, subscriptions: int) -> Iterator[Callable[[int, int], float]]:
    """Started, bridged and subscribed; the function measures events per second."""
    mosquitto = program()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="labctl-mosquitto-")))
        ports = servers.free_ports(brokers)
        for place, port in reversed(list(enumerate(ports))):
            onward = ports[place + 1] if place + 1 < brokers else None
            stack.enter_context(_broker(mosquitto, folder, port, onward))
        roles = [("background", {"port": p, "subscriptions": subscriptions, "broker": p}) for p in ports]
        for holder in stack.enter_context(workers(MODULE, *roles)):
            holder.wait_ready()

        def measure(events: int, payload_bytes: int) -> float:
            common = {"events": events, "payload_bytes": payload_bytes}
            with workers(
                MODULE,
                ("subscriber", {"port": ports[-1], **common}),
                ("publisher", {"port": ports[0], **common}),
            ) as (subscriber, publisher):
                for end in (subscriber, publisher):
                    end.wait_ready()
                    end.go()
                return float(subscriber.result()["events_per_s"])

        yield measure


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[dict[str, Any]]:
    """How a publisher reaches it, from its start to its end; its files are in the folder."""
    (port,) = servers.free_ports(1)
    persistence = [
        "persistence true",
        f"persistence_location {folder}/",
        "max_inflight_messages 0",  # no limit
    ]
    with _broker(program(), folder, port, None, persistence):
        yield {"port": port}


@contextlib.contextmanager
def _broker(
    program: str,
    folder: Path,
    port: int,
    onward: int | None,
    persistence: Sequence[str] = ("persistence false",),
) -> Iterator[None]:
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        *persistence,
        "max_queued_messages 0",  # no limit: a dropped event would count as infinitely fast
        "log_dest none",
        f"user {getpass.getuser()}",  # a change of user would undo that it ends with its parent
    ]
    if onward is not None:
        lines += [
            "",
            "connection onward",
            f"address 127.0.0.1:{onward}",
            "topic # out 0",
            "try_private false",
        ]
    config = folder / f"{port}.conf"
    config.write_text("\n".join(lines) + "\n")
    with servers.running("Mosquitto", [program, "-c", str(config)], port):
        yield


def _packet(kind: int, body: bytes) -> bytes:
    length, digits = len(body), bytearray()
    while True:
        length, digit = divmod(length, 128)
        digits.append(digit | 0x80 if length else digit)
        if not length:
            return bytes((kind, *digits)) + body


def _text(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded


async def _open(
    port: int, name: str, session: int = FORGET
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    protocol = _text("MQTT") + bytes((4, session)) + (0).to_bytes(2, "big")
    writer.write(_packet(CONNECT, protocol + _text(name)))
    answer = await reader.readexactly(4)
    if answer[3]:
        raise BenchError(f"Mosquitto refuses {name} with code {answer[3]}")
    return reader, writer


async def _subscribe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topics: list[str], qos: int = 0
) -> None:
    for topic in topics:
        writer.write(_packet(SUBSCRIBE, (1).to_bytes(2, "big") + _text(topic) + bytes((qos,))))
    await writer.drain()
    await reader.readexactly(5 * len(topics))


async def background(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    reader, writer = await _open(arguments["port"], "background")
    topics = [f"{arguments['broker']}-{n % 100}/{n}" for n in range(arguments["subscriptions"])]
    await _subscribe(reader, writer, topics)
    await ready({})
    return {}


async def subscriber(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    reader, writer = await _open(arguments["port"], "subscriber")
    await _subscribe(reader, writer, ["p1/#"])
    await ready({})
    meter, tail = RateMeter(arguments["events"]), b""
    while not meter.done.done():
        arrived, tail = _count(tail + await reader.read(1 << 18))
        meter.add(arrived)
    writer.close()
    return meter.done.result()


def _count(data: bytes) -> tuple[int, bytes]:
    """Whole packets in the data, and what is left of it."""
    place, count, end = 0, 0, len(data)
    while place + 2 <= end:
        length, shift, cursor = 0, 0, place + 1
        while cursor < end:
            digit = data[cursor]
            length |= (digit & 0x7F) << shift
            cursor, shift = cursor + 1, shift + 7
            if digit < 0x80:
                break
        else:
            break
        if cursor + length > end:
            break
        place = cursor + length
        count += 1
    return count, data[place:]


async def publisher(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    reader, writer = await _open(arguments["port"], "publisher")
    payload = b"x" * arguments["payload_bytes"]
    packets = [_packet(PUBLISH, _text(f"p1/{n}") + payload) for n in range(arguments["events"])]
    await ready({})
    for start in range(0, len(packets), PACKETS_PER_WRITE):
        writer.write(b"".join(packets[start : start + PACKETS_PER_WRITE]))
        await writer.drain()
    await reader.read(1)  # until the benchmark stops us: closing early would cut the bridge's queue
    return {}


async def confirmed(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    """A publisher that counts what is acknowledged, while the subscriber is away."""
    port = arguments["port"]
    reader, writer = await _open(port, "reader", KEEP)
    await _subscribe(reader, writer, ["p1"], qos=1)
    await _leave(writer)
    reader, writer = await _open(port, "publisher")
    numbers = itertools.count()
    payload = b"x" * arguments["payload_bytes"]

    def publish(count: int) -> None:
        writer.write(
            b"".join(_confirmed_packet(number, payload) for number in itertools.islice(numbers, count))
        )

    meter, tail = AcknowledgementMeter(arguments["in_flight"], arguments["seconds"], publish), b""
    await ready({})
    meter.start()
    while not meter.done.done():
        data = await reader.read(1 << 18)
        if not data:
            raise BenchError("Mosquitto has closed the connection")
        acknowledged, tail = _count(tail + data)
        if acknowledged:
            meter.acknowledged(acknowledged)
    figures = meter.done.result()
    await ready(figures)
    await _read_back(port, int(figures["acknowledged"]))
    return {}


def _confirmed_packet(number: int, payload: bytes) -> bytes:
    return _packet(PUBLISH | QOS_1, _text("p1") + (1 + number % 0xFFFF).to_bytes(2, "big") + payload)


async def _leave(writer: asyncio.StreamWriter) -> None:
    writer.write(_packet(DISCONNECT, b""))
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def _read_back(port: int, expected: int) -> None:
    """Raises `BenchError` unless so many were stored; then they are forgotten."""
    reader, writer = await _open(port, "reader", KEEP)
    stored, tail = 0, b""
    try:
        async with asyncio.timeout(RETURN_S_MAX):
            while stored < expected:
                data = await reader.read(1 << 18)
                if not data:
                    raise BenchError("Mosquitto has closed the connection")
                arrived, tail = _count(tail + data)
                stored += arrived
    except TimeoutError:
        raise BenchError(f"of {expected} acknowledged messages Mosquitto has stored {stored}") from None
    await _leave(writer)
    _, writer = await _open(port, "reader", FORGET)
    await _leave(writer)


if __name__ == "__main__":
    serve(
        {"background": background, "subscriber": subscriber, "publisher": publisher, "confirmed": confirmed}
    )
