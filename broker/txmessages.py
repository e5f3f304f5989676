"""The messages of transactions: D-TX and D-TX_NI (Section 4), S-TX (Section 6).

A transaction's id is `client/incarnation/number` of its coordinator: never used twice. All messages of
one transaction carry it. On the way from the coordinator they flood the tree; answers are gathered on
the way back.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from broker.filters import Event, Filter
from broker.vocabulary import NO_STAMP, Key, Kind, Message, Stamp

Mode = Literal["d-tx", "d-tx-optimistic", "d-tx-ni"]
PublicationKind = Literal["pub", "tcm"]
StepKind = Literal["adv", "uadv", "sub", "usub", "pub", "tcm"]


# D-TX and D-TX_NI


class Begin(Message, frozen=True, tag=50):
    """A transaction begins; floods, so that every broker has a context before its first operation."""

    tx: str
    mode: Mode
    key: Key
    """Its place in the commit order, given by the coordinator's edge broker."""
    lifetime_ms: int


class Begun(Message, frozen=True, tag=51):
    """Every broker behind the sender has a context; to the coordinator: every broker."""

    tx: str


class TxRequest(Message, frozen=True, tag=52):
    """A client's adv, uadv, sub or usub in a transaction, on its way to its edge broker."""

    tx: str
    op: int
    kind: Kind
    filter: Filter


class TxRecord(Message, frozen=True, tag=53):
    """The same between brokers, with its issuer and its stamp."""

    tx: str
    op: int
    kind: Kind
    client: str
    stamp: Stamp
    filter: Filter
    triggered: bool = False
    """Attracted by an advertisement of the transaction: an older record, and nobody waits for it."""


class TxPublish(Message, frozen=True, tag=54):
    """A publication (`pub`: kept by its receiver until the commit) or a control message (`tcm`: acted on)."""

    tx: str
    op: int
    kind: PublicationKind
    event: Event
    payload: bytes


class TxAck(Message, frozen=True, tag=55):
    """An operation, and all that it led to, is processed everywhere behind the sender."""

    tx: str
    op: int
    reason: str = ""
    """Why the transaction cannot commit any more; empty: it can."""
    reached: int = 0
    """How many clients a publication or control message has reached."""


class Prepare(Message, frozen=True, tag=56):
    tx: str


class Prepared(Message, frozen=True, tag=57):
    tx: str
    reason: str = ""
    """Why not; empty: every broker behind the sender can commit."""


class Commit(Message, frozen=True, tag=58):
    tx: str


class Abort(Message, frozen=True, tag=59):
    tx: str
    reason: str


class Ended(Message, frozen=True, tag=60):
    """Every broker behind the sender has taken the decision; to the coordinator: every broker."""

    tx: str
    committed: bool
    reason: str = ""


# S-TX


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


class StepPrepared(Message, frozen=True, tag=74):
    tx: str
    reason: str = ""


class StepCommit(Message, frozen=True, tag=75):
    tx: str
    coordinator: str
    before: tuple[Before, ...]


class StepAbort(Message, frozen=True, tag=76):
    tx: str
    reason: str


class StepEnded(Message, frozen=True, tag=77):
    tx: str
    committed: bool
    reason: str = ""
    """Of a commit: what did not happen because a participant was gone. Of an abort: why."""


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


TransactionMessage = (
    Begin
    | Begun
    | TxRequest
    | TxRecord
    | TxPublish
    | TxAck
    | Prepare
    | Prepared
    | Commit
    | Abort
    | Ended
    | Step
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
