"""What the way of messages through a node was given, as entries of its journal: bytes, both ways; pure.

A node is a function of what it is given, in order: frames of its peers, clients that come and go, the passing of time.
So its journal holds that, and nothing of what it led to: whoever gives the same to the same core again has its tables,
its open transactions, its votes and decisions, and every message on every link with its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Layout
from typing import Any

import msgspec
from msgspec import Struct

from broker.protocol.hops import Hop

VERSION = 1
"""Of these entries, and of the classes of which a snapshot consists: another one is refused. A test says when it is to
be raised."""


class FrameEntry(Struct, frozen=True):
    """Messages of a peer, that were handled at this time."""

    hop: Hop
    now: float
    processed: int
    """Of our messages, by the peer, as far as was known."""
    body: bytes


class ClientEntry(Struct, frozen=True, array_like=True, tag=1):
    """What did not come on a link: a client comes, goes, is away."""

    hop: Hop
    now: float
    name: str
    """Of the kind of input."""
    fields: dict[str, Any]


class FirstEntry(Struct, frozen=True, array_like=True, tag=2):
    """The node has made itself known: always the first."""

    now: float
    made_of: bytes
    """What its core was made of, by whoever made it: made of anything else it would do something else."""


class TimeEntry(Struct, frozen=True, array_like=True, tag=3):
    """It looked at what is open."""

    now: float


class HeardEntry(Struct, frozen=True, array_like=True, tag=4):
    """A peer has processed more of ours. Nothing waits for this entry: the peer says it again."""

    hop: Hop
    processed: int


class GreetedEntry(Struct, frozen=True, array_like=True, tag=5):
    """A peer has a connection, and this life."""

    hop: Hop
    incarnation: int


Control = ClientEntry | FirstEntry | TimeEntry | HeardEntry | GreetedEntry
Entry = FrameEntry | Control

_FRAME = Layout("!BHdQ")
"""Zero, the length of the hop's name, when, how many were processed; the name and the frame's body follow."""
_MARK = 0
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Control).decode


def frame(hop: Hop, now: float, processed: int, body: bytes) -> tuple[bytes, bytes]:
    """In pieces, because a frame is long and is not copied for this."""
    name = hop.encode()
    return _FRAME.pack(_MARK, len(name), now, processed) + name, body


def told(hop: Hop, now: float, message: Any) -> bytes:
    return _encode(ClientEntry(hop, now, type(message).__name__, msgspec.structs.asdict(message)))


def encode(entry: Control) -> bytes:
    return _encode(entry)


def decode(entry: bytes) -> Entry:
    if entry[0] != _MARK:
        control: Control = _decode(entry)
        return control
    _, length, now, processed = _FRAME.unpack_from(entry)
    end = _FRAME.size + length
    return FrameEntry(entry[_FRAME.size : end].decode(), now, processed, entry[end:])


def input_of(entry: ClientEntry, inputs: Mapping[str, type[Any]]) -> Any:
    """The message that was told; `inputs` are the kinds that there are, by their names."""
    return inputs[entry.name](**entry.fields)
