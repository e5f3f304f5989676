"""How a broker stops, what it does about its log, and what it tells about itself when that is much."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from broker.config import Neighbour, NodeConfig
from broker.node.log import JsonLog
from broker.protocol import wire
from broker.protocol.delay import Delay
from broker.protocol.filters import make_filter
from broker.protocol.messages import Accepted, Goodbye, Publish, Request, StatusAnswer, StatusRequest
from broker.protocol.vocabulary import Kind
from broker.protocol.wire import AnyMessage
from broker.serving.server import FLUSH_S_MAX, Server
from broker.transport.stream import Stream
from client import anything, connect
from client.asking.monitor import fetch_status
from client.core.errors import ClientError
from labctl.paths import PROJECT
from tests.support.brokers import COMMAND, Overlay, brokers, free_addresses, node_file, wait_for
from tests.support.observe import in_loop
from tests.support.rawpeer import RawPeer, hello, raw_peer

pytestmark = pytest.mark.slow

TOP = {"id": "b1", "listen": "127.0.0.1:0"}
STOP_S_MAX = FLUSH_S_MAX + 2.0
"""The bound on flushing, and what a process needs to come and go on a busy machine."""


def test_on_sigterm_everybody_connected_is_told_and_it_ends_with_0(tmp_path: Path) -> None:
    async def program(overlay: Overlay) -> list[Goodbye | None]:
        address = overlay.address("b1")
        async with raw_peer(address) as client, raw_peer(address) as neighbour, raw_peer(address) as stranger:
            await neighbour.greet(hello("b2", "broker"))
            await client.greet(hello("E"))
            await stranger.greet(hello("monitor", "monitor"))
            overlay.signal("b1", signal.SIGTERM)
            return [await peer.goodbye() for peer in (client, neighbour, stranger)]

    with brokers(tmp_path, links=[("b2", "b1")], start=False) as overlay:
        overlay.start("b1")
        overlay.process("b1").wait_until_ready()
        goodbyes = asyncio.run(program(overlay))
        assert goodbyes == [Goodbye("stopping", "Broker b1 is stopping.")] * 3
        assert overlay.wait("b1", STOP_S_MAX) == 0
        assert overlay.log("b1")[-1]["event"] == "stopped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_with_nobody_connected_it_ends_at_once(tmp_path: Path, number: int) -> None:
    with brokers(tmp_path, links=[("b1", "b2")], start=False) as overlay:
        overlay.start("b1")
        overlay.process("b1").wait_until_ready()
        began = time.monotonic()
        overlay.signal("b1", number)
        assert overlay.wait("b1") == 0
        assert time.monotonic() - began < FLUSH_S_MAX
        assert overlay.errors("b1") == ""


@pytest.mark.parametrize("delay_ms", [0, 300])
def test_on_sigterm_a_slow_subscriber_still_gets_what_was_queued_for_it(
    tmp_path: Path, delay_ms: int
) -> None:
    """More than its window holds, and what is still on its emulated way."""
    count = 1800

    async def read_slowly(peer: RawPeer) -> list[int]:
        got: list[int] = []
        while (messages := await peer.frame()) is not None:
            got += [message.id for message in messages if isinstance(message, Publish)]
            if any(isinstance(message, Goodbye) for message in messages):
                return got
            await peer.say(first=2, processed=peer.heard)
            await asyncio.sleep(0.01)
        return got

    async def program(overlay: Overlay) -> list[int]:
        peer: RawPeer
        kind: Kind
        address = overlay.address("b1")
        async with raw_peer(address) as subscriber, raw_peer(address) as publisher:
            for peer, name, kind in ((subscriber, "S", "sub"), (publisher, "P", "adv")):
                await peer.join(name)
                await peer.say(Request(1, kind, make_filter({"n": anything()})), first=1)
                while Accepted(1) not in (await peer.frame() or ()):
                    pass
                await peer.say(first=2, processed=peer.heard)
            for n in range(0, count, 300):
                burst = [Publish(m, {"n": m}, bytes(1000)) for m in range(n, n + 300)]
                await publisher.say(*burst, first=n + 2, processed=publisher.heard)
            while (await received(address, "P")) < count + 1:
                pass
            overlay.signal("b1", signal.SIGTERM)
            return await read_slowly(subscriber)

    with brokers(tmp_path, clients={"delay_ms": delay_ms}) as overlay:
        assert asyncio.run(program(overlay)) == list(range(count))
        assert overlay.wait("b1") == 0


async def received(address: str, client: str) -> int:
    """How many of a client's messages its broker has processed."""
    links = (await fetch_status(address))["links"]
    return next(int(link["received"]) for link in links if link["name"] == client)


def test_on_sigterm_a_stalled_subscriber_does_not_keep_it_and_the_others_are_told(tmp_path: Path) -> None:
    async def program(overlay: Overlay) -> tuple[Goodbye | None, float]:
        address = overlay.address("b1")
        async with raw_peer(address) as stalled, raw_peer(address) as publisher:
            await stalled.join("stalled")
            await stalled.say(Request(1, "sub", make_filter({})), first=1)
            await publisher.join("P")
            await publisher.say(Request(1, "adv", make_filter({})), first=1)
            for n in range(2, 42):
                await publisher.say(Publish(n, {}, bytes(200_000)), first=n)
            while (await fetch_status(address))["links"][0]["queue_bytes"] < 2_000_000:
                pass
            overlay.signal("b1", signal.SIGTERM)
            began = time.monotonic()
            goodbye = await publisher.goodbye()
            while overlay.is_alive("b1"):
                await asyncio.sleep(0.01)
            return goodbye, time.monotonic() - began

    with brokers(tmp_path) as overlay:
        goodbye, took_s = asyncio.run(program(overlay))
        assert goodbye is not None
        assert goodbye.code == "stopping"
        assert took_s < STOP_S_MAX
        assert overlay.wait("b1") == 0


class Transport:
    """Takes what is written."""

    def __init__(self) -> None:
        self.written: list[AnyMessage] = []

    def write(self, data: bytes) -> None:
        self.written += wire.decode(data[wire.HEADER_BYTES :])

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def abort(self) -> None: ...

    def get_extra_info(self, name: str) -> str:
        return name


@in_loop
async def test_a_connection_that_comes_up_while_it_stops_is_told_so_and_not_greeted(tmp_path: Path) -> None:
    """It would be taken for one that broke the protocol: nobody is there any more."""
    log = JsonLog(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT), "b1")
    near = Neighbour("b2", "127.0.0.1:1", Delay())
    server = Server(NodeConfig("b1", "127.0.0.1:0", neighbours=(near,)), log)
    server.stop()
    for context in (server._sessions.peers["broker:b2"], None):
        transport = Transport()
        stream = Stream(server, context)
        stream.connection_made(transport)  # type: ignore[arg-type]
        assert transport.written == [Goodbye("stopping", "Broker b1 is stopping.")]
        assert not stream.is_open
        stream.connection_lost(None)


# The log


def test_it_lives_on_when_nobody_reads_its_log_any_more(tmp_path: Path) -> None:
    (tmp_path / "b1.toml").write_text(node_file(TOP, [], {}, {}))
    with subprocess.Popen(
        [*COMMAND, str(tmp_path / "b1.toml")], cwd=PROJECT, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        address = json.loads(child.stdout.readline())["address"]
        child.stdout.close()
        asyncio.run(_come_and_go(address))
        child.terminate()
        assert child.wait(STOP_S_MAX) == 0


def test_it_runs_without_any_stdout(tmp_path: Path) -> None:
    """As a service manager may start it; whatever takes the place of descriptor 1 must not get the log."""
    (address,) = free_addresses(1)
    (tmp_path / "b1.toml").write_text(node_file(TOP | {"listen": address}, [], {}, {}))
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, str(tmp_path / "b1.toml")]
    with subprocess.Popen(shell, cwd=PROJECT, stderr=subprocess.PIPE) as child:
        try:
            wait_for("it answers", lambda: asyncio.run(_answers(address)))
            asyncio.run(_come_and_go(address))
        finally:
            child.terminate()
            _, errors = child.communicate(timeout=STOP_S_MAX)
        assert (child.returncode, errors) == (0, b"")


async def _answers(address: str) -> bool:
    try:
        return bool(await fetch_status(address))
    except ClientError:
        return False


async def _come_and_go(address: str) -> None:
    """Clients that each lead to several lines of log."""
    for n in range(5):
        async with connect(address, client_id=f"E{n}") as client:
            await client.subscribe({"n": n})


# Status


def test_a_dump_of_thousands_of_records_comes_in_several_parts_and_whole(tmp_path: Path) -> None:
    count = 6000

    async def program(address: str) -> None:
        async with raw_peer(address) as peer:
            await peer.join("S")
            requests = [
                Request(n, "sub", make_filter({"n": n, "text": "x" * 50})) for n in range(1, count + 1)
            ]
            await peer.say(*requests, first=1)
            while (await fetch_status(address))["counts"]["prt"] < count:
                pass
            async with raw_peer(address) as monitor:
                await monitor.greet(hello("monitor", "monitor"))
                await monitor.say(StatusRequest(True))
                first = await monitor.answer()
                assert isinstance(first, StatusAnswer)
                assert first.more
            dump = await fetch_status(address, dump=True)
            assert sorted(row["filter"]["n"] for row in dump["tables"]["prt"]) == list(range(1, count + 1))

    with brokers(tmp_path) as overlay:
        asyncio.run(program(overlay.address("b1")))
