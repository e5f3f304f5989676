"""Who is here, away and gone: peers attached to connections, waited for within a grace time, parted with.

A peer (`broker.gate.peer`) outlives its connections: a neighbour for the whole life of the broker, a client until it
says goodbye or stays away longer than the grace time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

from broker.gate.clock import Clock
from broker.gate.peer import Peer
from broker.gate.transit import Transit
from broker.protocol.hops import Hop, client_hop
from broker.protocol.messages import Goodbye, Hello, Welcome
from broker.protocol.wire import WireError
from broker.routing.joining import ClientArrived, ClientAway, ClientBack, ClientGone, ClientInput
from broker.sessions import greeting

P = TypeVar("P", bound=Peer)


class PeerSessions(ABC, Generic[P]):
    def __init__(
        self,
        broker: str,
        incarnation: int,
        transit: Transit[P],
        clock: Clock,
        grace_ms: float,
        departed: greeting.Departed | None,
    ) -> None:
        self.broker = broker
        self.incarnation = incarnation
        self.transit = transit
        self.peers = transit.peers
        self.grace_ms = grace_ms
        """`inf`: a client is waited for until somebody says that it is gone."""
        self.departed = departed or greeting.Departed()
        """Clients that were parted with, and why: some come back and ask."""
        self._clock = clock

    @abstractmethod
    def made_peer(self, hop: Hop, incarnation: int) -> P:
        """A client."""

    @abstractmethod
    def greeting_to(self, peer: P) -> Welcome: ...

    @abstractmethod
    def address_of(self, stream: Any) -> str:
        """Of the other side."""

    @abstractmethod
    def is_lost(self, stream: Any) -> bool:
        """As far as is known here."""

    @abstractmethod
    def refuse(self, stream: Any, goodbye: Goodbye) -> None:
        """Its connection ends with this."""

    @abstractmethod
    def attached(self, peer: P, stream: Any) -> None:
        """It has a connection."""

    # Greetings

    def greet_client(self, stream: Any, hello: Hello) -> None:
        hop, me = client_hop(hello.name), self.broker
        peer = self.peers.get(hop)
        if peer is not None and peer.incarnation == hello.incarnation:
            self._welcome_back(peer, stream, hello.received)
        elif greeting.is_return(hello):
            self.refuse(stream, self.departed.goodbye(hello.name, hello.incarnation, me))
        elif peer is not None and peer.stream is not None:
            self.refuse(stream, greeting.in_use(hello.name, me, self.address_of(peer.stream)))
        else:
            if peer is not None:
                self.gone(peer, greeting.replaced(hello.name, me))
            self._let_in(hop, stream, hello.incarnation)

    def greet_broker(self, peer: P, stream: Any, hello: Hello) -> greeting.Loss | None:
        """A neighbour has dialled us; it is answered if neither of us has lost anything."""
        loser = greeting.lost_state(hello, self.broker, self.incarnation, peer.incarnation)
        if loser:
            return loser, greeting.state_lost(loser)
        loss = greeting.fallen_back(peer.link, hello.received, self.broker, hello.name)
        if loss is None:
            self.transit.gate.submit(self._attach, peer, stream, hello.incarnation, hello.received, True)
        return loss

    def welcomed(self, peer: P, stream: Any, welcome: Welcome) -> greeting.Loss | None:
        """A neighbour has answered our greeting, and may speak at once, if neither of us has lost anything.

        All that it said on an earlier connection had been processed when we greeted it: nothing is waited for here.
        """
        if peer.incarnation not in (0, welcome.incarnation):
            return welcome.broker, greeting.state_lost(welcome.broker)
        loss = greeting.fallen_back(peer.link, welcome.received, self.broker, peer.name)
        if loss is None:
            self._attach(peer, stream, welcome.incarnation, welcome.received, answers=False)
        return loss

    def _let_in(self, hop: Hop, stream: Any, incarnation: int) -> None:
        """A new client; the rest of the overlay may still object."""
        peer = self.made_peer(hop, incarnation)
        self.transit.add(peer)
        welcome = partial(self._attach, peer, stream, incarnation, 0, answers=True)
        self.transit.handle(hop, ClientArrived(incarnation), welcome)

    def _welcome_back(self, peer: P, stream: Any, received: int) -> None:
        """Within the grace time; in turn: then all that it said on an earlier connection has been processed."""
        peer.stop_grace()
        self.transit.gate.submit(self._attach, peer, stream, peer.incarnation, received, True)
        self.transit.handle(peer.hop, ClientBack())

    def _attach(self, peer: P, stream: Any, incarnation: int, received: int, answers: bool) -> None:
        """Since it spoke, it may have been parted with, and its connection lost."""
        if self.peers.get(peer.hop) is not peer:
            self.refuse(stream, self.departed.goodbye(peer.name, incarnation, self.broker))
            return
        if self.is_lost(stream):
            self._wait_on(peer)
            return
        self.transit.met(peer, incarnation)
        try:
            self.transit.resume(peer, stream, received, self.greeting_to(peer) if answers else None)
        except WireError as error:
            self.refuse(stream, Goodbye("protocol", str(error)))
            self._wait_on(peer)
            return
        peer.stop_grace()
        self.attached(peer, stream)

    # Clients that are away

    def lost(self, peer: P) -> None:
        """Its connection has ended; a client may come back."""
        self.transit.interrupt(peer)
        if peer.kind == "client":
            self._wait_for(peer)

    def _wait_on(self, peer: P) -> None:
        """What it came by is no connection."""
        if peer.kind == "client" and peer.stream is None:
            self._wait_for(peer)

    def _wait_for(self, peer: P) -> None:
        """A client, within the grace time."""
        peer.stop_grace()
        if self.grace_ms < inf:
            goodbye = greeting.away_too_long(peer.name, self.broker, self.grace_ms)
            peer.grace_timer = self._clock.call_later(self.grace_ms / 1e3, self.gone, peer, goodbye)
        self.transit.handle(peer.hop, ClientAway())
        self._clock.call_soon(self.transit.flush)

    # After a crash

    def told(self, hop: Hop, message: ClientInput) -> None:
        """What the journal has of a client."""
        if isinstance(message, ClientArrived):
            self.transit.add(self.made_peer(hop, message.incarnation))
        elif isinstance(message, ClientGone) and (peer := self.peers.get(hop)) is not None:
            self.part_with(peer, Goodbye(message.code, message.reason))

    def wait_for_all(self) -> None:
        """Nobody has a connection; clients that were here may come back."""
        for peer in tuple(self.peers.values()):
            if peer.kind == "client":
                self._wait_for(peer)

    # Clients that are gone

    def gone(self, peer: P, goodbye: Goodbye) -> None:
        if self.peers.get(peer.hop) is not peer:
            return
        self.part_with(peer, goodbye)
        self.transit.handle(peer.hop, ClientGone(goodbye.reason, goodbye.code))
        self._clock.call_soon(self.transit.flush)

    def part_with(self, peer: P, goodbye: Goodbye) -> None:
        """A client's session ends here; with what reason, it is told now or when it comes back."""
        if goodbye.code != "leaving":
            self.departed.add(peer.name, peer.incarnation, goodbye)
            if peer.stream is not None:
                self.refuse(peer.stream, goodbye)
        self.transit.remove(peer)
