"""An S-TX transaction at one broker: what of its plan has come, and what is still waited for; pure."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, field

from broker.protocol.hops import Hop
from broker.protocol.stx import Planned, Step, StepCommit, StepDone, StepPrepare
from broker.protocol.vocabulary import Stamp, plan_mode


class Echo(Struct, eq=False):
    """An advertisement on its way through the brokers behind us; `origin` is told when all have it."""

    origin: Hop
    awaiting: set[Hop]


class Execution(Struct, eq=False):
    tx: str
    coordinator: str = ""
    is_home: bool = False
    """The coordinator is a client of this broker."""
    deadline: float = 0.0
    status: Literal["active", "committed", "aborted"] = "active"
    safe: bool = False
    voted: bool = False
    bad: str = ""
    """Why not everything in the plan can happen."""
    lives: dict[str, int] = field(default_factory=dict)
    """Of the clients in its plan, their incarnations when it was checked."""
    plan: set[int] = field(default_factory=set)
    """All its steps, at the coordinator's edge broker."""
    processed: set[int] = field(default_factory=set)
    """Steps that have come, or never will."""
    buffer: dict[int, tuple[Step, Hop]] = field(default_factory=dict)
    term: tuple[StepPrepare | StepCommit, Hop] | None = None
    """The question for votes, or the commit, waiting for the steps before it."""
    touched: set[str] = field(default_factory=set)
    """Clients of ours that sent or were sent something of it."""
    stamps: dict[str, dict[int, Stamp]] = field(default_factory=dict)
    """By client of ours, those of the steps that it has sent, by the number of steps before each."""
    owed: dict[str, list[Planned]] = field(default_factory=dict)
    """What clients of ours were asked for and have not sent yet."""
    echoes: dict[int, Echo] = field(default_factory=dict)
    echoed: set[int] = field(default_factory=set)
    """Advertisements of our clients that every broker has."""
    held: dict[int, list[StepDone]] = field(default_factory=dict)
    """News of a publication that may not overtake it."""
    origin: Hop = ""
    """Who waits for the answers of `brokers` and `clients`."""
    is_over: bool = False
    """At home: all brokers have committed."""
    retracts: bool = False
    """A `usub` of it is hidden behind us until all have committed."""
    brokers: set[Hop] = field(default_factory=set)
    clients: set[Hop] = field(default_factory=set)

    def describe(self) -> dict[str, Any]:
        return {
            "tx": self.tx,
            "mode": plan_mode(self.safe),
            "state": self.status,
            "voted": self.voted,
            "origin": self.origin,
            "awaiting": sorted({*self.brokers, *self.clients}),
            "waiting_steps": sorted(self.buffer),
            "owed": {client: sorted(p.step for p in planned) for client, planned in self.owed.items()},
            "bad": self.bad,
        }

    def forget_work(self) -> None:
        self.buffer.clear()
        self.echoes.clear()
        self.held.clear()
        self.owed.clear()


def numbers_in(planned: Planned) -> list[int]:
    """Of a step and all that is nested in it."""
    found = [planned.step]
    for nested in planned.nested:
        found += numbers_in(nested)
    return found
