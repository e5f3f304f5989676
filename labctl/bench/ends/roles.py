"""The clients of a dispatching transaction, as processes of a benchmark: engine E, dispatcher D, agent A."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from client.connection import Connection, connect
from client.core.errors import TransactionAborted
from client.core.plans import Plan
from client.core.transactions import Frame, Tcm
from client.scenarios.approaches import approach_of
from labctl.bench.ends.meters import WARM_UP_SHARE, percentiles_us
from labctl.workers import Ready, serve

TRIES_MAX = 10
DISPATCHED = "dispatched"
"""The process of transactions; regular events beside them are of another, or their ends would take part."""


def instance(text: str) -> dict[str, str]:
    return {"process": DISPATCHED, "instance": text}


def control(client: str) -> dict[str, str]:
    return {"process": "control", "to": client}


async def dispatch(session: Any, protocol: str, name: str) -> None:
    """Hand one instance over: ask D, who asks A and lets go of it, and publish its first step."""
    if approach_of(protocol).is_planned:
        plan = Plan()
        at_d = plan.tcm("D")
        at_d.tcm("A").subscribe(instance(name))
        at_d.unsubscribe(instance(name))
        plan.publish(instance(name))
        (await session.execute(plan, protocol)).raise_unless_committed()
        return
    async with session.transaction(protocol) as tx:
        await tx.tcm(control("D"), name.encode())
        await tx.publish(instance(name))


async def react(client: str, tcm: Tcm, frame: Frame) -> None:
    """What D and A do when they are asked."""
    name = tcm.payload.decode()
    if client == "D":
        await frame.tcm(control("A"), tcm.payload)
        await frame.unsubscribe(instance(name))
    else:
        await frame.subscribe(instance(name))


async def settle_in(session: Any, client: str) -> None:
    """What each of them advertises and subscribes to before the first transaction."""
    if client == "E":
        await session.advertise({"process": DISPATCHED})
    if client != "A":
        await session.advertise({"process": "control"})
    if client != "E":
        await session.subscribe(control(client))
    if client == "D":
        await session.subscribe({"process": DISPATCHED})
    await session.settled()


async def participant(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    client = arguments["client"]
    async with connect(
        arguments["address"],
        client_id=client,
        on_delivery=lambda _delivery: None,
        on_tcm=lambda tcm, frame: react(client, tcm, frame),
        **_history(arguments, client),
    ) as session:
        await settle_in(session, client)
        await ready({})
        await asyncio.Event().wait()
    return {}


def _history(arguments: dict[str, Any], client: str) -> dict[str, Any]:
    """Of `connect`: where this client keeps its history, if it is to keep one."""
    if "history" not in arguments:
        return {}
    file = f"{arguments['history']}/{client}.jsonl"
    return {"history": file, "history_detail": arguments["detail"]}


async def engine(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    """As many transactions as asked for, one after the other or so many at a time."""
    async with connect(arguments["address"], client_id="E", **_history(arguments, "E")) as session:
        await settle_in(session, "E")
        await ready({})
        taken: list[float] = []
        warm = int(arguments["transactions"] * WARM_UP_SHARE)
        began, aborted = 0.0, 0
        numbers = iter(range(arguments["transactions"] + warm))

        async def one_after_the_other() -> None:
            nonlocal began, aborted
            for number in numbers:
                started = perf_counter()
                if number == warm:
                    began = started
                name = f"{arguments['salt']}-{number}"
                aborted += await _dispatch_at_last(session, arguments["protocol"], name)
                taken.append(perf_counter() - started)

        await asyncio.gather(*(one_after_the_other() for _ in range(arguments["in_flight"])))
        seconds = perf_counter() - began
        counted = taken[warm:]
        return {
            **percentiles_us(counted),
            "mean_us": 1e6 * sum(counted) / len(counted),
            "transactions_per_s": len(counted) / seconds,
            "aborted": aborted,
        }


async def _dispatch_at_last(session: Any, protocol: str, name: str) -> int:
    """How often it had to be tried again."""
    for again in range(TRIES_MAX):
        try:
            await dispatch(session, protocol, f"{name}-{again}")
        except TransactionAborted:
            continue
        return again
    raise TransactionAborted(f"{name} was aborted {TRIES_MAX} times")


async def paced(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    """So many transactions a second, until the benchmark ends."""
    async with connect(arguments["address"], client_id="E") as session:
        await settle_in(session, "E")
        await ready({})
        await _keep_pace(session, arguments)
    return {}


async def _keep_pace(session: Connection, arguments: dict[str, Any]) -> None:
    number = 0
    while True:
        pause = asyncio.create_task(asyncio.sleep(1 / arguments["per_s"]))
        await _dispatch_at_last(session, arguments["protocol"], f"{arguments['salt']}-{number}")
        number += 1
        await pause


if __name__ == "__main__":
    serve({"participant": participant, "engine": engine, "paced": paced})
