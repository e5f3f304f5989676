"""A peer: RabbitMQ with a durable classic queue and publisher confirms, and a bare publisher to it.

The publisher speaks AMQP 0-9-1 and writes persistent messages into one queue; each is confirmed when the broker has
it on disk. They stay in the queue for whoever consumes it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labctl.bench.ends import servers
from labctl.bench.ends.meters import AcknowledgementMeter
from labctl.workers import BenchError, Ready, serve

FOLDER = "/usr/lib/rabbitmq/bin"
"""What Debian has on the PATH changes to a user of its own, and would not end with us."""
STARTS_S_MAX = 60.0
ANSWER_S_MAX = 10.0
QUEUE = "bench"
METHOD, HEADER, BODY, END = 1, 2, 3, b"\xce"
FRAME = struct.Struct("!BHI")
DURABLE, PERSISTENT = 0x02, 2
FRAME_BYTES_MAX = 131_072
EMPTY_TABLE = bytes(4)

Name = tuple[int, int]
"""Of a method: its class, and which it is."""
START, START_OK = (10, 10), (10, 11)
TUNE, TUNE_OK = (10, 30), (10, 31)
OPEN, OPEN_OK, CLOSED = (10, 40), (10, 41), (10, 50)
CHANNEL, CHANNEL_OK, CHANNEL_CLOSED = (20, 10), (20, 11), (20, 40)
DECLARE, DECLARE_OK, DELETE, DELETE_OK = (50, 10), (50, 11), (50, 40), (50, 41)
PUBLISH, ACK, NACK = (60, 40), (60, 80), (60, 120)
CONFIRM, CONFIRM_OK = (85, 10), (85, 11)


def program() -> str:
    found = servers.find(f"{FOLDER}/rabbitmq-server")
    if found is None or servers.find("epmd") is None:
        raise BenchError("RabbitMQ is not installed; on Debian or Ubuntu: apt-get install rabbitmq-server")
    return found


@contextmanager
def storing(folder: Path) -> Iterator[dict[str, Any]]:
    """How a publisher reaches it, from its start to its end; its files are in the folder."""
    port, own_port, names_port = servers.free_ports(3)
    (plugins := folder / "plugins").write_text("[].\n")
    environment = {
        "PATH": f"{FOLDER}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODENAME": f"bench-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(own_port),
        "RABBITMQ_MNESIA_BASE": str(folder),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RUNNING_UNDER_SYSTEMD": "1",  # then Erlang takes the place of the script, and ends with us
    }
    names = ["epmd", "-address", "127.0.0.1", "-port", str(names_port)]
    with (
        servers.running("epmd of RabbitMQ", names, names_port),
        servers.running("RabbitMQ", [program()], port, environment, STARTS_S_MAX),
    ):
        yield {"port": port}


def short(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def long(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return FRAME.pack(kind, channel, len(payload)) + payload + END


def method(name: Name, arguments: bytes, channel: int = 1) -> bytes:
    return frame(METHOD, channel, struct.pack("!HH", *name) + arguments)


def message(payload: bytes) -> bytes:
    """A persistent one, into the queue."""
    header = struct.pack("!HHQHB", PUBLISH[0], 0, len(payload), 0x1000, PERSISTENT)
    return b"".join(
        (
            method(PUBLISH, bytes(2) + short("") + short(QUEUE) + bytes(1)),
            frame(HEADER, 1, header),
            frame(BODY, 1, payload),
        )
    )


def split(data: bytes) -> tuple[list[tuple[Name, bytes]], bytes]:
    """The methods of whole frames with their arguments, and what is left of the data."""
    found: list[tuple[Name, bytes]] = []
    place = 0
    while place + FRAME.size <= len(data):
        kind, _, size = FRAME.unpack_from(data, place)
        begin = place + FRAME.size
        if begin + size + 1 > len(data):
            break
        if kind == METHOD:
            found.append((struct.unpack_from("!HH", data, begin), data[begin + 4 : begin + size]))
        place = begin + size + 1
    return found, data[place:]


class Unconfirmed:
    """The numbers of the messages under way; RabbitMQ confirms single ones, or all up to one."""

    def __init__(self) -> None:
        self._published = 0
        self._numbers: set[int] = set()

    def publish(self, count: int) -> None:
        self._numbers.update(range(self._published + 1, self._published + count + 1))
        self._published += count

    def confirm(self, arguments: bytes) -> int:
        """How many of them an ack is about."""
        number, all_up_to = struct.unpack("!QB", arguments)
        confirmed = {n for n in self._numbers if n == number or (all_up_to and n <= number)}
        self._numbers -= confirmed
        return len(confirmed)


class AmqpConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tail = b""

    @classmethod
    async def open(cls, port: int) -> AmqpConnection:
        self = cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))
        await self.ask(b"AMQP\x00\x00\x09\x01", START)
        login = EMPTY_TABLE + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")
        await self.ask(method(START_OK, login, 0), TUNE)
        self.write(method(TUNE_OK, struct.pack("!HIH", 1, FRAME_BYTES_MAX, 0), 0))
        await self.ask(method(OPEN, short("/") + short("") + bytes(1), 0), OPEN_OK)
        await self.ask(method(CHANNEL, short("")), CHANNEL_OK)
        await self.ask(method(CONFIRM, bytes(1)), CONFIRM_OK)
        return self

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def methods(self) -> list[tuple[Name, bytes]]:
        """At least one; raises `BenchError` if RabbitMQ has had enough of us."""
        found: list[tuple[Name, bytes]] = []
        while not found:
            data = await self._reader.read(1 << 18)
            if not data:
                raise BenchError("RabbitMQ has closed the connection")
            found, self._tail = split(self._tail + data)
        for name, arguments in found:
            if name in {CLOSED, CHANNEL_CLOSED}:
                said = arguments[3 : 3 + arguments[2]].decode(errors="replace")
                raise BenchError(f"RabbitMQ has closed the connection: {said}")
            if name == NACK:
                raise BenchError("RabbitMQ has not stored a message")
        return found

    async def ask(self, question: bytes, answer: Name) -> bytes:
        """The arguments of the answer."""
        self.write(question)
        try:
            ((name, arguments),) = await asyncio.wait_for(self.methods(), ANSWER_S_MAX)
        except TimeoutError:
            raise BenchError(f"RabbitMQ did not answer within {ANSWER_S_MAX:g} s") from None
        if name != answer:
            raise BenchError(f"RabbitMQ answers with method {name}, and {answer} was due")
        return arguments

    async def queue(self) -> int:
        """Makes it, if it is not there; how many messages wait in it."""
        declare = bytes(2) + short(QUEUE) + bytes((DURABLE,)) + EMPTY_TABLE
        arguments = await self.ask(method(DECLARE, declare), DECLARE_OK)
        return int(struct.unpack_from("!I", arguments, 1 + arguments[0])[0])


async def publisher(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    connection = await AmqpConnection.open(arguments["port"])
    await connection.queue()
    unconfirmed = Unconfirmed()
    one = message(b"x" * arguments["payload_bytes"])

    def publish(count: int) -> None:
        unconfirmed.publish(count)
        connection.write(count * one)

    meter = AcknowledgementMeter(arguments["in_flight"], arguments["seconds"], publish)
    await ready({})
    meter.start()
    while not meter.done.done():
        acks = [given for name, given in await connection.methods() if name == ACK]
        if count := sum(map(unconfirmed.confirm, acks)):
            meter.acknowledged(count)
    figures = meter.done.result()
    await ready(figures)
    stored = await connection.queue()
    if stored != figures["acknowledged"]:
        raise BenchError(f"RabbitMQ has confirmed {figures['acknowledged']} messages and stored {stored}")
    await connection.ask(method(DELETE, bytes(2) + short(QUEUE) + bytes(1)), DELETE_OK)
    return {}


if __name__ == "__main__":
    serve({"publisher": publisher})
