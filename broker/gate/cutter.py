"""The bodies of frames, cut into messages and put together from them; pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from broker.protocol import wire
from broker.protocol.wire import BODY_BYTES_TARGET, MESSAGE_BYTES_MAX, WireError


class Cutter:
    """The bytes of a frame's messages: as they came if all go one way, cut apart, once, if not."""

    def __init__(self, body: bytes, count: int) -> None:
        self._body = body
        self._count = count
        self._pieces: Sequence[bytes | Raw] = ()

    def cut(self, start: int, end: int) -> Sequence[bytes | Raw]:
        if end - start == self._count and (whole := wire.messages_of(self._body)):
            return (whole,)
        return self._apart()[start:end]

    def check_sizes(self) -> None:
        """A message that is too large would go on in a frame that nobody takes."""
        size = max(map(len, self._apart()))
        if size > MESSAGE_BYTES_MAX:
            raise WireError(f"a message of {size} bytes; the limit is {MESSAGE_BYTES_MAX}")

    def _apart(self) -> Sequence[bytes | Raw]:
        self._pieces = self._pieces or wire.split(self._body, self._count)
        return self._pieces


def apart(joined: bytes, count: int) -> Sequence[bytes | Raw]:
    """`count` encoded messages that stand one behind the other."""
    return wire.split(wire.body(joined, count), count)


def parts(pieces: Sequence[bytes | Raw]) -> list[tuple[bytes, int]]:
    """Messages that are more than one frame can hold: in order, as many together as it should."""
    found: list[tuple[bytes, int]] = []
    part: list[bytes] = []
    size = 0
    for piece in map(bytes, pieces):
        if part and size + len(piece) > BODY_BYTES_TARGET:
            found.append((b"".join(part), len(part)))
            part, size = [], 0
        part.append(piece)
        size += len(piece)
    found.append((b"".join(part), len(part)))
    return found
