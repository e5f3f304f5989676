"""What a provider of hosts can do, and what it says about it.

A provider is made by the function `connect(testbed)` of its module; which there are stands in `labctl.commands.labs`.
It acts on one lab at a time, under the lab's lock, and writes the lab down through the `Store`
it is given after every step that a later command must know about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from labctl.checkup import Check
from labctl.exits import LEFT_IN_CLOUD, LabError
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.testbed import Testbed

TellOfHost = Callable[[str, str], None]
"""What is going on with a host: its name, and a few words. Called from any thread."""


class ProviderError(LabError):
    """The provider could not do it; the text says what, to which host, and what to do next."""


class LeftBehind(LabError):
    """Something of a lab may still exist; the text lists it."""

    exit_code = LEFT_IN_CLOUD


class Creation(Struct, frozen=True):
    kind: str
    name: str


class ProviderQuota(Struct, frozen=True):
    need: int
    left: int | None
    """None: no limit is known."""

    @property
    def short(self) -> bool:
        return self.left is not None and self.need > self.left


class AcquirePlan(Struct, frozen=True):
    """What an acquire would do now."""

    create: tuple[Creation, ...] = ()
    quota: dict[str, ProviderQuota] = {}
    vm_hours: float = 0.0
    """Of the machines to be created, until the lab's lifetime ends."""
    notes: tuple[str, ...] = ()
    """What a user should know before it begins."""

    @property
    def shortages(self) -> tuple[str, ...]:
        return tuple(
            f"{name}: {quota.need} needed, {quota.left} left"
            for name, quota in self.quota.items()
            if quota.short
        )


class Resource(Struct, frozen=True):
    kind: str
    name: str
    id: str
    why: str = ""
    """Of something that is left: why it is."""


class Released(Struct, frozen=True):
    deleted: tuple[Resource, ...] = ()
    left: tuple[Resource, ...] = ()
    """Not seen to be gone; the lab's folder stays until this is empty."""
    untouched: tuple[Resource, ...] = ()
    """Looks like the lab's, but was not made by it."""


class Provider(Protocol):
    def plan(self, store: Store, lab: Lab) -> AcquirePlan:
        """What `acquire` would create for this lab; changes nothing, here or there."""

    def acquire(self, store: Store, lab: Lab, report: TellOfHost) -> Lab:
        """Bring every host of the lab up, creating what is missing and nothing twice.

        Returns the lab with what became of each host; a host that could not be had is `failed`, with
        the reason. Raises `ProviderError` when nothing can be had at all.
        """

    def inspect(self, store: Store, lab: Lab) -> Lab:
        """The lab with the hosts' present states and addresses; changes nothing there."""

    def release(self, store: Store, lab: Lab, report: TellOfHost) -> Released:
        """Give back all that is recorded as this lab's, and nothing else, and look whether it is gone."""

    def examine(self, brokers: int, clients: int) -> list[Check]:
        """For `labctl doctor --testbed`: is everything there that such a lab would need?"""

    def close(self) -> None:
        """Drop connections; the provider is not used afterwards."""


Connect = Callable[[Testbed], Provider]
"""How the provider of a testbed is had; raises UsageProblem where there is none. `labctl.commands.labs` has all."""
