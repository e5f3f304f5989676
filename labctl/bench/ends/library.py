"""The ends of a broker chain under test: ordinary programs that use the client library."""

from __future__ import annotations

import asyncio
from typing import Any

from client import Delivery, anything, connect
from labctl.bench.ends import events
from labctl.bench.ends.meters import RateMeter, TripMeter
from labctl.workers import Ready, serve


async def background(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    """Holds the subscriptions that stand at one broker beside the measured one."""
    async with connect(arguments["address"], client_id=f"background-{arguments['broker']}") as session:
        filters = events.background(arguments["subscriptions"], arguments["broker"])
        await asyncio.gather(*(session.subscribe(filter_) for filter_ in filters))
        await session.settled()
        await ready({})
    return {}


async def subscriber(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    meter = RateMeter(arguments["events"])
    async with connect(
        arguments["address"], client_id="subscriber", on_delivery=lambda _delivery: meter.add(1)
    ) as session:
        await session.subscribe({"process": "p1"})
        await session.settled()
        await ready({})
        return await meter.done


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
    last = arguments["round_trips"] - 1
    done = asyncio.get_running_loop().create_future()

    def arrived(delivery: Delivery) -> None:
        number = delivery.event["n"]
        session.publish_nowait({"process": "pong", "n": number}, delivery.payload)
        if number == last:
            done.set_result(None)

    async with connect(arguments["address"], client_id="echo", on_delivery=arrived) as session:
        await session.advertise({"process": "pong"})
        await session.subscribe({"process": "ping"})
        await session.settled()
        await ready({})
        await done
    return {}


async def ping(arguments: dict[str, Any], ready: Ready) -> dict[str, Any]:
    payload = b"x" * arguments["payload_bytes"]

    def send(number: int) -> None:
        session.publish_nowait({"process": "ping", "n": number}, payload)

    meter = TripMeter(arguments["round_trips"], send)
    async with connect(
        arguments["address"], client_id="ping", on_delivery=lambda _delivery: meter.arrived()
    ) as session:
        await session.advertise({"process": "ping"})
        await session.subscribe({"process": "pong"})
        await session.settled()
        await ready({})
        meter.start()
        return await meter.done


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
