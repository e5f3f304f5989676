"""What simulated clients do: programs as data, so that a failing one can be printed and made smaller."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

from msgspec import Struct, field

from broker.protocol.filters import Event, Overlap, between, one_of
from broker.protocol.hops import Hop, broker_hop, client_hop
from broker.protocol.limits import Limits
from broker.protocol.stx import StepKind
from broker.protocol.vocabulary import Protocol
from client.core.plans import Plan
from client.core.transactions import Frame
from labctl.simulate.programs.delays import DelayModel

Constraints = Mapping[str, Any]
UNLIMITED_BYTES = 1 << 60
LIFETIME_MS = 60_000
"""The most that a broker gives, unless it is told otherwise."""


class Op(Struct, frozen=True):
    """One operation; `values` are points of its space, `to` the client that a `tcm` asks."""

    kind: StepKind
    space: str = "d"
    values: tuple[int, ...] = ()
    """Of a filter; a publication has one."""
    to: str = ""
    nested: tuple[tuple[str, tuple[Op, ...]], ...] = ()
    """Of a `tcm`: what each receiver does, by client; "*" stands for any other."""

    @property
    def constraints(self) -> Constraints:
        values = self.values
        if len(values) == 1:
            return {"s": self.space, "x": values[0]}
        if list(values) == list(range(values[0], values[-1] + 1)):
            return {"s": self.space, "x": between(values[0], values[-1])}
        return {"s": self.space, "x": one_of(*values)}

    @property
    def event(self) -> Event:
        if self.to:
            return {"s": "c", "to": self.to}
        return {"s": self.space, "x": self.values[0]}

    def reaction(self, client: str) -> tuple[Op, ...]:
        reactions = dict(self.nested)
        return reactions.get(client, reactions.get("*", ()))


class TxProgram(Struct, frozen=True):
    coordinator: str
    protocol: Protocol
    body: tuple[Op, ...]
    start: float = 0.0
    aborts_after: int = -1
    """So many operations of the coordinator, then it aborts; negative: it commits."""
    lifetime_ms: int = LIFETIME_MS
    """Not of a plan."""


class RegularProgram(Struct, frozen=True):
    client: str
    start: float
    body: tuple[Op, ...]


class Fault(Struct, frozen=True):
    kind: Literal["crash", "leave", "away"]
    client: str
    time: float
    lost: int = 0
    """Of its last messages."""
    back_after: float = 0.0
    """So long after it is gone it wants to come back, with its id, and knows nothing; 0: it stays away."""
    back_at: str = ""
    """At which broker; empty: where it was."""
    twin_at: str = ""
    """At which broker another one wants the same id at that moment; empty: nobody does."""


class ClockSkew(Struct, frozen=True):
    """Of one broker: what it shows when the world's shows 0, and how much faster it goes."""

    offset_s: float = 0.0
    rate: float = 1.0


class Conditions(Struct, frozen=True):
    """Of an overlay."""

    overlap: Overlap = "all"
    clocks: dict[str, ClockSkew] = field(default_factory=dict)
    """Of brokers; others have the world's."""
    limits: Limits = Limits()
    expire_s: float = 0.5
    """How often brokers look for what has been open too long."""
    timeout_s: float = inf
    """How long clients wait for an answer, once the program has begun."""


class Cut(Struct, frozen=True):
    """A link loses its connection, and gets another one."""

    link: str
    """As in `Program.slowness`, either way."""
    time: float
    seconds: float = 0.0
    """No other connection can be made for so long."""


class Journals(Struct, frozen=True):
    """How brokers keep theirs."""

    sync_s: float = 0.0
    """Mean time until what is entered is durable, in half of the cases; otherwise it is at the end of each step."""
    snapshots: float = 0.0
    """How often one is begun when nothing waits."""
    grace_s: float = 5.0
    """So long clients may be away."""


class Restart(Struct, frozen=True):
    """A broker's process ends, and another one goes on where its journal does."""

    broker: str
    time: float
    kind: Literal["crash", "kill", "fail"] = "crash"
    """With its machine, so that what was not synced is lost; by itself; by an error of its disk."""
    pause_s: float = 0.0
    operations: int = 0
    """Instead of the disk's operation with this number from then on; 0: at that time."""
    again: int = 0
    """Once more, instead of this operation while it recovers; 0: not."""
    behind_s: float = 0.0
    """By so much the clock of its machine is behind then, if that was started anew."""


class Program(Struct, frozen=True):
    links: tuple[tuple[str, str], ...]
    brokers: tuple[str, ...]
    homes: dict[str, str]
    setup: tuple[tuple[str, Op], ...]
    transactions: tuple[TxProgram, ...]
    regular: tuple[RegularProgram, ...] = ()
    faults: tuple[Fault, ...] = ()
    slowness: dict[str, float] = field(default_factory=dict)
    """Of each directed link ("source>target"): mean delay in milliseconds."""
    seed: int = 0
    spaces: tuple[str, ...] = ("d",)
    conditions: Conditions = Conditions()
    queue_bytes_max: int = UNLIMITED_BYTES
    """Where links carry frames, how much may wait for a client before it is thrown out."""
    window_bytes: int = 0
    """Of every link; 0: links carry messages, and not frames over connections."""
    cuts: tuple[Cut, ...] = ()
    """Where links carry frames."""
    journals: Journals | None = None
    """Of brokers, where links carry frames."""
    restarts: tuple[Restart, ...] = ()
    """Of brokers with journals."""
    delays: DelayModel = DelayModel()


def directed_links(program: Program) -> list[str]:
    """Every link in both directions, as `Program.slowness` names them."""
    pairs: list[tuple[Hop, Hop]] = [(broker_hop(a), broker_hop(b)) for a, b in program.links]
    pairs += [(client_hop(client), broker_hop(home)) for client, home in program.homes.items()]
    return [f"{one}>{other}" for a, b in pairs for one, other in ((a, b), (b, a))]


VERBS = {"adv": "advertise", "uadv": "unadvertise", "sub": "subscribe", "usub": "unsubscribe"}


def say(speaker: Any, op: Op) -> Any:
    """The verb of an operation, at whatever has verbs: a client, a frame (to be awaited), a plan."""
    if op.kind == "pub":
        return speaker.publish(op.event)
    return getattr(speaker, VERBS[op.kind])(op.constraints)


async def perform(frame: Frame, op: Op, label: bytes) -> None:
    """One operation of a D-TX transaction."""
    await (frame.tcm(op.event, label) if op.kind == "tcm" else say(frame, op))


def as_plan(body: tuple[Op, ...], plan: Plan | None = None) -> Plan:
    """The same body, all at once; a `tcm` asks the one client that it names."""
    plan = Plan() if plan is None else plan
    for op in body:
        if op.kind != "tcm":
            say(plan, op)
        elif op.reaction(op.to):
            as_plan(op.reaction(op.to), plan.tcm(op.to))
    return plan


def labelled(program: Program) -> dict[bytes, Op]:
    """Every `tcm` of a program by the label that its payload carries."""
    found: dict[bytes, Op] = {}

    def visit(body: tuple[Op, ...], prefix: str) -> None:
        for place, op in enumerate(body):
            if op.kind == "tcm":
                label = f"{prefix}.{place}"
                found[label.encode()] = op
                for client, nested in op.nested:
                    visit(nested, f"{label}.{client}")

    for number, transaction in enumerate(program.transactions):
        visit(transaction.body, str(number))
    return found


def label_of(prefix: str, place: int) -> bytes:
    return f"{prefix}.{place}".encode()
