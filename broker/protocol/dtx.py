"""The messages of D-TX and D-TX_NI (Section 4).

A transaction's id is `client/incarnation/number` of its coordinator: never used twice. All messages of
one transaction carry it. On the way from the coordinator they flood the tree; answers are gathered on
the way back. Others have them all as `DtxMessage`, and those that brokers send to clients as `TO_CLIENT`.
"""

from __future__ import annotations

from typing import Literal

from broker.protocol.filters import Event, Filter
from broker.protocol.vocabulary import Key, Kind, Message, Mode, Stamp

PublicationKind = Literal["pub", "tcm"]


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
    isolated: bool = False
    """To participants: what it has changed counts from the commit on, and not from when it was said."""


class Abort(Message, frozen=True, tag=59):
    tx: str
    reason: str


class Ended(Message, frozen=True, tag=60):
    """Every broker behind the sender has taken the decision; to the coordinator: every broker."""

    tx: str
    committed: bool
    reason: str = ""
    retracts: bool = False
    """Among brokers: somewhere behind the sender a `usub` of it waits for the word that all have committed."""


DtxMessage = (
    Begin | Begun | TxRequest | TxRecord | TxPublish | TxAck | Prepare | Prepared | Commit | Abort | Ended
)
TO_CLIENT = frozenset({Begun, TxPublish, TxAck, Prepared, Commit, Abort, Ended})
