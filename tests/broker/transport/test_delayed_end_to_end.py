"""The delays that links are asked to emulate, as a round trip through three brokers shows them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.protocol.delay import Delay
from client import Connection, connect
from tests.support.brokers import Link, Overlay
from tests.support.observe import LINE, running

pytestmark = pytest.mark.slow

PATIENCE_S = 200
ROUND_TRIPS = 40
REST_S = 4e-3
"""Between two crossings of the overlay, so that no process is warm from the one before: waking up a cold
one takes as long as what is to be measured, and behind a delay all are cold."""
TOLERANCE_MS = 0.1
"""Per link that is crossed."""
TO_BROKER_MS = 0.7
TO_CLIENT_MS = 1.6
BETWEEN_MS: dict[Link, float] = {("b1", "b2"): 2.2, ("b2", "b1"): 3.3, ("b2", "b3"): 1.1, ("b3", "b2"): 2.7}
CROSSINGS = 8
ASKED_MS = 2 * TO_BROKER_MS + 2 * TO_CLIENT_MS + sum(BETWEEN_MS.values())
"""There and back: each client to its broker, each broker to its neighbours, each broker to its client."""


def test_a_round_trip_takes_longer_by_what_was_asked_of_its_links(tmp_path: Path) -> None:
    """Compared is the same round trip, in turn through an overlay of the same shape without delays and
    through the one with delays, in the same process and within the same seconds."""
    asked_ms = pytest.approx(ASKED_MS, abs=CROSSINGS * TOLERANCE_MS)
    measured_ms: list[float] = []

    async def measure_until_right() -> None:
        """What else runs on the machine can make a measurement wrong, but hardly right."""
        deadline = time.monotonic() + PATIENCE_S
        async with overlays(tmp_path) as (plain, delayed):
            while asked_ms not in measured_ms and time.monotonic() < deadline:
                without_ms, with_ms = await round_trips_ms(plain), await round_trips_ms(delayed)
                measured_ms.append(hardly_disturbed(with_ms) - hardly_disturbed(without_ms))

    uvloop.run(measure_until_right())
    assert asked_ms in measured_ms


def hardly_disturbed(taken_ms: list[float]) -> float:
    """One that is among the quickest: these delays are fixed, and shift the quick as much as the median."""
    return statistics.quantiles(taken_ms, n=10)[0]


@asynccontextmanager
async def overlays(folder: Path) -> AsyncIterator[tuple[Connection, Connection]]:
    """E's connection to one without delays, and to one with them."""
    for name in ("plain", "delayed"):
        (folder / name).mkdir()
    delays = {link: {"delay_ms": delay} for link, delay in BETWEEN_MS.items()}
    clients = {"delay_ms": TO_CLIENT_MS}
    async with (
        running(folder / "plain", LINE) as plain,
        running(folder / "delayed", LINE, clients=clients, delays=delays) as delayed,
        pinging(plain, Delay()) as plain_e,
        pinging(delayed, Delay(delay_ms=TO_BROKER_MS)) as delayed_e,
    ):
        yield plain_e, delayed_e


@asynccontextmanager
async def pinging(overlay: Overlay, delay: Delay) -> AsyncIterator[Connection]:
    """E at one end; A at the other answers, after a rest, with how long it rested."""
    replies: set[asyncio.Task[None]] = set()

    async def rest_and_answer() -> None:
        began = time.monotonic()
        await asyncio.sleep(REST_S)
        await a.publish({"to": "E", "rested": time.monotonic() - began})

    def answer(_: Any) -> None:
        task = asyncio.create_task(rest_and_answer())
        replies.add(task)
        task.add_done_callback(replies.discard)

    async with (
        connect(overlay.address("b1"), client_id="E", delay=delay) as e,
        connect(overlay.address("b3"), client_id="A", delay=delay, on_delivery=answer) as a,
    ):
        for session, me, other in ((e, "E", "A"), (a, "A", "E")):
            await session.advertise({"to": other})
            await session.subscribe({"to": me})
        await e.settled()
        await a.settled()
        yield e


async def round_trips_ms(session: Connection) -> list[float]:
    taken_ms = []
    for number in range(ROUND_TRIPS):
        # Never in step with a timer.
        await asyncio.sleep(REST_S + number % 7 / 7e3)
        began = time.monotonic()
        await session.publish({"to": "A"})
        rested = (await session.next_delivery(5)).event["rested"]
        assert isinstance(rested, float)
        taken_ms.append(1e3 * (time.monotonic() - began - rested))
    return taken_ms
