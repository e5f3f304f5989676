"""Nothing is lost, doubled or reordered, however often the connections of a whole overlay are cut."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import msgspec
import pytest

from broker.protocol.delay import Delay
from client import Connection, connect
from tests.support.cuttable import Cuttable, cut_at_random
from tests.support.observe import cuttable_overlay, in_loop
from tests.support.traffic import introduce, nothing_more, publish, receive

pytestmark = pytest.mark.slow

BURST = 100
JITTER = Delay(delay_ms=1, sigma=0.5)


class Traffic(msgspec.Struct, frozen=True):
    events: int
    payload_bytes: int = 0
    publishers_rest_s: float = 0.0
    """Up to so long, after every burst."""
    subscribers_rest_s: float = 0.0
    queue_max: int = 10_000


BRISK = Traffic(20_000, publishers_rest_s=0.04)
CONGESTED = Traffic(8_000, payload_bytes=4000, subscribers_rest_s=0.04, queue_max=50)
"""Publishers wait, and at any moment frames lie received and unprocessed in clients and brokers."""


async def publish_in_bursts(session: Connection, to: str, traffic: Traffic, random: Random) -> None:
    for start in range(0, traffic.events, BURST):
        await publish(session, to, range(start, start + BURST), traffic.payload_bytes)
        await asyncio.sleep(random.uniform(0, traffic.publishers_rest_s))


async def receive_in_bursts(session: Connection, traffic: Traffic, random: Random) -> list[object]:
    got: list[object] = []
    while len(got) < traffic.events:
        got += await receive(session, BURST)
        await asyncio.sleep(random.uniform(0, traffic.subscribers_rest_s))
    return got


async def ask_again_and_again(session: Connection, answered: list[int]) -> None:
    while True:
        await session.subscribe({"to": "nobody", "n": len(answered)})
        await session.settled()
        await session.unsubscribe({"to": "nobody"})
        answered.append(len(answered))


@pytest.mark.parametrize("traffic", [BRISK, CONGESTED], ids=["brisk", "congested"])
@in_loop
async def test_everything_arrives_once_and_in_order_while_all_links_are_cut_again_and_again(
    tmp_path: Path, traffic: Traffic
) -> None:
    random = Random(2)
    delays = {("b1", "b2"): msgspec.structs.asdict(JITTER)}
    async with (
        cuttable_overlay(tmp_path, delays=delays) as (overlay, between),
        Cuttable(overlay.address("b1")) as near,
        Cuttable(overlay.address("b3")) as far,
        connect(near.address, client_id="E", queue_max=traffic.queue_max) as e,
        connect(far.address, client_id="A", queue_max=traffic.queue_max, delay=JITTER) as a,
    ):
        await introduce(e, a)
        links = [near, far, *between.values()]
        answered: list[int] = []
        disturbers = [
            asyncio.create_task(cut_at_random(links, random, 0.06)),
            asyncio.create_task(ask_again_and_again(e, answered)),
        ]
        async with asyncio.timeout(60):
            *_, at_a, at_e = await asyncio.gather(
                publish_in_bursts(e, "A", traffic, random),
                publish_in_bursts(a, "E", traffic, random),
                receive_in_bursts(a, traffic, random),
                receive_in_bursts(e, traffic, random),
            )
        assert not any(task.done() for task in disturbers), "a request failed"
        for task in disturbers:
            task.cancel()
        assert at_a == at_e == list(range(traffic.events))
        assert min(link.connections for link in links) > 4, "the links were hardly cut"
        assert answered
        await nothing_more(e, a)
