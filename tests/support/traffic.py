"""Two clients, E and A, that publish numbered events to each other."""

from __future__ import annotations

import pytest

from client import Connection, TimedOut


async def introduce(e: Connection, a: Connection) -> None:
    """E and A publish to each other."""
    for publisher, subscriber, to in ((e, a, "A"), (a, e, "E")):
        await publisher.advertise({"to": to})
        await subscriber.subscribe({"to": to})
    await e.settled()
    await a.settled()


async def publish(session: Connection, to: str, numbers: range, size: int = 0) -> None:
    for number in numbers:
        await session.publish({"to": to, "n": number}, bytes(size))


async def receive(session: Connection, count: int) -> list[object]:
    """The numbers of the next deliveries."""
    return [(await session.next_delivery(30)).event["n"] for _ in range(count)]


async def nothing_more(*sessions: Connection) -> None:
    """Whatever was under way to anybody has arrived, and nobody got more than was taken already."""
    for session in sessions:
        await session.settled()
    for session in sessions:
        await session.settled()
        with pytest.raises(TimedOut):
            await session.next_delivery(0.05)
