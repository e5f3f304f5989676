"""Hostile connections to a real broker: each is told why where it can be, logged, and costs nothing lasting.

Meanwhile, and afterwards, honest clients are served as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from client import between, connect
from client.monitor import fetch_status
from tests.attacks import ALIVE, ATTACKS, NO_REPLY, Attack
from tests.brokers import Overlay, brokers, wait_for
from tests.rawpeer import raw_peer

pytestmark = pytest.mark.slow

ROUNDS = 62
AT_ONCE = 40
RSS_GROWTH_MAX = 8 << 20


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def storm(address: str, rounds: int, seed: int) -> Counter[tuple[str, str]]:
    """Every attack once a round, many at once, in an order of the seed's; what each was answered."""
    random = Random(seed)
    plan = [attack for _ in range(rounds) for attack in ATTACKS]
    random.shuffle(plan)
    room = asyncio.Semaphore(AT_ONCE)
    outcomes: Counter[tuple[str, str]] = Counter()

    async def one(attack: Attack, seed: float) -> None:
        async with room, raw_peer(address, seed) as peer:
            outcomes[attack.__name__, await attack(peer)] += 1

    await asyncio.gather(*(one(attack, random.random()) for attack in plan))
    return outcomes


async def honest_traffic(overlay: Overlay, until: asyncio.Event) -> int:
    """Publish, wait for the delivery, and again; how often it went round."""
    async with (
        connect(overlay.address("b1"), client_id="subscriber") as subscriber,
        connect(overlay.address("b2"), client_id="publisher") as publisher,
    ):
        await publisher.advertise({"n": between(0, 1_000_000)})
        await subscriber.subscribe({"n": between(0, 1_000_000)})
        await publisher.settled()
        count = 0
        while not until.is_set():
            await publisher.publish({"n": count})
            delivery = await subscriber.next_delivery(5.0)
            assert delivery.event == {"n": count}
            count += 1
        return count


async def under_fire(overlay: Overlay, rounds: int, seed: int) -> tuple[Counter[tuple[str, str]], int]:
    over = asyncio.Event()
    traffic = asyncio.create_task(honest_traffic(overlay, over))
    await asyncio.sleep(0)
    while not any(
        link["name"] == "subscriber" for link in (await fetch_status(overlay.address("b1")))["links"]
    ):
        assert not traffic.done()
    try:
        outcomes = await storm(overlay.address("b1"), rounds, seed)
    finally:
        over.set()
        count = await traffic
    return outcomes, count


def test_two_thousand_hostile_connections_are_answered_and_logged_and_leave_nothing(tmp_path: Path) -> None:
    with brokers(tmp_path, links=[("b2", "b1")], settings={"grace_ms": 500}) as overlay:
        pid = overlay.pid("b1")
        files_before = open_files(pid)
        asyncio.run(under_fire(overlay, 3, seed=1))
        wait_for("a quiet broker", lambda: open_files(pid) <= files_before)
        rss_before = resident_bytes(pid)
        logged_before = len(overlay.log("b1", "refused"))

        began = time.monotonic()
        outcomes, round_trips = asyncio.run(under_fire(overlay, ROUNDS, seed=2))
        took_s = time.monotonic() - began

        assert outcomes.total() == ROUNDS * len(ATTACKS) >= 2000
        expected = {(attack.__name__, code) for attack, codes in ATTACKS.items() for code in codes}
        assert set(outcomes) <= expected, set(outcomes) - expected
        assert round_trips > 10 * took_s, "honest clients were hardly served"

        wait_for("all sockets are closed", lambda: open_files(pid) <= files_before)
        grown = resident_bytes(pid) - rss_before
        assert grown < RSS_GROWTH_MAX, f"{grown} bytes more after {outcomes.total()} hostile connections"

        answered = sum(n for (_, code), n in outcomes.items() if code not in (NO_REPLY, ALIVE))
        refused = overlay.log("b1", "refused")
        assert len(refused) - logged_before >= answered
        assert all(line["reason"] and line["code"] and line["address"] for line in refused)
        silent = outcomes["truncated_frame", NO_REPLY] + outcomes["connect_and_leave", NO_REPLY]
        assert len(overlay.log("b1", "hung-up")) >= silent

        asyncio.run(under_fire(overlay, 0, seed=3))
        status = overlay.status("b1", dump=True)
        assert status["counts"] == {"clients": 0, "srt": 0, "prt": 0}
        assert [link["name"] for link in status["links"]] == ["b2"]
        assert overlay.log("b1", "up")[-1]["peer"] == "broker:b2" or len(overlay.log("b2", "up")) == 1
