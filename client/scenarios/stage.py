"""What the roles of a scenario share: who plays, what they say to each other, and what runs them.

Everything a scenario says lies in a space of its own ("data", "control", "ack", "order", "ready") and
names its process, so that copies of a scenario in one overlay have nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from traceback import extract_tb
from typing import Any

from msgspec import Struct

from broker.protocol.filters import Event
from broker.protocol.vocabulary import S_TX_SAFE
from client.core.errors import ClientError
from client.core.port import Port, resolve
from client.core.verbs import Verbs


class Stage(Struct, frozen=True):
    """What runs a role: asyncio, or a simulator."""

    session: Verbs
    port: Port
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    call_later: Callable[[float, Callable[[], None]], Any]

    async def sleep(self, seconds: float) -> None:
        over = self.port.future()
        self.call_later(seconds, lambda: resolve(over))
        await over


class Cast(Struct, frozen=True):
    """The clients of one copy of a scenario."""

    coordinator: str
    members: tuple[str, ...]
    """Everybody else."""
    agents: tuple[str, ...]
    process: str

    def in_(self, space: str, **rest: Any) -> dict[str, Any]:
        """A filter or an event of this copy."""
        return {"space": space, "process": self.process, **rest}


class Disruption(Struct, frozen=True, kw_only=True):
    """Rounds of regular events, and transactions after each."""

    rounds: int = 10
    events: int = 20_000
    """In a round."""
    instances: int = 4
    """Transactions after each round."""
    open_share: float = 0.8
    """Open loop: of the capacity that the same cell has shown."""
    window_ms: float = 100.0


class Load(Disruption, frozen=True, kw_only=True):
    """The regular events of one run."""

    load: str = "closed"


class Options(Load, frozen=True):
    approach: str = S_TX_SAFE
    """One of `client.scenarios.approaches`, or the dotted name of somebody's own."""
    transactions: int = 100
    concurrency: int = 1
    """Transactions in flight at a time."""
    wait_ms: float = 100.0
    """BL-WAIT: how long the coordinator waits before it relies on what it has asked for."""
    patience_s: float = 10.0
    """How long an acknowledgement is waited for."""
    ready_s: float = 30.0
    """How long the others are waited for at the beginning."""
    prefix: str = "x"
    """Of the names of instances."""
    warm_up: int = 0
    """So many of the transactions come before a pause; somebody else decides that they do not count."""
    work: str = "dispatching"
    """Disruption: the scenario of its transactions."""
    rates: str = ""
    """Disruption: file for what was counted."""
    returns: bool = False
    """A member that was killed and is there again: the others have begun long ago."""


class ScenarioError(Exception):
    """A scenario that cannot be played; the text says why."""


def told(error: Exception) -> str:
    """Of an error of the client library its sentence; of any other, a mistake in somebody's code, also where it is."""
    if isinstance(error, ClientError | ScenarioError):
        return str(error)
    place = extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({PurePath(frame.filename).name}, line {frame.lineno})" for frame in place)
    return f"{type(error).__name__}: {error}{where}"


def instance_of(event: Event) -> str:
    return str(event["instance"])
