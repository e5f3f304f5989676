"""An open D-TX or D-TX_NI transaction at one broker, and what is left of one that has ended; pure."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from broker.matching.records import Record
from broker.protocol.filters import Event, Filter, overlaps
from broker.protocol.hops import Hop
from broker.protocol.vocabulary import D_TX_OPTIMISTIC, ISOLATED, Key, Mode
from broker.transactions.dtx.view import Decision, View


class Logged(NamedTuple):
    """An operation that was processed here, and what was decided: to be replayed at the vote."""

    origin: Hop
    decision: Decision
    record: Record | None = None
    event: Event | None = None
    client: str = ""
    """The issuer of a publication, at its edge broker."""


class OpenOperation(Struct, eq=False):
    """An operation that others are still processing; `origin` waits for our answer."""

    origin: Hop
    pending: set[Hop]
    is_tcm: bool = False
    reached: int = 0


class Footprint(NamedTuple):
    """What a transaction read and wrote at a broker, as filters."""

    reads: list[Filter]
    writes: list[Filter]

    def interferes(self, other: Footprint) -> bool:
        return _any_overlap(self.writes, [*other.reads, *other.writes]) or _any_overlap(
            other.writes, self.reads
        )


class Context(Struct, eq=False):
    tx: str
    mode: Mode
    key: Key
    origin: Hop
    """Where the coordinator lies."""
    deadline: float
    heard: float
    """When the last message of it came here."""
    view: View
    state: Literal["active", "preparing", "yes", "no"] = "active"
    log: list[Logged] = field(default_factory=list)
    footprint: Footprint = field(default_factory=lambda: Footprint([], []))
    """Of what is in the log."""
    entries: dict[int, OpenOperation] = field(default_factory=dict)
    participants: set[str] = field(default_factory=set)
    """Clients of ours that were sent something of it."""
    asked: set[str] = field(default_factory=set)
    """Those of them that were sent a `tcm`: they may add operations."""
    operations: int = 0
    """Of our clients, in it."""
    awaiting: set[Hop] = field(default_factory=set)
    """Who has not answered: the begin at first, the question for votes later."""
    bad: str = ""
    """Why it cannot commit any more."""

    def note(self, logged: Logged) -> None:
        self.log.append(logged)
        if logged.record is not None:
            self.footprint.writes.append(logged.record.filter)
        elif logged.event is not None:
            names = tuple(sorted(logged.event))
            self.footprint.reads.append(Filter(names, tuple(logged.event[name] for name in names)))

    @property
    def isolated(self) -> bool:
        return self.mode in ISOLATED

    @property
    def optimistic(self) -> bool:
        return self.mode == D_TX_OPTIMISTIC

    def describe(self) -> dict[str, Any]:
        """A state of `yes` with nobody awaited is a broker in doubt: it waits for the decision."""
        return {
            "tx": self.tx,
            "mode": self.mode,
            "state": self.state,
            "origin": self.origin,
            "awaiting": sorted(self.awaiting),
            "operations": {str(op): sorted(entry.pending) for op, entry in self.entries.items()},
            "bad": self.bad,
            "deadline": self.deadline,
        }

    @property
    def is_decided_here(self) -> bool:
        """Its coordinator is a client of this broker."""
        return self.origin.startswith("client:")


class Tomb(Struct, eq=False):
    """A transaction that has ended here and not everywhere: what still comes of it is dropped."""

    committed: bool
    reason: str
    origin: Hop
    """Who is told when all brokers behind us have ended it; empty: nobody."""
    is_home: bool = False
    """It has committed, its coordinator is a client of ours, and not all brokers have ended it."""
    retracts: bool = False
    """A `usub` of it is hidden, here or behind us, until all have committed."""
    brokers: set[Hop] = field(default_factory=set)
    clients: set[Hop] = field(default_factory=set)

    def describe(self, tx: str) -> dict[str, Any]:
        return {"tx": tx, "committed": self.committed, "awaiting": sorted({*self.brokers, *self.clients})}


def _any_overlap(some: list[Filter], others: list[Filter]) -> bool:
    return any(overlaps(one, other) for one in some for other in others)
