"""Slow consumers slow their publishers down, stalled ones are left behind, and no broker grows without bound."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import wire
from broker.protocol.address import parse_address
from broker.protocol.filters import make_filter
from broker.protocol.messages import Accepted, Goodbye, Hello, Joined, Request
from broker.protocol.wire import HEADER_BYTES, PROTOCOL_VERSION, AnyMessage
from client import Connection, SlowConsumer, connect
from client.asking.monitor import fetch_status
from tests.support.brokers import Overlay
from tests.support.observe import (
    cuttable_overlay,
    eventually,
    in_loop,
    link_becomes,
    link_vanishes,
    logged,
    resident_bytes,
    running,
)

pytestmark = pytest.mark.slow

PAIR = [("b1", "b2")]
MEBIBYTE = 1 << 20
LIMIT = 4 * MEBIBYTE
"""On what waits for one client; the default is four times as much, and would only take longer."""
LITTLE_ROOM: dict[str, Any] = {"queue_bytes_max": MEBIBYTE, "patience_ms": 10_000}
"""For those who are slow but never rest: a machine that gives them no processor for a while must not make
them look as if they did, when there is so little room."""


class Witness:
    """What a broker says about its links and how large it is, looked at many times a second."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        self._address, self._pid = overlay.address(name), overlay.pid(name)
        self.began_at = self.bytes_max = resident_bytes(self._pid)
        self.rows: list[dict[str, Any]] = []

    def saw(self, hop: str, **expected: Any) -> bool:
        return any(row["hop"] == hop and expected.items() <= row.items() for row in self.rows)

    @property
    def growth(self) -> int:
        return self.bytes_max - self.began_at

    async def look(self) -> None:
        while True:
            self.rows += (await fetch_status(self._address))["links"]
            self.bytes_max = max(self.bytes_max, resident_bytes(self._pid))
            await asyncio.sleep(0.01)


@asynccontextmanager
async def witness(overlay: Overlay, name: str) -> AsyncIterator[Witness]:
    seen = Witness(overlay, name)
    task = asyncio.create_task(seen.look())
    try:
        yield seen
    finally:
        assert not task.done(), task.exception()
        task.cancel()


class Pace:
    """When deliveries came, of a subscriber that never rests."""

    def __init__(self) -> None:
        self.numbers: list[object] = []
        self.gap_s_max = 0.0
        self._latest = time.monotonic()

    def __call__(self, delivery: Any) -> None:
        now = time.monotonic()
        self.gap_s_max = max(self.gap_s_max, now - self._latest)
        self._latest = now
        self.numbers.append(delivery.event["n"])


async def publish_at(session: Connection, bytes_per_s: float, until: Callable[[], bool], size: int) -> int:
    """Numbered events at a steady rate; how many."""
    count, began = 0, time.monotonic()
    while not until():
        while count * size < (time.monotonic() - began) * bytes_per_s:
            await session.publish({"n": count}, bytes(size))
            count += 1
        await asyncio.sleep(0.005)
    return count


def subscribe_and_read_no_more(address: str, name: str) -> socket.socket:
    """A client of our own making: it subscribes, and from then on leaves everything in its socket."""
    sock = socket.create_connection(parse_address(address), timeout=5)
    hello = Hello(PROTOCOL_VERSION, "client", name, "", time.time_ns(), 0, 0, "all")
    sock.sendall(wire.frame(wire.encode(hello), 1, 0, 0))
    read_until(sock, Joined)
    sock.sendall(wire.frame(wire.encode(Request(1, "sub", make_filter({}))), 1, 1, 0))
    read_until(sock, Accepted)
    return sock


def read_until(sock: socket.socket, kind: type[AnyMessage]) -> Any:
    while True:
        body_bytes, _, _ = wire.read_header(read_exactly(sock, HEADER_BYTES))
        for message in wire.decode(read_exactly(sock, body_bytes)):
            if isinstance(message, kind):
                return message


def read_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, "the broker closed the connection"
        data += piece
    return data


@in_loop
async def test_a_subscriber_that_reads_nothing_is_left_behind_and_then_disconnected(tmp_path: Path) -> None:
    async with (
        running(tmp_path, PAIR, settings={"queue_bytes_max": LIMIT}) as overlay,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(overlay.address("b2"), client_id="A", on_delivery=(pace := Pace())) as a,
    ):
        await e.advertise({})
        await a.subscribe({})
        stalled = await asyncio.to_thread(subscribe_and_read_no_more, overlay.address("b2"), "S")
        await a.settled()
        await e.settled()
        enough = asyncio.Event()
        async with witness(overlay, "b2") as seen:
            publishing = asyncio.create_task(publish_at(e, 3 * MEBIBYTE, until=enough.is_set, size=1000))
            await link_vanishes(overlay.address("b2"), "client:S")
            goodbye = await asyncio.to_thread(read_until, stalled, Goodbye)
            after_it = len(pace.numbers)
            await eventually("A goes on as before", lambda: _is_over(pace.numbers, after_it + 3000))
            enough.set()
            count = await publishing
        stalled.close()
        await eventually("A has everything", lambda: _is_over(pace.numbers, count - 1))
        assert pace.numbers == list(range(count))
        assert pace.gap_s_max < 3, "S was waited for"
        assert seen.growth < LIMIT + 16 * MEBIBYTE
        assert seen.saw("broker:b1", held=True, waits_for=["client:S"])
        assert seen.saw("client:S", stalled=True)
        assert not seen.saw("client:A", stalled=True)
        assert goodbye.code == "slow-consumer"
        assert "S is too slow" in goodbye.reason
        gone = await logged(overlay, "b2", "client-gone", client="S")
        assert gone["reason"] == goodbye.reason
        departed = (await fetch_status(overlay.address("b2")))["departed"]
        assert departed == [{"client": "S", "code": "slow-consumer", "reason": goodbye.reason}]


async def _is_over(numbers: list[object], count: int) -> bool:
    return len(numbers) > count


async def take_all(session: Connection, taken: list[object]) -> None:
    async for delivery in session.deliveries():
        taken.append(delivery.event["n"])


@pytest.mark.parametrize(
    ("size", "settings"), [(1000, {"queue_max": 100}), (50_000, {"queue_bytes_max": MEBIBYTE})]
)
@in_loop
async def test_a_program_that_never_takes_its_deliveries_gets_a_typed_error(
    tmp_path: Path, size: int, settings: dict[str, Any]
) -> None:
    async with (
        running(tmp_path, settings={"queue_bytes_max": LIMIT}) as overlay,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(overlay.address("b1"), client_id="A", on_delivery=(pace := Pace())) as a,
        connect(overlay.address("b1"), client_id="S", **settings) as s,
    ):
        await e.advertise({})
        for session in (a, s):
            await session.subscribe({})
        count = 0
        async with witness(overlay, "b1") as seen:
            while not overlay.log("b1", "client-gone"):
                assert count * size < 20 * MEBIBYTE, "and S is still there"
                await e.publish({"n": count}, bytes(size))
                count += 1
        await eventually("A has everything", lambda: _is_over(pace.numbers, count - 1))
        assert pace.numbers == list(range(count))
        assert seen.saw("client:E", held=True, waits_for=["client:S"])
        assert seen.growth < LIMIT + 16 * MEBIBYTE
        taken: list[object] = []
        with pytest.raises(SlowConsumer, match="S is too slow"):
            await take_all(s, taken)
        assert taken == list(range(len(taken))), "what had been delivered before is not lost"
        assert len(taken) >= settings.get("queue_max", 1)
        assert len(taken) * size < 2 * MEBIBYTE, "and it is little"


@in_loop
async def test_a_slow_subscriber_slows_its_publisher_down_and_loses_nothing(tmp_path: Path) -> None:
    """40 MB for a reader of about 16 MB/s, with one MiB of room at its broker."""
    count, size = 4000, 10_000
    published: list[int] = []
    lag_max = 0

    async def publish(session: Connection) -> None:
        for number in range(count):
            await session.publish({"n": number}, bytes(size))
            published.append(number)

    async with (
        running(tmp_path, PAIR, settings=LITTLE_ROOM) as overlay,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(overlay.address("b2"), client_id="S", queue_max=20) as s,
    ):
        await e.advertise({})
        await s.subscribe({})
        await s.settled()
        async with witness(overlay, "b1") as at_b1, witness(overlay, "b2") as at_b2, asyncio.timeout(30):
            publishing = asyncio.create_task(publish(e))
            for number in range(count):
                assert (await s.next_delivery(5)).event["n"] == number
                lag_max = max(lag_max, len(published) - number)
                if number % 16 == 0:
                    await asyncio.sleep(0.01)
            await publishing
        assert at_b2.saw("broker:b1", held=True, waits_for=["client:S"])
        assert at_b1.saw("client:E", held=True, waits_for=["broker:b2"])
        assert lag_max * size < 12 * MEBIBYTE, "the publisher ran ahead"
        assert max(at_b1.growth, at_b2.growth) < 16 * MEBIBYTE


@pytest.mark.parametrize("homes", [("b1", "b1"), ("b1", "b2")], ids=["one broker", "two brokers"])
@in_loop
async def test_two_clients_that_flood_each_other_do_not_lock_up(
    tmp_path: Path, homes: tuple[str, str]
) -> None:
    count = 20_000

    async def flood(session: Connection, to: str) -> None:
        for number in range(count):
            await session.publish({"to": to, "n": number}, bytes(500))

    async def take(session: Connection) -> list[object]:
        return [(await session.next_delivery(10)).event["n"] for _ in range(count)]

    async with (
        running(tmp_path, PAIR, settings=LITTLE_ROOM) as overlay,
        connect(overlay.address(homes[0]), client_id="A", queue_max=100) as a,
        connect(overlay.address(homes[1]), client_id="B", queue_max=100) as b,
    ):
        for session, me, other in ((a, "A", "B"), (b, "B", "A")):
            await session.advertise({"to": other})
            await session.subscribe({"to": me})
        await a.settled()
        await b.settled()
        async with asyncio.timeout(30):
            *_, at_a, at_b = await asyncio.gather(flood(a, "B"), flood(b, "A"), take(a), take(b))
        assert at_a == at_b == list(range(count))


@in_loop
async def test_publishers_wait_for_a_neighbour_that_is_down_and_go_on_when_it_is_back(tmp_path: Path) -> None:
    count, size = 3000, 10_000
    published: list[int] = []

    async def publish(session: Connection) -> None:
        for number in range(count):
            await session.publish({"n": number}, bytes(size))
            published.append(number)

    async with (
        cuttable_overlay(tmp_path, PAIR) as (overlay, between),
        connect(overlay.address("b1"), client_id="E") as e,
        connect(overlay.address("b2"), client_id="A", on_delivery=(pace := Pace())) as a,
    ):
        await e.advertise({})
        await a.subscribe({})
        await a.settled()
        between["b1", "b2"].take_away()
        async with witness(overlay, "b1") as seen:
            publishing = asyncio.create_task(publish(e))

            async def has_stopped() -> bool:
                before = len(published)
                await asyncio.sleep(0.5)
                return before > 0 and len(published) == before

            await eventually("E waits", has_stopped)
            assert len(published) * size < 8 * MEBIBYTE
            between["b1", "b2"].bring_back()
            await publishing
            await eventually("A has everything", lambda: _is_over(pace.numbers, count - 1))
        assert pace.numbers == list(range(count))
        assert seen.saw("client:E", held=True, waits_for=["broker:b2"])
        assert seen.growth < 16 * MEBIBYTE


@in_loop
async def test_a_link_on_which_both_sides_must_wait_is_not_taken_for_dead(tmp_path: Path) -> None:
    """b1 cannot go on without b0, nor b2 without b3: for a while nothing at all moves between b1 and b2."""
    silence_ms, count = 500, 1000
    outer, middle = [("b1", "b0"), ("b2", "b3")], ("b1", "b2")
    quick: dict[str, Any] = {"silence_s": silence_ms / 1e3}
    async with (
        cuttable_overlay(tmp_path, [*outer, middle], settings={"silence_ms": silence_ms}) as (
            overlay,
            between,
        ),
        connect(overlay.address("b1"), client_id="E1", **quick) as e1,
        connect(overlay.address("b2"), client_id="E2", **quick) as e2,
        connect(overlay.address("b0"), client_id="A0", on_delivery=(at_b0 := Pace())) as a0,
        connect(overlay.address("b3"), client_id="A3", on_delivery=(at_b3 := Pace())) as a3,
    ):
        for publisher, subscriber, to in ((e1, a3, 3), (e2, a0, 0)):
            await publisher.advertise({"to": to})
            await subscriber.subscribe({"to": to})
        for session in (a0, a3):
            await session.settled()
        for link in outer:
            between[link].take_away()
        publishing = [
            asyncio.create_task(publish_numbers(session, {"to": to}, count))
            for session, to in ((e1, 3), (e2, 0))
        ]
        for name, other, beyond in (("b1", "b2", "b0"), ("b2", "b1", "b3")):
            waits = {"held": True, "waits_for": [f"broker:{beyond}"]}
            await link_becomes(overlay.address(name), f"broker:{other}", **waits)
        await asyncio.sleep(4 * silence_ms / 1e3)
        assert not any(task.done() for task in publishing)
        away = [line["peer"] for name in ("b1", "b2") for line in overlay.log(name, "away")]
        assert sorted(away) == ["broker:b0", "broker:b3"], "only what was really taken away"
        for link in outer:
            between[link].bring_back()
        await asyncio.gather(*publishing)
        for pace in (at_b0, at_b3):
            await eventually("all has arrived", lambda pace=pace: _is_over(pace.numbers, count - 1))  # type: ignore[misc]
            assert pace.numbers == list(range(count))


async def publish_numbers(session: Connection, event: dict[str, Any], count: int) -> None:
    for number in range(count):
        await session.publish({**event, "n": number}, bytes(20_000))


@in_loop
async def test_a_publisher_that_does_a_little_at_a_time_waits_too(tmp_path: Path) -> None:
    """It never fills a turn of the loop, and yet must not pile up what the broker does not take."""
    async with (
        cuttable_overlay(tmp_path, PAIR) as (overlay, between),
        connect(overlay.address("b1"), client_id="E") as e,
        connect(overlay.address("b2"), client_id="A") as a,
    ):
        await e.advertise({})
        await a.subscribe({})
        await a.settled()
        between["b1", "b2"].take_away()
        published = 0

        async def publish_a_little_at_a_time() -> None:
            nonlocal published
            while published < 20 * MEBIBYTE:
                async with asyncio.timeout(0.5):
                    await e.publish({"n": published}, bytes(10_000))
                await asyncio.sleep(0)
                published += 10_000

        with pytest.raises(TimeoutError):
            await publish_a_little_at_a_time()
        assert published < 8 * MEBIBYTE
        between["b1", "b2"].bring_back()
        await e.settled()
