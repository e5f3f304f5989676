"""The messages of S-TX (Section 6), and the plan whose steps they carry.

A transaction's id is `client/incarnation/number` of its coordinator, as in `broker.protocol.dtx`. Others
have all messages as `StxMessage`, and those that brokers send to clients as `TO_CLIENT`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from broker.protocol.filters import Event, Filter
from broker.protocol.vocabulary import NO_STAMP, Message, Stamp

StepKind = Literal["adv", "uadv", "sub", "usub", "pub", "tcm"]


class Planned(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """One operation of a plan; numbered depth first, which is the sequential order (Definition 3.4)."""

    step: int
    kind: StepKind
    client: str
    """Who issues it."""
    filter: Filter | None = None
    event: Event | None = None
    payload: bytes = b""
    target: str = ""
    """Of a `tcm`: the one client that it is for."""
    nested: tuple[Planned, ...] = ()
    """Of a `tcm`: what its target issues."""


class Before(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """What a broker has to know of an earlier step to tell whether it must wait for it."""

    step: int
    kind: StepKind
    client: str
    filter: Filter | None = None


Lives = tuple[tuple[str, int], ...]
"""The clients of a plan, each with its incarnation when the plan was checked. Given by the coordinator's edge
broker: whoever comes back with its id is somebody else, and knows nothing of the plan."""


class Step(Message, frozen=True, tag=70):
    """A planned operation under way, with all that comes before it."""

    tx: str
    coordinator: str
    safe: bool
    planned: Planned
    before: tuple[Before, ...]
    stamp: Stamp = NO_STAMP
    """Given by the issuer's edge broker to what changes a table."""
    decided: bool = False
    """The transaction has committed at the sender."""
    lives: Lives = ()

    @property
    def op(self) -> int:
        """As in every message about one operation."""
        return self.planned.step


class StepEcho(Message, frozen=True, tag=71):
    """An advertisement has reached every broker behind the sender, and what it attracted has been sent."""

    tx: str
    step: int


class StepDone(Message, frozen=True, tag=72):
    """To the coordinator: a publication of another client has left its edge broker."""

    tx: str
    step: int
    coordinator: str


class StepPrepare(Message, frozen=True, tag=73):
    tx: str
    coordinator: str
    before: tuple[Before, ...]
    lives: Lives = ()


class StepPrepared(Message, frozen=True, tag=74):
    tx: str
    reason: str = ""


class StepCommit(Message, frozen=True, tag=75):
    tx: str
    coordinator: str
    before: tuple[Before, ...]
    lives: Lives = ()


class StepAbort(Message, frozen=True, tag=76):
    tx: str
    reason: str


class StepEnded(Message, frozen=True, tag=77):
    tx: str
    committed: bool
    reason: str = ""
    """Of a commit: what did not happen because a participant was gone. Of an abort: why."""
    retracts: bool = False
    """Among brokers: somewhere behind the sender a `usub` of it waits for the word that all have committed."""


class StepVoid(Message, frozen=True, tag=78):
    """These steps will never come: whoever owes them is gone. Floods, so that nobody waits for them."""

    tx: str
    steps: tuple[int, ...]
    reason: str
    decided: bool = False
    """The transaction has committed at the sender."""


class StepFailed(Message, frozen=True, tag=79):
    """To the coordinator, as long as it can still abort: its plan cannot be carried out."""

    tx: str
    reason: str


StxMessage = (
    Step
    | StepEcho
    | StepDone
    | StepPrepare
    | StepPrepared
    | StepCommit
    | StepAbort
    | StepEnded
    | StepVoid
    | StepFailed
)
TO_CLIENT = frozenset({Step, StepDone, StepPrepared, StepCommit, StepAbort, StepEnded, StepFailed})
