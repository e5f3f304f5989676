"""Use case 2 of Section 1: a consolidator takes instances over from the agents that have them.

The consolidator C asks every agent for one of its instances; the agent carves it out of its
subscription, and C subscribes to it. Then E publishes the next step of each of them, at C's request, and
exactly C must get it: an agent that does tells C.
"""

from __future__ import annotations

from broker.protocol.filters import Event
from client.core.frames import Frame, Tcm
from client.core.plans import Plan
from client.scenarios.attempts import Attempt
from client.scenarios.roles import Absent, Coordinator, Member, Role
from client.scenarios.stage import Cast, Options, instance_of

CONSOLIDATOR, ENGINE = "C", "E"


def cast(agents: int = 2, suffix: str = "") -> Cast:
    names = tuple(f"A{number + 1}{suffix}" for number in range(agents))
    return Cast(CONSOLIDATOR + suffix, (ENGINE + suffix, *names), names, f"p1{suffix}")


def role(name: str, of: Cast, options: Options) -> Role:
    if name == of.coordinator:
        return Consolidator(name, of, options)
    return (
        ConsolidationAgent(name, of, options) if name in of.agents else ConsolidationEngine(name, of, options)
    )


class Consolidator(Coordinator):
    async def introduce(self) -> None:
        for member in self.cast.members:
            await self.stage.session.advertise(self.cast.in_("control", to=member))

    @property
    def _engine(self) -> str:
        return self.cast.members[0]

    def attempt(self, number: int) -> Attempt:
        names = {agent: f"{self.options.prefix}{number}.{agent}" for agent in self.cast.agents}
        expected = frozenset((self.name, instance) for instance in names.values())
        return Attempt(number, expected, {"instances": names})

    def _request(self, member: str, number: int, instance: str = "") -> Event:
        return self.cast.in_("control", to=member, number=number, instance=instance)

    def _instances(self, attempt: Attempt) -> dict[str, Event]:
        """What is to be taken over, by agent."""
        return {
            agent: self.cast.in_("data", home=agent, instance=instance)
            for agent, instance in attempt.details["instances"].items()
        }

    async def within(self, frame: Frame, attempt: Attempt) -> None:
        instances = self._instances(attempt)
        for agent, instance in instances.items():
            if not await frame.tcm(self._request(agent, attempt.number, instance_of(instance))):
                raise Absent(f"{agent} does not answer")
        for instance in instances.values():
            await frame.subscribe(instance)
        if not await frame.tcm(self._request(self._engine, attempt.number, self.options.prefix)):
            raise Absent(f"{self._engine} does not answer")

    def fill(self, plan: Plan, attempt: Attempt) -> None:
        instances = self._instances(attempt)
        for agent, instance in instances.items():
            plan.tcm(agent).unsubscribe(instance)
        for instance in instances.values():
            plan.subscribe(instance)
        at_engine = plan.tcm(self._engine)
        for instance in instances.values():
            at_engine.publish({**instance, "step": 1})

    async def by_hand(self, attempt: Attempt) -> None:
        session, instances = self.stage.session, self._instances(attempt)
        for agent, instance in instances.items():
            await session.publish(self._request(agent, attempt.number, instance_of(instance)))
        for instance in instances.values():
            await session.subscribe(instance)
        await self.stage.sleep(self.options.wait_ms / 1e3)
        await session.publish(self._request(self._engine, attempt.number, self.options.prefix))

    def take(self, space: str, event: Event) -> None:
        if space == "data":
            self.received(self.name, instance_of(event))


class ConsolidationEngine(Member):
    """Publishes a step of every instance of a number, when it is asked."""

    async def introduce(self) -> None:
        session = self.stage.session
        await session.advertise(self.cast.in_("data"))
        await session.subscribe(self.cast.in_("control", to=self.name))

    def _steps(self, event: Event) -> list[Event]:
        names = {agent: f"{event['instance']}{event['number']}.{agent}" for agent in self.cast.agents}
        return [self.cast.in_("data", home=agent, instance=name, step=1) for agent, name in names.items()]

    async def on_tcm(self, tcm: Tcm, frame: Frame) -> None:
        for step in self._steps(tcm.event):
            await frame.publish(step)

    def take(self, space: str, event: Event) -> None:
        if space == "control":
            self.do(self._publish(event))

    async def _publish(self, event: Event) -> None:
        for step in self._steps(event):
            await self.stage.session.publish(step)


class ConsolidationAgent(Member):
    async def introduce(self) -> None:
        session = self.stage.session
        await session.subscribe(self.cast.in_("control", to=self.name))
        await session.subscribe(self.cast.in_("data", home=self.name))

    async def on_tcm(self, tcm: Tcm, frame: Frame) -> None:
        await frame.unsubscribe(self._instance(tcm.event))

    def _instance(self, event: Event) -> Event:
        return self.cast.in_("data", home=self.name, instance=event["instance"])

    def take(self, space: str, event: Event) -> None:
        if space == "control":
            self.do(self.stage.session.unsubscribe(self._instance(event)))
        else:
            self.do(self.acknowledge(instance_of(event)))
