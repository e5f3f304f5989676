"""Use case 1 of Section 1: instances of a process are handed to agents, one by one.

The engine E asks the dispatcher D, which has subscribed to the whole process, to hand over an instance;
D asks one of the agents in turn, and carves the instance out of its own subscription; the agent subscribes
to it. Then E publishes the instance's next step, and exactly that agent must get it, and acknowledges.
"""

from __future__ import annotations

from broker.protocol.filters import Event
from client.core.frames import Frame, Tcm
from client.core.plans import Plan
from client.scenarios.attempts import Attempt
from client.scenarios.roles import Absent, Coordinator, Member, Role
from client.scenarios.stage import Cast, Options, instance_of

ENGINE, DISPATCHER = "E", "D"


def cast(agents: int = 2, suffix: str = "") -> Cast:
    names = tuple(f"A{number + 1}{suffix}" for number in range(agents))
    return Cast(ENGINE + suffix, (DISPATCHER + suffix, *names), names, f"p1{suffix}")


def role(name: str, of: Cast, options: Options) -> Role:
    if name == of.coordinator:
        return DispatchingEngine(name, of, options)
    return DispatchingAgent(name, of, options) if name in of.agents else Dispatcher(name, of, options)


def agent_for(of: Cast, number: int) -> str:
    """The agents take turns."""
    return of.agents[(number - 1) % len(of.agents)]


class DispatchingEngine(Coordinator):
    async def introduce(self) -> None:
        session = self.stage.session
        await session.advertise(self.cast.in_("data"))
        await session.advertise(self.cast.in_("control", to=self._dispatcher))

    @property
    def _dispatcher(self) -> str:
        return self.cast.members[0]

    def attempt(self, number: int) -> Attempt:
        agent, instance = agent_for(self.cast, number), f"{self.options.prefix}{number}"
        details = {"instance": instance, "agent": agent}
        return Attempt(number, frozenset({(agent, instance)}), details)

    def _request(self, attempt: Attempt) -> Event:
        return self.cast.in_(
            "control", to=self._dispatcher, instance=attempt.details["instance"], number=attempt.number
        )

    def _step(self, attempt: Attempt) -> Event:
        return self.cast.in_("data", instance=attempt.details["instance"], step=1)

    async def within(self, frame: Frame, attempt: Attempt) -> None:
        if not await frame.tcm(self._request(attempt)):
            raise Absent(f"{self._dispatcher} does not answer")
        await frame.publish(self._step(attempt))

    def fill(self, plan: Plan, attempt: Attempt) -> None:
        instance = self.cast.in_("data", instance=attempt.details["instance"])
        at_dispatcher = plan.tcm(self._dispatcher)
        at_dispatcher.tcm(attempt.details["agent"]).subscribe(instance)
        at_dispatcher.unsubscribe(instance)
        plan.publish(self._step(attempt))

    async def by_hand(self, attempt: Attempt) -> None:
        session = self.stage.session
        await session.publish(self._request(attempt))
        await self.stage.sleep(self.options.wait_ms / 1e3)
        await session.publish(self._step(attempt))


class Dispatcher(Member):
    async def introduce(self) -> None:
        session = self.stage.session
        for agent in self.cast.agents:
            await session.advertise(self.cast.in_("control", to=agent))
        await session.subscribe(self.cast.in_("control", to=self.name))
        await session.subscribe(self.cast.in_("data"))

    def _assignment(self, event: Event) -> Event:
        agent = agent_for(self.cast, int(event["number"]))
        return self.cast.in_("control", to=agent, instance=event["instance"])

    async def on_tcm(self, tcm: Tcm, frame: Frame) -> None:
        assignment = self._assignment(tcm.event)
        if not await frame.tcm(assignment):
            raise Absent(f"{assignment['to']} does not answer")
        await frame.unsubscribe(self.cast.in_("data", instance=tcm.event["instance"]))

    def take(self, space: str, event: Event) -> None:
        if space == "control":
            self.do(self._hand_over(event))
        else:
            self.do(self.acknowledge(instance_of(event)))

    async def _hand_over(self, event: Event) -> None:
        session = self.stage.session
        await session.publish(self._assignment(event))
        await session.unsubscribe(self.cast.in_("data", instance=event["instance"]))


class DispatchingAgent(Member):
    async def introduce(self) -> None:
        await self.stage.session.subscribe(self.cast.in_("control", to=self.name))

    async def on_tcm(self, tcm: Tcm, frame: Frame) -> None:
        await frame.subscribe(self.cast.in_("data", instance=tcm.event["instance"]))

    def take(self, space: str, event: Event) -> None:
        if space == "control":
            instance = self.cast.in_("data", instance=event["instance"])
            self.do(self.stage.session.subscribe(instance))
        else:
            self.do(self.acknowledge(instance_of(event)))
