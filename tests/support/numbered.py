"""Regular events with numbers: what a subscriber should have got, it has got, once, and in order.

Each publisher counts its events, and each subscriber that gets all of them expects the next number of each publisher.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from random import Random

from broker.protocol.filters import Value
from client import Connection, Delivery, connect
from tests.support.cuttable import Cuttable

SPACE = "numbered"
AWAY_SHARE, AWAY_S_MAX = 0.3, 3.0
"""How often a connection that is cut does not come back at once."""


class Subscriber:
    """Gets all events of all publishers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.newest: dict[str, int] = {}
        self.faults: list[str] = []
        self.count = 0
        self.latest_s = 0.0
        """The longest that an event was under way."""

    def take(self, delivery: Delivery) -> None:
        event = delivery.event
        if event["space"] != SPACE:
            return
        publisher, number = str(event["by"]), int(event["n"])
        due = self.newest.get(publisher, 0) + 1
        if number != due:
            self.faults.append(f"{self.name} got event {number} of {publisher}, and {due} was due")
        self.newest[publisher] = number
        self.count += 1
        self.latest_s = max(self.latest_s, time.monotonic() - float(event["at"]))


class Traffic:
    """Publishers and subscribers at these brokers, by their names."""

    def __init__(
        self,
        publishers: Mapping[str, str],
        subscribers: Mapping[str, str],
        rate: float,
        payload_bytes_max: int = 200,
        ways: Mapping[str, Cuttable] | None = None,
    ) -> None:
        """`ways`: of more subscribers, whose connections are cut; they are away for a while, too."""
        self._homes = {**publishers, **subscribers}
        self._payload_bytes_max = payload_bytes_max
        self._ways = ways or {}
        self._period_s = 1 / rate
        self.published = dict.fromkeys(publishers, 0)
        self.subscribers = [Subscriber(name) for name in (*subscribers, *self._ways)]
        self._stack = AsyncExitStack()
        self._sessions: dict[str, Connection] = {}
        self._is_over = False

    async def begin(self) -> None:
        """Everybody is known everywhere."""
        takers = {subscriber.name: subscriber.take for subscriber in self.subscribers}
        ways = {
            name: (await self._stack.enter_async_context(way)).address for name, way in self._ways.items()
        }
        for name, home in (self._homes | ways).items():
            session = connect(home, client_id=name, on_delivery=takers.get(name), timeout_s=60)
            self._sessions[name] = await self._stack.enter_async_context(session)
            if name in self.published:
                await self._sessions[name].advertise({"space": SPACE, "by": name})
            else:
                await self._sessions[name].subscribe({"space": SPACE})
        for session in self._sessions.values():
            await session.settled()

    async def run(self) -> None:
        """Until it is told to stop."""
        async with asyncio.TaskGroup() as group:
            for name in self.published:
                group.create_task(self._publish(name))

    def stop(self) -> None:
        self._is_over = True

    async def cut(self, random: Random) -> None:
        """Until it is told to stop."""
        while not self._is_over:
            await asyncio.sleep(random.expovariate(1.0))
            way = random.choice([*self._ways.values()])
            if random.random() < AWAY_SHARE:
                way.take_away()
                await asyncio.sleep(random.uniform(0, AWAY_S_MAX))
                way.bring_back()
            else:
                way.cut(reset=random.random() < 0.5)

    async def _publish(self, name: str) -> None:
        while not self._is_over:
            number = self.published[name] + 1
            at = time.monotonic()
            event: dict[str, Value] = {"space": SPACE, "by": name, "n": number, "at": at}
            await self._sessions[name].publish(event, bytes(number * 97 % self._payload_bytes_max))
            self.published[name] = number
            await asyncio.sleep(max(0.0, at + self._period_s - time.monotonic()))

    async def end(self) -> list[str]:
        """Everything that is under way arrives, and everybody leaves; what went wrong."""
        for _ in range(2):  # first all that was published is everywhere, then nobody waits for it any more
            for session in self._sessions.values():
                await session.settled()
        await self._stack.aclose()
        return self.faults()

    async def leave(self) -> None:
        """However far it has come."""
        await self._stack.aclose()

    def faults(self) -> list[str]:
        found = [fault for subscriber in self.subscribers for fault in subscriber.faults]
        for subscriber in self.subscribers:
            for publisher, count in self.published.items():
                if subscriber.newest.get(publisher, 0) != count:
                    newest = subscriber.newest.get(publisher, 0)
                    found.append(f"{subscriber.name} got {newest} of the {count} events of {publisher}")
        return found

    @property
    def delivered(self) -> int:
        return sum(subscriber.count for subscriber in self.subscribers)
