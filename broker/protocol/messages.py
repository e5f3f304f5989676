"""The messages of every link: greetings, joining and leaving, regular operations and publications, status.

Some are not of a link and not counted: `Hello` and its answer `Welcome` before it, `Ping` beside it,
`Goodbye` after it.
"""

from __future__ import annotations

from typing import Literal

from broker.protocol.filters import Event, Filter, Overlap
from broker.protocol.limits import Limits
from broker.protocol.vocabulary import Kind, Message, Stamp

GoodbyeCode = Literal[
    "leaving",
    "stopping",
    "protocol",
    "refused",
    "in-use",
    "slow-consumer",
    "unknown-neighbour",
    "both-dial",
    "duplicate-id",
    "cycle",
    "overlap-mode",
    "state-lost",
    "timeout",
]


class Hello(Message, frozen=True, tag=1):
    """First message of whoever opens a connection.

    `incarnation` tells one life of a client (or of a broker process) from the next; `received` is how
    many messages of the answering side the sender has processed, so that a lost connection resumes.
    """

    version: int
    role: Literal["client", "broker", "monitor"]
    name: str
    peer: str
    """The broker that the sender means to reach; empty where a client does not care."""
    incarnation: int
    peer_incarnation: int
    """The other side's incarnation when they last spoke; 0 before that."""
    received: int
    overlap: Overlap


class Welcome(Message, frozen=True, tag=2):
    """The answer to `Hello`: the link is open, or resumes."""

    broker: str
    incarnation: int
    received: int
    limits: Limits


class Goodbye(Message, frozen=True, tag=3):
    """Last message before a connection is closed: a code for programs, a sentence for people."""

    code: GoodbyeCode
    reason: str


class Publish(Message, frozen=True, tag=10):
    """A regular publication. No client id: beyond its edge broker nobody knows who published it."""

    id: int
    event: Event
    payload: bytes


class Request(Message, frozen=True, tag=11):
    """A client's adv, uadv, sub or usub, on its way to its edge broker."""

    number: int
    kind: Kind
    filter: Filter


class Accepted(Message, frozen=True, tag=12):
    number: int


class Refused(Message, frozen=True, tag=13):
    """A request (by its number) or a publication (by its id) that the edge broker does not take."""

    number: int
    reason: str


class Settle(Message, frozen=True, tag=14):
    """Goes to every broker behind what was sent before it; its echo (`Settled`) comes back."""

    origin: str
    number: int


class Settled(Message, frozen=True, tag=15):
    origin: str
    number: int


class Joined(Message, frozen=True, tag=16):
    """To a client: your id is yours at every broker."""

    overlay: int
    """How many brokers the edge broker knows, itself included."""


class Operation(Message, frozen=True, tag=20):
    """An adv, uadv, sub or usub between brokers, with its issuer and its stamp."""

    kind: Kind
    client: str
    stamp: Stamp
    filter: Filter
    tx: str = ""
    """The transaction that wrote it: undecided, or one with a plan whose steps somebody may wait for."""
    step: int = 0
    """Its number in the transaction's plan, if it has one."""
    decided: bool = False
    """The transaction has committed at the sender."""


class Join(Message, frozen=True, tag=21):
    """A client has come to broker `home`; flooded, answered by `JoinAnswer` when every broker has it."""

    client: str
    incarnation: int
    home: str


class JoinAnswer(Message, frozen=True, tag=22):
    client: str
    incarnation: int
    home: str
    holder: str
    """Empty: nobody objects. Otherwise the broker where the id is in use."""


class Leave(Message, frozen=True, tag=23):
    """The client is gone: forget it and everything it issued."""

    client: str
    incarnation: int
    home: str


class Announce(Message, frozen=True, tag=24):
    """A broker makes itself known to the whole overlay, once, so that a cycle or a twin is found."""

    broker: str
    incarnation: int
    next: str
    """Its neighbour on the way to the receiver; empty on its first link."""


class Forget(Message, frozen=True, tag=25):
    """An (un)subscription has no effect left at its edge broker; drop it where that holds too."""

    client: str
    stamp: Stamp


class Over(Message, frozen=True, tag=26):
    """Every broker has committed these transactions; floods from the edge broker of their coordinators."""

    txs: tuple[str, ...]


class StatusRequest(Message, frozen=True, tag=30):
    dump: bool


class StatusAnswer(Message, frozen=True, tag=31):
    part: bytes
    """JSON, in as many parts as it takes."""
    more: bool


class Ping(Message, frozen=True, tag=40):
    """To a quiet peer, and outside the link: answered at once, by an empty frame, or the peer is dead."""


LinkMessage = (
    Hello
    | Welcome
    | Goodbye
    | Publish
    | Request
    | Accepted
    | Refused
    | Settle
    | Settled
    | Joined
    | Operation
    | Join
    | JoinAnswer
    | Leave
    | Announce
    | Forget
    | Over
    | StatusRequest
    | StatusAnswer
    | Ping
)
