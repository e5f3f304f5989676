"""A node goes on where its journal ends: a snapshot of what it was, and what it has been given since; pure.

The same core and the same links are given the same again, without connections; what they sent stands on their links
until each peer says how much of it it has processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from broker.gate import ledger, parties
from broker.gate.ledger import ClientEntry, FirstEntry, FrameEntry, GreetedEntry, HeardEntry, TimeEntry
from broker.gate.peer import Peer
from broker.gate.transit import Transit
from broker.protocol import wire
from broker.protocol.hops import Hop
from broker.protocol.link import LinkState
from broker.protocol.wire import WireError

P = TypeVar("P", bound=Peer)
P_co = TypeVar("P_co", bound=Peer, covariant=True)


class RecoveredCore(parties.Core, Protocol):
    """Besides what it is for a transit."""

    inputs: Mapping[str, type[Any]]
    """What it may be told besides messages, by name."""

    def start(self) -> parties.Ready: ...


class PeerHost(Protocol[P_co]):
    """Whose node it is."""

    def made_peer(self, hop: Hop, incarnation: int, /) -> P_co:
        """A client that is here, for all that is known."""

    def told(self, hop: Hop, message: Any, /) -> None:
        """A client comes, goes or is away; before the core is told."""


class PeerState(Struct, frozen=True):
    hop: Hop
    incarnation: int
    link: LinkState


def state_of(transit: Transit[Any]) -> tuple[PeerState, ...]:
    """Of its peers; to be asked when nothing waits in the gate or in an outbox."""
    return tuple(PeerState(p.hop, p.incarnation, p.state()) for p in transit.peers.values())


def restore(transit: Transit[P], states: Iterable[PeerState], host: PeerHost[P]) -> None:
    for state in states:
        peer = transit.peers.get(state.hop)
        if peer is None:
            peer = host.made_peer(state.hop, state.incarnation)
            transit.add(peer)
        peer.incarnation = state.incarnation
        peer.link.restore(state.link)


def replay(
    transit: Transit[P],
    core: RecoveredCore,
    entries: Iterable[bytes],
    host: PeerHost[P],
    was_made_of: Callable[[bytes], None],
) -> float:
    """Give it all that again; the time when it was given the last.

    `was_made_of` raises `FolderRefused` if the node is made of something else now.
    """
    newest = -inf
    transit.outgoing.is_replayed = True
    for encoded in entries:
        entry = ledger.decode(encoded)
        newest = max(newest, getattr(entry, "now", -inf))
        if isinstance(entry, FirstEntry):
            was_made_of(entry.made_of)
            transit.perform(core.start())
        else:
            _give(transit, core, entry, host)
        transit.flush()
    transit.outgoing.is_replayed = False
    for peer in transit.peers.values():
        peer.link.is_restored = True
    return newest


def _give(transit: Transit[P], core: RecoveredCore, entry: ledger.Entry, host: PeerHost[P]) -> None:
    if isinstance(entry, FrameEntry):
        peer = transit.peers.get(entry.hop)
        if peer is None:
            return  # a client that was refused meanwhile: the core took nothing more of it
        peer.link.skip(entry.processed)
        with suppress(WireError):  # it was dismissed for that: the entry that says so follows
            transit.handle_frame(peer, wire.decode(entry.body), entry.body, entry.now)
    elif isinstance(entry, HeardEntry):
        if (heard := transit.peers.get(entry.hop)) is not None:
            heard.link.skip(entry.processed)
    elif isinstance(entry, ClientEntry):
        message = ledger.input_of(entry, core.inputs)
        host.told(entry.hop, message)
        transit.tell_core(entry.now, entry.hop, message)
    elif isinstance(entry, GreetedEntry):
        transit.peers[entry.hop].incarnation = entry.incarnation
    elif isinstance(entry, TimeEntry):
        transit.expire(entry.now)
