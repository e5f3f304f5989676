"""Transactions at real brokers while connections are lost: clients that are away, brokers in doubt, lifetimes."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.vocabulary import PROTOCOLS
from client import Connection, Delivery, Outcome, OutcomeUnknown, TransactionAborted, connect
from client.asking.monitor import fetch_status
from tests.support import steady
from tests.support.brokers import Overlay
from tests.support.cuttable import Cuttable
from tests.support.observe import LINE, cuttable_overlay, eventually, in_loop, link_becomes, running
from tests.support.playing import nothing_is_open

pytestmark = pytest.mark.slow

DATA = {"space": "data"}
RECORDS_MAX = 40
"""Of transactions that are open when somebody looks; what leaks grows by hundreds."""


async def publisher(stack: AsyncExitStack, where: str, **settings: Any) -> Connection:
    session = await stack.enter_async_context(connect(where, client_id="E", **settings))
    await session.advertise(DATA)
    await session.settled()
    return session


async def subscriber(
    stack: AsyncExitStack, where: str, client: str = "A", got: list[Delivery] | None = None
) -> Connection:
    take = None if got is None else got.append
    session = await stack.enter_async_context(connect(where, client_id=client, on_delivery=take))
    await session.subscribe(DATA)
    await session.settled()
    return session


async def open_at(overlay: Overlay, broker: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await fetch_status(overlay.address(broker)))["open"]["transactions"]
    return found


@in_loop
async def test_a_subscriber_that_is_away_does_not_hold_up_a_commit(tmp_path: Path) -> None:
    got: list[Delivery] = []
    async with running(tmp_path, LINE) as overlay, AsyncExitStack() as stack:
        way = await stack.enter_async_context(Cuttable(overlay.address("b3")))
        engine = await publisher(stack, overlay.address("b1"))
        await subscriber(stack, way.address, got=got)
        way.take_away()
        await link_becomes(overlay.address("b3"), "client:A", state="away")
        async with engine.transaction("d-tx") as tx:
            assert await tx.publish({**DATA, "n": 1}) == 1
        assert tx.outcome == Outcome("committed")
        assert got == []
        way.bring_back()

        async def arrives() -> bool:
            return [delivery.event["n"] for delivery in got] == [1]

        await eventually("the publication", arrives)
        await nothing_is_open(overlay)


@in_loop
async def test_a_subscriber_that_goes_away_meanwhile_does_not_either(tmp_path: Path) -> None:
    async with running(tmp_path, LINE) as overlay, AsyncExitStack() as stack:
        way = await stack.enter_async_context(Cuttable(overlay.address("b3")))
        engine = await publisher(stack, overlay.address("b1"))
        await subscriber(stack, way.address, got=[])
        way.freeze()
        async with engine.transaction("d-tx") as tx:
            publishing = asyncio.create_task(tx.publish({**DATA, "n": 1}))

            async def is_pending() -> bool:
                rows = await open_at(overlay, "b3")
                return any("client:A" in awaiting for row in rows for awaiting in row["operations"].values())

            await eventually("b3 waits for A", is_pending)
            way.take_away()
            assert await publishing == 1
        way.thaw()
        way.bring_back()
        await nothing_is_open(overlay)


@in_loop
async def test_a_broker_in_doubt_is_seen_and_decides_when_its_link_is_back(tmp_path: Path) -> None:
    async with cuttable_overlay(tmp_path) as (overlay, links), AsyncExitStack() as stack:
        engine = await publisher(stack, overlay.address("b1"))
        got: list[Delivery] = []
        await subscriber(stack, overlay.address("b3"), got=got)
        async with engine.transaction("d-tx") as tx:
            await tx.publish({**DATA, "n": 1})
            links[LINE[0]].take_away()
            await link_becomes(overlay.address("b2"), "broker:b1", state="away")
            committing = asyncio.create_task(tx.commit())

            async def waits() -> bool:
                rows = await open_at(overlay, "b1")
                return [(row["tx"], row["state"], row["awaiting"]) for row in rows] == [
                    (tx.tx, "yes", ["broker:b2"])
                ]

            await eventually("b1 shows for whom it waits", waits)
            assert [row["state"] for row in await open_at(overlay, "b3")] == ["active"]
            links[LINE[0]].bring_back()
            await committing
        await nothing_is_open(overlay)
        assert [delivery.event["n"] for delivery in got] == [1]


@in_loop
async def test_a_transaction_ends_with_its_lifetime_though_its_coordinator_sits_still(tmp_path: Path) -> None:
    async with running(tmp_path, LINE) as overlay, AsyncExitStack() as stack:
        engine = await publisher(stack, overlay.address("b1"))
        tx = engine.transaction("d-tx", lifetime_s=0.2)
        with pytest.raises(TransactionAborted, match="its lifetime is over"):
            async with tx:
                await nothing_is_open(overlay)
        assert tx.outcome is not None
        assert tx.outcome.state == "aborted"


@in_loop
async def test_a_commit_without_an_answer_is_unknown_until_the_answer_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as overlay, AsyncExitStack() as stack:
        way = await stack.enter_async_context(Cuttable(overlay.address("b1")))
        engine = await publisher(stack, way.address, timeout_s=1.0)
        tx = await engine.transaction("d-tx").__aenter__()
        await tx.publish({**DATA, "n": 1})
        votes = tx.voted

        def freeze_at_the_vote(objection: str) -> None:
            way.freeze_answers()
            votes(objection)

        tx.voted = freeze_at_the_vote  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown):
            await tx.commit()
        assert tx.outcome is not None
        assert tx.outcome.state == "unknown"
        way.thaw()

        async def is_known() -> bool:
            return tx.outcome == Outcome("committed")

        await eventually("the outcome", is_known)
        await nothing_is_open(overlay)


@in_loop
async def test_a_cancelled_block_aborts_at_once(tmp_path: Path) -> None:
    async with running(tmp_path, LINE) as overlay, AsyncExitStack() as stack:
        engine = await publisher(stack, overlay.address("b1"))
        got: list[Delivery] = []
        await subscriber(stack, overlay.address("b3"), got=got)
        begun = asyncio.Event()

        async def work() -> None:
            async with engine.transaction("d-tx") as tx:
                await tx.publish({**DATA, "n": 1})
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await nothing_is_open(overlay)
        await engine.publish({**DATA, "n": 2})

        async def second_arrives() -> bool:
            return [delivery.event["n"] for delivery in got] == [2]

        await eventually("only what is not of the transaction", second_arrives)


@in_loop
async def test_what_brokers_tell_of_operations_stands_in_the_history_and_not_in_the_log(
    tmp_path: Path,
) -> None:
    history = tmp_path / "b1.jsonl"
    async with running(tmp_path, settings={"history": str(history)}) as overlay, AsyncExitStack() as stack:
        engine = await publisher(stack, overlay.address("b1"))
        async with engine.transaction("s-tx") as plan:
            plan.publish({**DATA, "n": 1})
        log = overlay.log("b1")
    names = [json.loads(line)["name"] for line in history.read_text().splitlines()]
    assert names[0] == "history"
    assert {"arrived", "processed", "placed", "committed", "sent", "client-joined"} <= set(names)
    assert {line["event"] for line in log} & set(names) == {"client-joined"}


@in_loop
async def test_one_that_begins_and_falls_silent_keeps_nobody_from_committing(tmp_path: Path) -> None:
    """H18; it is still open when all others have committed, so that none of them has waited for its lifetime."""
    async with running(tmp_path, LINE) as overlay, AsyncExitStack() as stack:
        engine = await publisher(stack, overlay.address("b1"))
        agent = await subscriber(stack, overlay.address("b3"))
        silent = await stack.enter_async_context(connect(overlay.address("b2"), client_id="silent"))
        with pytest.raises(TransactionAborted, match="lifetime_ms_max"):
            await silent.transaction("d-tx", lifetime_s=3600).__aenter__()
        forgotten = await silent.transaction("d-tx", lifetime_s=60).__aenter__()
        for number in range(3):
            async with engine.transaction("d-tx") as giving:
                await giving.publish({**DATA, "n": number})
            async with agent.transaction("d-tx") as taking:
                await taking.subscribe({"space": "more", "n": number})
            assert (giving.outcome, taking.outcome) == (Outcome("committed"), Outcome("committed"))
        assert forgotten.outcome is None
        assert [row["tx"] for row in await open_at(overlay, "b1")] == [forgotten.tx]
        await forgotten.abort()
        await nothing_is_open(overlay)


@in_loop
async def test_nothing_grows_under_steady_traffic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few seconds of what `tests.support.steady` does for minutes: memory tells nothing so soon."""
    monkeypatch.setattr(steady, "LINE_S", 0.5)
    async with running(tmp_path, LINE) as overlay:
        grown = await steady.steady(overlay, 6.0, records_max=RECORDS_MAX)
    assert [fault for fault in grown if "rss_bytes" not in fault] == []
    _, committed, *_ = capsys.readouterr().out.splitlines()[-1].split()
    assert int(committed) > len(PROTOCOLS)
