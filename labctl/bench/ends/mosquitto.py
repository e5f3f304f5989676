"""The peer: a chain of bridged Mosquitto brokers on loopback, driven by bare MQTT 3.1.1 ends.

The ends write prepared packets and count what arrives, QoS 0, so that Mosquitto is not held down by a
slow client library. An event's attributes become its topic (`p1/17`); the subscriber has `p1/#`, and
each broker the same number of other subscriptions as ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from labctl.bench.ends.meters import RateMeter
from labctl.host.ports import reserved
from labctl.workers import BenchError, Ready, running, serve, workers

MODULE = "labctl.bench.ends.mosquitto"
PACKETS_PER_WRITE = 256
PUBLISH, SUBSCRIBE, CONNECT = 0x30, 0x82, 0x10


@contextlib.contextmanager
def chain(brokers: int, subscriptions: int) -> Iterator[Callable[[int, int], float]]:
    """Started, bridged and subscribed; the function measures events per second."""
    program = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
    if program is None:
        raise BenchError("Mosquitto is not installed; on Debian or Ubuntu: apt-get install mosquitto")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="labctl-mosquitto-")))
        with reserved(brokers, "127.0.0.1") as free:
            ports = list(free)
        for place, port in reversed(list(enumerate(ports))):
            onward = ports[place + 1] if place + 1 < brokers else None
            stack.enter_context(_broker(program, folder, port, onward))
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
def _broker(program: str, folder: Path, port: int, onward: int | None) -> Iterator[None]:
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "persistence false",
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
    silent = subprocess.DEVNULL
    with running([program, "-c", str(config)], stdout=silent, stderr=silent) as process:
        _wait_until_listening(process, port)
        yield


def _wait_until_listening(process: subprocess.Popen[bytes], port: int, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise BenchError(f"Mosquitto did not listen on port {port} within {limit_s:g} s")


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


async def _open(port: int, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(_packet(CONNECT, _text("MQTT") + bytes((4, 2)) + (0).to_bytes(2, "big") + _text(name)))
    await reader.readexactly(4)
    return reader, writer


async def _subscribe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topics: list[str]) -> None:
    for topic in topics:
        writer.write(_packet(SUBSCRIBE, (1).to_bytes(2, "big") + _text(topic) + b"\x00"))
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


if __name__ == "__main__":
    serve({"background": background, "subscriber": subscriber, "publisher": publisher})
