"""Without durability: a broker that is killed or stopped for a while, a client that is killed: who learns what, and when.

That a broker which comes back without its state ends, and the others live, is in `tests/broker/test_process.py`; that
nothing is left half done of the transactions of a killed client, in `test_agrees_with_model.py`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from client import (
    Connection,
    ConnectionFailed,
    Delivery,
    Frame,
    Outcome,
    Plan,
    Tcm,
    TimedOut,
    TransactionAborted,
    connect,
)
from labctl.paths import PROJECT
from tests.support.numbered import Traffic
from tests.support.observe import LINE, in_loop, link_becomes, logged, running
from tests.support.playing import nothing_is_open

pytestmark = pytest.mark.slow

DATA = {"space": "data"}
LIFETIME_S, TIMEOUT_S = 1.5, 4.0
SLACK_S = 2.0
"""What a busy machine may add."""


async def told(work: Coroutine[Any, Any, Any]) -> tuple[object, float]:
    """What a caller learns, and after how long."""
    began = time.monotonic()
    try:
        answer = await work
    except Exception as error:  # noqa: BLE001 whatever it is, it is what is asked for
        answer = error
    return answer, time.monotonic() - began


async def transact(session: Connection, protocol: str) -> None:
    async with session.transaction(protocol, lifetime_s=LIFETIME_S) as tx:
        await tx.publish({**DATA, "n": 2})


def note(numbers: list[int], delivery: Delivery) -> None:
    numbers.append(int(delivery.event["n"]))


@in_loop
async def test_a_broker_in_the_middle_is_killed_while_others_work(tmp_path: Path) -> None:
    got: dict[str, list[int]] = {name: [] for name in ("E", "L", "A", "M")}
    limits = {"plan_lifetime_ms": round(1e3 * LIFETIME_S)}
    async with running(tmp_path, LINE, limits=limits) as overlay, AsyncExitStack() as stack:
        engine, near, far, lost = [
            await stack.enter_async_context(
                connect(
                    overlay.address(broker),
                    client_id=name,
                    on_delivery=partial(note, got[name]),
                    timeout_s=TIMEOUT_S,
                    reconnect_s=1.0,
                )
            )
            for name, broker in (("E", "b1"), ("L", "b1"), ("A", "b3"), ("M", "b2"))
        ]
        await engine.advertise(DATA)
        for session in (near, far):
            await session.subscribe(DATA)
            await session.settled()
        tx = await engine.transaction("d-tx", lifetime_s=LIFETIME_S).__aenter__()
        await tx.publish({**DATA, "n": 1})
        plan = Plan()
        plan.publish({**DATA, "n": 3})
        overlay.kill("b2")
        await link_becomes(overlay.address("b1"), "broker:b2", state="away")
        for n in range(100, 200):
            await engine.publish({**DATA, "n": n})

        async def is_over() -> None:
            async for _ in lost.deliveries():
                raise AssertionError("they go to its callback")

        answers = await asyncio.gather(
            told(tx.commit()),
            told(transact(engine, "d-tx")),
            told(transact(engine, "d-tx-ni")),
            told(transact(engine, "d-tx-optimistic")),
            told(engine.execute(plan, "s-tx-safe")),
            told(engine.execute(plan, "s-tx")),
            told(engine.settled()),
            told(is_over()),
        )
        *aborted, safe, fast, settled, session_end = answers
        for answer, after_s in aborted:
            assert isinstance(answer, TransactionAborted)
            assert str(answer) == "its lifetime is over"
            assert after_s < LIFETIME_S + SLACK_S
        assert safe[0] == Outcome("aborted", "its lifetime is over")
        assert safe[1] < LIFETIME_S + SLACK_S
        # Without votes its own broker has committed, and what the others do nobody knows.
        assert isinstance(fast[0], Outcome)
        assert (fast[0].state, fast[0].reason) == (
            "unknown",
            f"the broker has not said how it ended within {TIMEOUT_S:g} s",
        )
        assert isinstance(settled[0], TimedOut)
        assert isinstance(session_end[0], ConnectionFailed)
        assert session_end[1] < 1.0 + SLACK_S
        assert [n for n in got["L"] if n >= 100] == list(range(100, 200)), "whoever is on this side goes on"
        assert got["A"] == [], "and what is for the other side waits for a broker that does not come back"


@pytest.mark.parametrize("durable", ["", "fsync"], ids=["keeps nothing", "durable"])
@in_loop
async def test_a_broker_that_stands_still_for_longer_than_silence_is_found_again_and_nothing_is_lost(
    tmp_path: Path, durable: str
) -> None:
    """As SIGSTOP for 20 s does with the silence of 15 s that is the default."""
    settings = {"silence_ms": 600}
    async with (
        running(tmp_path, LINE, settings=settings, durable=durable) as overlay,
        AsyncExitStack() as stack,
    ):
        homes = {name: overlay.address(name) for name in overlay.names}
        traffic = Traffic({"P1": homes["b1"], "P2": homes["b2"]}, {"S2": homes["b2"], "S3": homes["b3"]}, 100)
        engine = await stack.enter_async_context(
            connect(homes["b1"], client_id="E", silence_s=0.6, timeout_s=20)
        )
        await engine.advertise(DATA)
        await traffic.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(traffic.run())
            async with engine.transaction("d-tx", lifetime_s=20) as tx:
                await tx.publish({**DATA, "n": 1})
                overlay.signal("b2", signal.SIGSTOP)
                await logged(overlay, "b1", "silent", peer="broker:b2")
                await asyncio.sleep(1)
                overlay.signal("b2", signal.SIGCONT)
            await asyncio.sleep(0.3)
            traffic.stop()
        assert await traffic.end() == []
        assert tx.outcome == Outcome("committed")
        await nothing_is_open(overlay)


COORDINATOR = """
import asyncio, sys
from client import connect

async def main():
    async with connect(sys.argv[1], client_id="V") as session:
        await session.advertise({"space": "control"})
        await session.settled()
        async with session.transaction("d-tx") as tx:
            await tx.tcm({"space": "control"})
            print("open", flush=True)
            await asyncio.sleep(60)

asyncio.run(main())
"""
PARTICIPANT = """
import asyncio, sys
from client import connect

async def on_tcm(tcm, frame):
    print("open", flush=True)
    await asyncio.sleep(60)

async def main():
    async with connect(sys.argv[1], client_id="V", on_tcm=on_tcm) as session:
        await session.subscribe({"space": "control"})
        await session.settled()
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""
GRACE_MS = 500


@asynccontextmanager
async def client_process(program: str, address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, address, cwd=PROJECT, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def says(process: asyncio.subprocess.Process, word: str) -> None:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), 15)
    assert line == f"{word}\n".encode()


@in_loop
async def test_a_participant_learns_after_the_grace_time_that_its_coordinator_was_killed(
    tmp_path: Path,
) -> None:
    frames: list[Frame] = []

    async def on_tcm(_: Tcm, frame: Frame) -> None:
        frames.append(frame)

    async with running(tmp_path, LINE, settings={"grace_ms": GRACE_MS}) as overlay, AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            connect(overlay.address("b3"), client_id="A", on_tcm=on_tcm, history=tmp_path / "A.jsonl")
        )
        await session.subscribe({"space": "control"})
        await session.settled()
        async with client_process(COORDINATOR, overlay.address("b1")) as victim:
            await says(victim, "open")
            victim.kill()
            began = time.monotonic()
            await victim.wait()
        await nothing_is_open(overlay)
        assert GRACE_MS / 1e3 <= time.monotonic() - began < GRACE_MS / 1e3 + SLACK_S
        with pytest.raises(TransactionAborted):
            await frames[0].subscribe(DATA)
    ended = [
        line
        for line in map(json.loads, (tmp_path / "A.jsonl").read_text().splitlines())
        if line["name"] == "ended"
    ]
    assert [(line["fields"]["outcome"], line["fields"]["reason"]) for line in ended] == [
        ("aborted", "its coordinator V is gone")
    ]


@in_loop
async def test_a_coordinator_learns_after_the_grace_time_that_a_participant_was_killed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, LINE, settings={"grace_ms": GRACE_MS}) as overlay, AsyncExitStack() as stack:
        engine = await stack.enter_async_context(connect(overlay.address("b1"), client_id="E"))
        await engine.advertise({"space": "control"})
        async with client_process(PARTICIPANT, overlay.address("b3")) as victim:
            await says(victim, "ready")
            await engine.settled()

            async def ask() -> None:
                async with engine.transaction("d-tx") as tx:
                    await tx.tcm({"space": "control"})

            asking = asyncio.create_task(ask())
            await says(victim, "open")
            victim.kill()
            began = time.monotonic()
            with pytest.raises(TransactionAborted, match="participant V is gone"):
                await asking
            assert GRACE_MS / 1e3 <= time.monotonic() - began < GRACE_MS / 1e3 + SLACK_S
        await nothing_is_open(overlay)
