"""What a handler of the core answers: what is to be sent, what is worth telling; pure."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from broker.protocol.hops import Sends
from broker.protocol.wire import WireError


class ProtocolError(WireError):
    """The source sent what it must not send; the text is fit to be sent back."""


class Notice(Struct, frozen=True):
    """Something that has happened: worth a line in the history or the log, or an act of the server."""

    name: str
    fields: dict[str, Any]


class Ready(Struct):
    """What follows from a message, in the order in which `broker.gate` lets it out."""

    sends: Sends
    notices: list[Notice]

    def __iadd__(self, other: Ready) -> Ready:
        self.sends += other.sends
        self.notices += other.notices
        return self
