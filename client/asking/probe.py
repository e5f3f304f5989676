"""Proof that an overlay is up: an event through every link, in both directions.

One client per broker subscribes to what is meant for it. The overlay is a tree, so an event from a
client of one broker to a client of its neighbour can only have come over the link between them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from client.connection import Connection, connect
from client.core.errors import ClientError
from client.core.session import Delivery

TIMEOUT_S = 10.0


class NotUp(ClientError):
    """A link, or a lone broker, that lets nothing through."""


async def prove(
    links: Sequence[Sequence[str]], addresses: Mapping[str, str], timeout_s: float = TIMEOUT_S
) -> dict[str, float]:
    """Milliseconds that an event took from a client to one at the neighbour, by `b1>b2`."""
    ends = {broker: broker for broker in addresses}
    ways = [way for here, there in links for way in ((here, there), (there, here))]
    if not ways:  # a client does not get its own events, so a broker alone needs two of them
        [alone] = addresses
        ends[f"{alone}+"] = alone
        ways = [(alone, f"{alone}+"), (f"{alone}+", alone)]
    probe = _Probe(ways)
    try:
        async with asyncio.timeout(timeout_s):
            async with AsyncExitStack() as leaving:
                sessions = {
                    end: await leaving.enter_async_context(
                        connect(addresses[broker], client_id=f"probe.{end}", on_delivery=probe.arrived)
                    )
                    for end, broker in ends.items()
                }
                return await probe.run(sessions)
    except TimeoutError:
        raise NotUp(f"no event came through in {timeout_s:g} s: {probe.missing()}") from None
    except ClientError as error:
        raise NotUp(f"the overlay cannot be probed: {error}") from None


class _Probe:
    def __init__(self, ways: list[tuple[str, str]]) -> None:
        self._ways = ways
        self._left_at: dict[str, float] = {}
        self._took_ms: dict[str, float] = {}
        self._all = asyncio.Event()

    def arrived(self, delivery: Delivery) -> None:
        way = str(delivery.event["way"])
        self._took_ms[way] = round((time.monotonic() - self._left_at[way]) * 1e3, 3)
        if len(self._took_ms) == len(self._ways):
            self._all.set()

    async def run(self, sessions: Mapping[str, Connection]) -> dict[str, float]:
        for end, session in sessions.items():
            await session.subscribe({"probe": end})
            for target in {there for here, there in self._ways if here == end}:
                await session.advertise({"probe": target})
        for session in sessions.values():
            await session.settled()
        for here, there in self._ways:
            way = f"{here}>{there}"
            self._left_at[way] = time.monotonic()
            await sessions[here].publish({"probe": there, "way": way})
        await self._all.wait()
        return dict(self._took_ms)

    def missing(self) -> str:
        return ", ".join(way for way in (f"{a}>{b}" for a, b in self._ways) if way not in self._took_ms)
