"""The union of all messages, their encoding and their framing; nothing else in the project knows bytes.

A protocol declares its messages in a module of its own and stands in `TransactionMessage` here.

A connection carries frames. A frame is a header (`HEADER`: body length, number of its first message
on this link, how many of the peer's messages have been processed) and a body: a msgpack array of
messages, each an array that begins with its tag. Numbers are counted per link and stand in the
header, so a publication's own bytes travel through every broker exactly as its publisher wrote them.
The frames of messages that are not of a link (`broker.protocol.messages`) have the number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout
from typing import get_args

import msgspec
from msgspec import Raw

from broker.protocol.dtx import DtxMessage
from broker.protocol.messages import LinkMessage
from broker.protocol.stx import StxMessage

PROTOCOL_VERSION = 1
MESSAGE_BYTES_MAX = 1 << 20
"""One message, encoded. A payload's own limit is lower (`Limits.payload_bytes_max`)."""
BODY_BYTES_TARGET = 64 << 10
"""A sender closes a frame when its body has grown to this, so that a long queue flows in pieces."""
BODY_BYTES_MAX = 2 * MESSAGE_BYTES_MAX
REASON_LENGTH_MAX = 500
"""Of what a peer is told; a sentence that quotes hostile input could have any length."""


class WireError(Exception):
    """The peer sent what is no frame of this protocol, or not due; the text is fit to be sent back."""


TransactionMessage = DtxMessage | StxMessage
"""Every one has the id of its transaction, `tx`; one that is about one operation has its number, `op`."""
TRANSACTION_TYPES: frozenset[type] = frozenset(get_args(TransactionMessage))
AnyMessage = LinkMessage | TransactionMessage


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
