"""The scenarios of `client.scenarios` in a simulated overlay: the same roles, virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from client.core.frames import Frame, Tcm
from client.core.session import Delivery
from client.scenarios.attempts import CoordinatorReport
from client.scenarios.cases import consolidation, dispatching
from client.scenarios.roles import Coordinator, Role
from client.scenarios.stage import Cast, Options, Stage
from labctl.simulate.clients import SimClient
from labctl.simulate.tasks import Task
from labctl.simulate.world import World

SCENARIOS: dict[str, ModuleType] = {"dispatching": dispatching, "consolidation": consolidation}


class Mailbox(list[tuple[Delivery, str]]):
    """The deliveries of a client, told to its role as they come."""

    def __init__(self, deliver: Callable[[Delivery], None]) -> None:
        super().__init__()
        self._deliver = deliver

    def append(self, delivery: tuple[Delivery, str]) -> None:
        super().append(delivery)
        self._deliver(delivery[0])


class Play:
    """One copy of a scenario in a world; `homes` tells at which broker each of its clients is."""

    def __init__(
        self, world: World, scenario: str, homes: Mapping[str, str], options: Options, suffix: str = ""
    ) -> None:
        self._world = world
        module = SCENARIOS[scenario]
        agents = sum(name.startswith("A") for name in homes)
        self.cast: Cast = module.cast(agents, suffix)
        self.roles: dict[str, Role] = {}
        self.clients: dict[str, SimClient] = {}
        self.tasks: dict[str, Task] = {}
        for name, home in homes.items():
            role: Role = module.role(name + suffix, self.cast, options)
            self.roles[role.name] = role
            self.clients[role.name] = self._enter(role, home)
        world.run()

    def _enter(self, role: Role, home: str) -> SimClient:
        async def on_tcm(_client: SimClient, tcm: Tcm, frame: Frame) -> None:
            await role.on_tcm(tcm, frame)

        client = self._world.connect(role.name, home, on_tcm)
        client.deliveries = Mailbox(role.deliver)
        return client

    @property
    def report(self) -> CoordinatorReport:
        coordinator = self.roles[self.cast.coordinator]
        assert isinstance(coordinator, Coordinator)
        return coordinator.report

    def begin(self) -> None:
        """Everybody starts; the world has to be run."""
        for name, role in self.roles.items():
            self.tasks[name] = self._world.spawn(role.run(self._stage(self.clients[name])))

    def _stage(self, client: SimClient) -> Stage:
        world = self._world

        def call_later(delay_s: float, callback: Callable[[], None]) -> Any:
            world.at(world.now + delay_s, callback)

        return Stage(client, client, lambda: world.now, call_later)


def play(
    world: World, scenario: str, homes: Mapping[str, str], options: Options, suffix: str = ""
) -> CoordinatorReport:
    """From the first word to the last; raises what a role raised."""
    found = Play(world, scenario, homes, options, suffix)
    found.begin()
    world.run()
    for name, task in found.tasks.items():
        if task.error is not None:
            raise task.error
        assert task.is_done, f"{name} waits for what never comes"
    return found.report
