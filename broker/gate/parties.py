"""Whom the way of messages deals with: who decides, who owns it, who keeps its journal; pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from broker.gate.peer import Peer
from broker.journal.failures import JournalFailed
from broker.protocol.hops import Hop, Sends
from broker.protocol.messages import Publish

P_contra = TypeVar("P_contra", bound=Peer, contravariant=True)


class Decision(Protocol):
    """About several publications of one source, by their places (`broker.routing.publications`)."""

    @property
    def hops(self) -> list[Collection[Hop]]: ...

    @property
    def refused(self) -> Mapping[int, str]: ...


class Ready(Protocol):
    """What follows from a message (`broker.routing.ready`)."""

    sends: Sends
    notices: list[Any]


class Core(Protocol):
    """Whoever decides (`broker.core`). A `WireError` of it means that the source broke the protocol."""

    def decide_one(self, source: Hop, message: Publish, /) -> tuple[Collection[Hop], str]: ...

    def decide(self, source: Hop, messages: Sequence[Publish], /) -> Decision: ...

    def handle(self, now: float, source: Hop, message: Any, /) -> Ready: ...

    def expire(self, now: float, /) -> Ready: ...

    @property
    def has_open_transactions(self) -> bool: ...


class NodeJournal(Protocol):
    """Where it is entered what a node is given (`broker.journal`)."""

    def append(self, *pieces: bytes) -> int:
        """The entry's number; it is durable some time after."""

    def sync(self) -> int:
        """All that was appended is durable; the number of the last. Raises `JournalFailed`."""


class Keeper(Protocol):
    """Who has to know how it goes with the journal."""

    def sync_soon(self, sync: Callable[[], None], /) -> None:
        """Call this after all that the present turn of the loop brings: one sync serves it all."""

    def journal_failed(self, error: JournalFailed, /) -> None:
        """What waits for the journal never leaves."""

    def rested(self) -> None:
        """Everything that was handled is durable and has been carried out."""


class Owner(Protocol[P_contra]):
    def happened(self, notice: Any, /) -> None:
        """The core has something to tell."""

    def is_too_slow(self, peer: P_contra, /) -> None:
        """More waits for this client than may."""

    def failed(self, stream: Any, /) -> None:
        """The peer broke the protocol, in a frame that had been held."""
