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

from broker.protocol.filters import Filter, make_filter
from broker.protocol.messages import (
    Announce,
    Goodbye,
    Join,
    Operation,
    Publish,
    Request,
    StatusRequest,
    Welcome,
)
from broker.protocol.vocabulary import NO_KEY
from broker.protocol.wire import MESSAGE_BYTES_MAX, encode
from broker.transport.dial import HANDSHAKE_S_MAX
from client import between, connect, one_of
from client.asking.monitor import fetch_status
from tests.support.attacks import ALIVE, ATTACKS, NO_REPLY, Attack
from tests.support.brokers import DEADLINE_S, Overlay, brokers, wait_for
from tests.support.rawpeer import frame, hello, raw_peer

pytestmark = pytest.mark.slow

ROUNDS = 62
AT_ONCE = 40
RSS_GROWTH_MAX = 2 << 20


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def ups(overlay: Overlay, name: str) -> list[str]:
    """Whose connections have come up, each as often as they did."""
    return [line["peer"] for line in overlay.log(name, "up")]


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
        nobody = {"clients": 0, "srt": 0, "prt": 0, "retiring": 0}
        for name in overlay.names:
            wait_for(f"{name} is empty", lambda name=name: overlay.status(name)["counts"] == nobody)  # type: ignore[misc]
        assert ups(overlay, "b2").count("broker:b1") == 1, "the link between the brokers was lost"


def test_who_does_not_greet_in_time_is_told_so_and_dismissed(tmp_path: Path) -> None:
    """A connection that says nothing, and one that says its greeting a byte at a time."""

    async def silence(address: str) -> Goodbye | None:
        async with raw_peer(address) as peer:
            return await peer.goodbye()

    async def trickle(address: str) -> Goodbye | None:
        async with raw_peer(address) as peer:
            answer = asyncio.create_task(peer.goodbye())
            for byte in frame(hello("slowloris" * 100)):
                await peer.send(bytes([byte]))
                if (await asyncio.wait([answer], timeout=0.1))[0]:
                    break
            return await answer

    async def all_at_once(address: str) -> list[Goodbye | None]:
        return await asyncio.gather(*(attack(address) for attack in (silence, trickle) for _ in range(20)))

    with brokers(tmp_path) as overlay:
        before = open_files(overlay.pid("b1"))
        began = time.monotonic()
        goodbyes = asyncio.run(all_at_once(overlay.address("b1")))
        assert [goodbye and goodbye.code for goodbye in goodbyes] == ["timeout"] * 40
        assert HANDSHAKE_S_MAX <= time.monotonic() - began < HANDSHAKE_S_MAX + 3
        assert [line["code"] for line in overlay.log("b1", "refused")] == ["timeout"] * 40
        wait_for("all sockets are closed", lambda: open_files(overlay.pid("b1")) <= before)


def test_a_monitor_that_asks_before_it_has_its_answer_is_dismissed(tmp_path: Path) -> None:
    """Each answer is work for the broker and fills its memory until it is read."""

    async def ask_at_once(address: str) -> Goodbye | None:
        async with raw_peer(address) as peer:
            await peer.greet(hello("monitor", "monitor"))
            await peer.say(*[StatusRequest(True)] * 300)
            return await peer.goodbye()

    async def read_nothing(overlay: Overlay) -> int:
        address = overlay.address("b1")
        refused_before = len(overlay.log("b1", "refused"))
        async with connect(address, client_id="S") as client, raw_peer(address) as peer:
            for n in range(500):
                await client.subscribe({"n": n, "text": "x" * 1000})
            await peer.greet(hello("monitor", "monitor"))
            asked = 0
            while len(overlay.log("b1", "refused")) == refused_before:
                await peer.say(StatusRequest(True))
                await fetch_status(address)  # so that the broker has had its turn
                asked += 1
            return asked

    with brokers(tmp_path) as overlay:
        goodbye = asyncio.run(ask_at_once(overlay.address("b1")))
        assert goodbye is not None
        assert "status request" in goodbye.reason
        before = resident_bytes(overlay.pid("b1"))
        assert asyncio.run(read_nothing(overlay)) < 100
        assert resident_bytes(overlay.pid("b1")) - before < 64 << 20


def test_a_publisher_that_ignores_its_window_is_cut_off_before_it_fills_the_memory(tmp_path: Path) -> None:
    """Its subscriber has stopped reading, so its frames are held; an honest publisher would stop."""

    async def program(address: str) -> Goodbye | None:
        async with raw_peer(address) as subscriber, raw_peer(address) as publisher:
            await subscriber.join("stalled")
            await subscriber.say(Request(1, "sub", make_filter({})), first=1)
            await publisher.join("flood")
            await publisher.say(Request(1, "adv", make_filter({})), first=1)
            answer = asyncio.create_task(publisher.goodbye())
            number = 2
            while not answer.done():
                await publisher.say(Publish(number, {}, bytes(200_000)), first=number)
                number += 1
                await asyncio.sleep(0)
            return await answer

    with brokers(tmp_path, settings={"queue_bytes_max": 1 << 30}) as overlay:
        before = resident_bytes(overlay.pid("b1"))
        goodbye = asyncio.run(program(overlay.address("b1")))
        assert goodbye is not None
        assert "the window is" in goodbye.reason
        assert resident_bytes(overlay.pid("b1")) - before < 64 << 20


def test_a_message_at_the_limit_passes_between_brokers(tmp_path: Path) -> None:
    """On the way it gains its issuer's name and its stamp; the next broker must take it all the same."""

    async def program(overlay: Overlay) -> None:
        async with (
            raw_peer(overlay.address("b1")) as peer,
            connect(overlay.address("b2"), client_id="E") as client,
        ):
            await client.advertise({})
            values = one_of(*(f"{n}".zfill(1000) for n in range(MESSAGE_BYTES_MAX // 1003 - 1)))
            request = Request(1, "sub", Filter(("n",), (values,)))
            assert MESSAGE_BYTES_MAX - 5000 < len(encode(request)) <= MESSAGE_BYTES_MAX
            await client.settled()
            await peer.join("x" * 1024)
            await peer.say(request, first=1)
            await client.settled()

    with brokers(tmp_path, links=[("b1", "b2")], limits={"values_max": 2000}) as overlay:
        asyncio.run(program(overlay))
        wait_for("the subscription is at b2", lambda: overlay.status("b2")["counts"]["prt"] == 1)
        assert ups(overlay, "b2").count("broker:b1") == 1


def test_what_a_neighbour_must_not_say_is_passed_over_and_the_rest_is_done_once(tmp_path: Path) -> None:
    """It cannot be dismissed for good as a client is: the overlay hangs together by it."""

    async def program(address: str) -> tuple[Goodbye | None, Welcome]:
        greeting = hello("b2", "broker")
        life = greeting.incarnation
        adv = Operation("adv", "X", (NO_KEY, 1, life, 1), make_filter({"n": 1}))
        sub = Operation("sub", "X", (NO_KEY, 1, life, 2), make_filter({"n": 2}))
        bad = Operation("sub", "nobody", (NO_KEY, 1, life, 1), make_filter({}))
        async with raw_peer(address) as peer:
            await peer.greet(greeting)
            await peer.say(Announce("b2", life, ""), Join("X", life, "b2"), adv, bad, sub, first=1)
            goodbye = await peer.goodbye()
        async with raw_peer(address) as peer:
            welcome = await peer.greet(greeting)
            await peer.say(sub, first=welcome.received + 1)
            both = {"clients": 1, "srt": 1, "prt": 1}
            async with asyncio.timeout(DEADLINE_S):
                while not both.items() <= (await fetch_status(address))["counts"].items():
                    await asyncio.sleep(0.01)
        return goodbye, welcome

    with brokers(tmp_path, links=[("b2", "b1")], start=False) as overlay:
        overlay.start("b1")
        overlay.process("b1").wait_until_ready()
        goodbye, welcome = asyncio.run(program(overlay.address("b1")))
        assert goodbye is not None
        assert (goodbye.code, welcome.received) == ("protocol", 4)
        assert "nobody" in goodbye.reason
        assert overlay.is_alive("b1")


def test_a_client_that_broke_the_protocol_is_gone_at_once_and_cannot_resume(tmp_path: Path) -> None:
    async def program(address: str) -> Goodbye | None:
        greeting = hello("E")
        async with raw_peer(address) as peer:
            welcome = await peer.greet(greeting)
            await peer.say(Request(1, "adv", make_filter({})), first=5)
            await peer.goodbye()
        assert (await fetch_status(address))["counts"]["clients"] == 0
        async with raw_peer(address) as peer:
            again = hello(
                "E", incarnation=greeting.incarnation, peer_incarnation=welcome.incarnation, received=1
            )
            await peer.say(again)
            return await peer.goodbye()

    with brokers(tmp_path, settings={"grace_ms": 60_000}) as overlay:
        goodbye = asyncio.run(program(overlay.address("b1")))
        assert goodbye == Goodbye("protocol", "message 1 of this link was due, not 5")
