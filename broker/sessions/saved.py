"""Everything that a broker must remember, as the content of a snapshot, and how it goes on from that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TypeVar

from msgspec import Struct

from broker.core import Broker
from broker.gate.peer import Peer
from broker.gate.recovery import PeerState, RecoveredCore, replay, restore, state_of
from broker.gate.transit import Transit
from broker.journal import graph
from broker.sessions.greeting import Departed
from broker.sessions.presence import PeerSessions

P = TypeVar("P", bound=Peer)
ROOMS = ("broker", "msgspec")
"""What a state consists of."""


class Saved(Struct, frozen=True):
    core: Broker
    peers: tuple[PeerState, ...]
    time: float
    lines: int
    """Of its history."""
    departed: Departed


def whole_state(core: Broker, presence: PeerSessions[P], lines: int) -> Saved:
    """To be asked when nothing waits in the gate or in an outbox."""
    transit = presence.transit
    return Saved(core, state_of(transit), transit.time(), lines, presence.departed)


def freeze(state: Saved) -> bytes:
    return graph.freeze(state)


def thaw(snapshot: bytes | None) -> Saved | None:
    """Raises `FolderRefused` where it is no state of a broker."""
    if snapshot is None:
        return None
    state = graph.thaw(snapshot, ROOMS)
    assert isinstance(state, Saved), "nothing else is saved"
    return state


def recover(
    transit: Transit[P],
    core: RecoveredCore,
    state: Saved | None,
    entries: Iterable[bytes],
    presence: PeerSessions[P],
    was_made_of: Callable[[bytes], None],
) -> None:
    """Everything is as it was when the journal ended, but for connections; time goes on from there.

    `was_made_of` raises `FolderRefused` if the core is made of something else now.
    """
    newest = -inf
    if state is not None:
        restore(transit, state.peers, presence)
        newest = state.time
    newest = max(newest, replay(transit, core, entries, presence, was_made_of))
    transit.ahead_s = max(0.0, newest - transit.time())
