"""Every message, its encoding and its framing; nothing else in the project knows bytes. (Those of
transactions are declared in `broker.txmessages`.)

A connection carries frames. A frame is a header (`HEADER`: body length, number of its first message
on this link, how many of the peer's messages have been processed) and a body: a msgpack array of
messages, each an array that begins with its tag. Numbers are counted per link and stand in the
header, so a publication's own bytes travel through every broker exactly as its publisher wrote them.

Some messages are not of a link and not counted: `Hello` and its answer `Welcome` before it, `Ping`
beside it, `Goodbye` after it. Their frames have the number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout
from typing import Literal

import msgspec
from msgspec import Raw

from broker.filters import Event, Filter, Overlap
from broker.limits import Limits
from broker.txmessages import TransactionMessage
from broker.vocabulary import NO_KEY, Key, Kind, Message, Stamp

__all__ = ["NO_KEY", "Key", "Kind", "Message", "Stamp"]

PROTOCOL_VERSION = 1
MESSAGE_BYTES_MAX = 1 << 20
"""One message, encoded. A payload's own limit is lower (`Limits.payload_bytes_max`)."""
BODY_BYTES_TARGET = 64 << 10
"""A sender closes a frame when its body has grown to this, so that a long queue flows in pieces."""
BODY_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
REASON_LENGTH_MAX = 500
"""Of what a peer is told; a sentence that quotes hostile input could have any length."""

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


class WireError(Exception):
    """The peer sent bytes that are not a frame of this protocol; the text is fit to be sent back."""


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


class StatusRequest(Message, frozen=True, tag=30):
    dump: bool


class StatusAnswer(Message, frozen=True, tag=31):
    part: bytes
    """JSON, in as many parts as it takes."""
    more: bool


class Ping(Message, frozen=True, tag=40):
    """To a quiet peer, and outside the link: answered at once, by an empty frame, or the peer is dead."""


AnyMessage = (
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
    | StatusRequest
    | StatusAnswer
    | Ping
    | TransactionMessage
)


HEADER = Layout("!IQQ")
"""Bytes of the body; number of its first message on this link, 0 outside one; how many of the
receiver's messages the sender has processed."""
HEADER_BYTES = HEADER.size
_FRAME = Layout("!IQQBI")
"""The header, and the array header that begins the body."""
_ARRAY_32 = 0xDD
_COUNT_BYTES = 5
"""Of the body's array header."""


def brief(reason: str) -> str:
    return reason if len(reason) <= REASON_LENGTH_MAX else reason[: REASON_LENGTH_MAX - 1] + "…"


encode = msgspec.msgpack.Encoder().encode
_pack, _unpack = _FRAME.pack, HEADER.unpack_from
_decode_messages = msgspec.msgpack.Decoder(list[AnyMessage]).decode
_decode_pieces = msgspec.msgpack.Decoder(list[Raw]).decode


def frame(messages: bytes, count: int, first: int, processed: int) -> bytes:
    """One frame from `count` encoded messages; the caller keeps it below `BODY_BYTES_MAX`."""
    return _pack(len(messages) + _COUNT_BYTES, first, processed, _ARRAY_32, count) + messages


def body(messages: bytes, count: int) -> bytes:
    """Encoded messages, one behind the other, as the array that a frame carries."""
    return _ARRAY_32.to_bytes(1, "big") + count.to_bytes(4, "big") + messages


def messages_of(body: bytes) -> bytes:
    """What `body` was made of; empty if it has another header than that gives it."""
    return body[_COUNT_BYTES:] if body[0] == _ARRAY_32 else b""


def split(body: bytes, count: int) -> Sequence[bytes | Raw]:
    """The bytes of each of a body's `count` messages; it has been decoded, so it holds them."""
    if count == 1 and body[0] == _ARRAY_32:
        return (body[_COUNT_BYTES:],)
    return _decode_pieces(body)


def decode(body: bytes) -> list[AnyMessage]:
    """The messages of a frame's body."""
    try:
        return _decode_messages(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not a message of this protocol: {error}") from None


def read_header(
    data: bytes | bytearray | memoryview, offset: int = 0, body_bytes_max: int = BODY_BYTES_MAX
) -> tuple[int, int, int]:
    """Body length, first number, processed count: the fields of `HEADER`."""
    header: tuple[int, int, int] = _unpack(data, offset)
    if header[0] > body_bytes_max:
        raise WireError(f"a frame of {header[0]} bytes; the limit is {body_bytes_max}")
    return header
