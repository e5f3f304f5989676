"""The ends of a broker chain under test: ordinary programs that use the client library."""

from __future__ import annotations

import asyncio
from typing import Any

from client import Delivery, anything, connect
from labctl.bench import events
from labctl.bench.workers import Ready, clock, percentiles_us, rate, serve


async def background(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    """Holds the subscriptions that stand at one broker beside the measured one."""
    async with connect(arguments["address"], client_id=f"background-{arguments['broker']}") as session:
        filters = events.background(arguments["subscriptions"], arguments["broker"])
        await asyncio.gather(*(session.subscribe(filter_) for filter_ in filters))
        await session.settled()
        await ready({})
    return {}


async def subscriber(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    expected: int = arguments["events"]
    done = asyncio.get_running_loop().create_future()
    count = 0
    first = last = 0.0

    def arrived(_delivery: Delivery) -> None:
        nonlocal count, first, last
        if not count:
            first = clock()
        count += 1
        if count == expected:
            last = clock()
            done.set_result(None)

    async with connect(arguments["address"], client_id="subscriber", on_delivery=arrived) as session:
        await session.subscribe({"process": "p1"})
        await session.settled()
        await ready({})
        await done
    return {"events_per_s": rate(count, first, last)}


async def publisher(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    payload = b"x" * arguments["payload_bytes"]
    async with connect(arguments["address"], client_id="publisher") as session:
        await session.advertise({"process": anything()})
        await session.settled()
        await ready({})
        for number in range(arguments["events"]):
            await session.publish(events.event(number), payload)
    return {}


async def echo(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    async with connect(arguments["address"], client_id="echo") as session:
        await session.advertise({"process": "pong"})
        await session.subscribe({"process": "ping"})
        await session.settled()
        waiting = asyncio.ensure_future(ready({}))
        async for delivery in session.deliveries():
            number = delivery.event["n"]
            await session.publish({"process": "pong", "n": number}, delivery.payload)
            if number == arguments["round_trips"] - 1:
                break
        await waiting
    return {}


async def ping(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    payload = b"x" * arguments["payload_bytes"]
    samples = []
    async with connect(arguments["address"], client_id="ping") as session:
        await session.advertise({"process": "ping"})
        await session.subscribe({"process": "pong"})
        await session.settled()
        await ready({})
        deliveries = session.deliveries()
        for number in range(arguments["round_trips"]):
            started = clock()
            await session.publish({"process": "ping", "n": number}, payload)
            await anext(deliveries)
            samples.append(clock() - started)
    return percentiles_us(samples[len(samples) // 10 :])


if __name__ == "__main__":
    serve(
        {
            "background": background,
            "subscriber": subscriber,
            "publisher": publisher,
            "echo": echo,
            "ping": ping,
        }
    )
