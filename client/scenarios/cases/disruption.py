"""What transactions do to regular events (Section 7, Figure 9): a scenario with load beside it.

E sends regular events to the agents without pause; after every round of them the coordinator carries out a few
transactions of the scenario, while the events go on. A first round, before anything counts, measures the
capacity that the open loop takes a share of. Agents write down how many events arrive.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from broker.protocol.filters import Event
from client.core.port import Future, resolve
from client.core.session import Delivery
from client.scenarios.cases import consolidation, dispatching
from client.scenarios.load import REGULAR, TOLD_EVERY, Generator, Meter, is_regular
from client.scenarios.roles import Coordinator, Member, Role
from client.scenarios.stage import Cast, Options, ScenarioError

MARK_S = 120.0
"""Longest time for a round."""
WORKS = {"dispatching": dispatching, "consolidation": consolidation}


def cast(agents: int = 2, suffix: str = "", work: str = "dispatching") -> Cast:
    found: Cast = WORKS[work].cast(agents, suffix)
    return found


def role(name: str, of: Cast, options: Options) -> Role:
    if options.work == "consolidation":
        if name == of.coordinator:
            return LoadedConsolidator(name, of, options)
        return (
            MeteredConsolidationAgent(name, of, options)
            if name in of.agents
            else LoadingEngine(name, of, options)
        )
    if name == of.coordinator:
        return LoadedEngine(name, of, options)
    return MeteredDispatchingAgent(name, of, options) if name in of.agents else HandedOver(name, of, options)


def _regular(agent: str) -> str:
    return f"{REGULAR}.{agent}"


def _write(path: str, lines: list[dict[str, Any]]) -> None:
    if path:
        Path(path).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


class Loaded(Coordinator):
    """Transactions after every round."""

    def __init__(self, name: str, cast: Cast, options: Options) -> None:
        super().__init__(name, cast, options)
        self._counts = {"measured": 0, "mark": 0, "stopped": 0}
        self._event: Future | None = None

    @abstractmethod
    async def command(self, what: str) -> None:
        """To whoever has the generator."""

    def heard(self, what: str) -> None:
        self._counts[what] += 1
        resolve(self._event)

    async def _until(self, what: str, count: int) -> None:
        deadline = self.stage.clock() + MARK_S
        while self._counts[what] < count:
            if self.stage.clock() > deadline:
                raise ScenarioError(f"regular events do not get through: no {what!r} within {MARK_S:g} s")
            self._event = self.stage.port.future()
            self.stage.call_later(MARK_S, partial(resolve, self._event))
            await self._event

    async def _work_until(self, last: int) -> None:
        if last <= self.options.warm_up:
            await self.command("measure")
            await self._until("measured", 1)
            await super()._work_until(last)
            return
        await self.command("play")
        for round_ in range(1, self.options.rounds + 1):
            if self._is_winding_up:
                break
            await self._until("mark", round_)
            await self.command("busy")
            await super()._work_until(min(last, self._next + self.options.instances))
            await self.command("idle")
        await self.command("stop")
        await self._until("stopped", 1)


class LoadedEngine(Loaded, dispatching.DispatchingEngine):
    """E of dispatching: coordinates, and sends the events."""

    def __init__(self, name: str, cast: Cast, options: Options) -> None:
        super().__init__(name, cast, options)
        templates = {agent: cast.in_("data", instance=_regular(agent)) for agent in cast.agents}
        self.generator = Generator(options, templates, self.heard)

    async def command(self, what: str) -> None:
        self.generator.order(what, self.stage)

    def received(self, client: str, instance: str) -> None:
        if not instance.startswith(REGULAR):
            super().received(client, instance)
            return
        self.generator.arrived(client, int(instance.rpartition("/")[2]), self.stage.clock())

    def close(self) -> None:
        _write(self.options.rates, self.generator.samples)


class HandedOver(dispatching.Dispatcher):
    """D, which has handed the regular instances over before."""

    async def introduce(self) -> None:
        await super().introduce()
        for agent in self.cast.agents:
            await self.stage.session.unsubscribe(self.cast.in_("data", instance=_regular(agent)))


class Metered(Member):
    """An agent that counts."""

    def __init__(self, name: str, cast: Cast, options: Options) -> None:
        super().__init__(name, cast, options)
        self._meter = Meter(name, options.window_ms)
        self._count = 0

    def deliver(self, delivery: Delivery) -> None:
        event = delivery.event
        if not is_regular(event):
            super().deliver(delivery)
            return
        self._meter.add(event, self.stage.clock())
        self._count += 1
        if self._count % TOLD_EVERY == 0:
            self.do(self.tell_count(f"{_regular(self.name)}/{self._count}"))

    async def tell_count(self, text: str) -> None:
        await self.acknowledge(text)

    def close(self) -> None:
        _write(self.options.rates, self._meter.lines())


class MeteredDispatchingAgent(Metered, dispatching.DispatchingAgent):
    async def introduce(self) -> None:
        await super().introduce()
        await self.stage.session.subscribe(self.cast.in_("data", instance=_regular(self.name)))


class LoadedConsolidator(Loaded, consolidation.Consolidator):
    """C: coordinates; E sends the events, at its command."""

    async def introduce(self) -> None:
        await super().introduce()
        await self.stage.session.advertise(self.cast.in_("load", to=self._engine))
        await self.stage.session.subscribe(self.cast.in_("load", to=self.name))

    async def command(self, what: str) -> None:
        await self.say("load", self._engine, what=what)

    def take(self, space: str, event: Event) -> None:
        if space == "load":
            self.heard(str(event["what"]))
        else:
            super().take(space, event)


class LoadingEngine(consolidation.ConsolidationEngine):
    def __init__(self, name: str, cast: Cast, options: Options) -> None:
        super().__init__(name, cast, options)
        templates = {a: cast.in_("data", home=a, instance=_regular(a)) for a in cast.agents}
        self.generator = Generator(options, templates, self._tell)

    def _tell(self, what: str) -> None:
        self.do(self.say("load", self.cast.coordinator, what=what))

    async def introduce(self) -> None:
        session = self.stage.session
        await super().introduce()
        await session.advertise(self.cast.in_("load", to=self.cast.coordinator))
        await session.subscribe(self.cast.in_("load", to=self.name))
        await session.subscribe(self.cast.in_("count"))

    def take(self, space: str, event: Event) -> None:
        if space == "load":
            self.generator.order(str(event["what"]), self.stage)
        elif space == "count":
            self.generator.arrived(str(event["sender"]), int(event["count"]), self.stage.clock())
        else:
            super().take(space, event)

    def close(self) -> None:
        _write(self.options.rates, self.generator.samples)


class MeteredConsolidationAgent(Metered, consolidation.ConsolidationAgent):
    async def introduce(self) -> None:
        await super().introduce()
        await self.stage.session.advertise(self.cast.in_("count"))

    async def tell_count(self, text: str) -> None:
        count = int(text.rpartition("/")[2])
        await self.stage.session.publish(self.cast.in_("count", sender=self.name, count=count))
