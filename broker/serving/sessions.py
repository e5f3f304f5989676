"""The peers of a broker's process, and what becomes of them: attached, away, too slow, gone.

A peer (`Peer`) outlives its connections: a neighbour for the whole life of the process, a client until it
says goodbye or stays away longer than the grace time.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Literal

from broker.config import NodeConfig
from broker.gate.peer import HOLD_BYTES
from broker.node.log import JsonLog
from broker.protocol import wire
from broker.protocol.delay import Delay
from broker.protocol.hops import Hop, broker_hop
from broker.protocol.messages import Goodbye, Welcome
from broker.protocol.wire import WireError
from broker.routing.joining import ClientArrived, ClientAway, ClientBack, ClientGone, ClientInput
from broker.serving import greeting
from broker.serving.forwarding import Forwarder
from broker.serving.peer import Holding, Peer
from broker.serving.recording import RecordingFile
from broker.transport.channel import delaying, look_s
from broker.transport.stream import Stream


class Sessions:
    def __init__(
        self,
        config: NodeConfig,
        incarnation: int,
        forwarder: Forwarder,
        log: JsonLog,
        recording: RecordingFile | None = None,
        departed: greeting.Departed | None = None,
        holding: Holding = delaying,
    ) -> None:
        self._config = config
        self._incarnation = incarnation
        self._forwarder = forwarder
        self._log = log
        self._recording = recording
        self._holding = holding
        self._loop = asyncio.get_running_loop()
        self.peers = forwarder.peers
        self.departed = departed or greeting.Departed()
        """Clients that were parted with, and why: some come back and ask."""
        for neighbour in config.neighbours:
            hop = broker_hop(neighbour.id)
            forwarder.add(self._peer(hop, "broker", neighbour.delay))

    def made_peer(self, hop: Hop, incarnation: int) -> Peer:
        """A client."""
        config = self._config
        peer = self._peer(hop, "client", config.clients)
        peer.hold_bytes = min(HOLD_BYTES, config.queue_bytes_max // 4)
        peer.patience_s = config.patience_ms / 1e3
        peer.incarnation = incarnation
        return peer

    def _peer(self, hop: Hop, kind: Literal["broker", "client"], delay: Delay) -> Peer:
        peer = Peer(hop, kind, delay, self._config.silence_ms / 1e3, self._holding)
        if self._recording is not None:
            peer.link = self._recording.link(hop)
        return peer

    # Connections

    def let_in(self, hop: Hop, stream: Stream, incarnation: int) -> None:
        """A new client; the rest of the overlay may still object."""
        peer = self.made_peer(hop, incarnation)
        self._forwarder.add(peer)
        welcome = partial(self._attach, peer, stream, incarnation, 0, answers=True)
        self._forwarder.handle(hop, ClientArrived(incarnation), welcome)

    def welcome_back(self, peer: Peer, stream: Stream, received: int) -> None:
        """A client has found its way back within the grace time."""
        self.welcome(peer, stream, peer.incarnation, received)
        self._forwarder.handle(peer.hop, ClientBack())

    def welcome(self, peer: Peer, stream: Stream, incarnation: int, received: int) -> None:
        """Answer its greeting, in turn: then all that it said on an earlier connection has been processed."""
        self._forwarder.gate.submit(self._attach, peer, stream, incarnation, received, True)

    def welcomed(self, peer: Peer, stream: Stream, incarnation: int, received: int) -> None:
        """It has answered ours."""
        self._forwarder.gate.submit(self._attach, peer, stream, incarnation, received, False)

    def _attach(self, peer: Peer, stream: Stream, incarnation: int, received: int, answers: bool) -> None:
        self._forwarder.met(peer, incarnation)
        try:
            self._forwarder.resume(peer, stream, received, self.greeting_to(peer) if answers else None)
        except WireError as error:
            self.refuse(stream, Goodbye("protocol", str(error)))
            return
        stream.context = peer
        stream.body_bytes_max = wire.BODY_BYTES_MAX
        peer.stop_grace()
        self._log.log("up", peer=peer.hop, address=stream.peer_address)

    def greeting_to(self, peer: Peer | None = None) -> Welcome:
        processed = 0 if peer is None else peer.link.processed
        return Welcome(self._config.id, self._incarnation, processed, self._config.limits)

    def lost(self, peer: Peer, reason: str) -> None:
        """Its connection has ended; a client may come back."""
        self._forwarder.interrupt(peer)
        self._log.log("away", peer=peer.hop, reason=reason)
        if peer.kind == "client":
            self._wait_for(peer)

    def _wait_for(self, peer: Peer) -> None:
        """A client, within the grace time."""
        grace_ms = self._config.grace_ms
        goodbye = greeting.away_too_long(peer.name, self._config.id, grace_ms)
        peer.grace_timer = self._loop.call_later(grace_ms / 1e3, self.gone, peer, goodbye)
        self._forwarder.handle(peer.hop, ClientAway())
        self._loop.call_soon(self._forwarder.flush)

    # After a crash

    def told(self, hop: Hop, message: ClientInput) -> None:
        """What the journal has of a client."""
        if isinstance(message, ClientArrived):
            self._forwarder.add(self.made_peer(hop, message.incarnation))
        elif isinstance(message, ClientGone) and (peer := self.peers.get(hop)) is not None:
            self.part_with(peer, Goodbye(message.code, message.reason))

    def wait_for_all(self) -> None:
        """Nobody has a connection; clients that were here may come back."""
        for peer in tuple(self.peers.values()):
            if peer.kind == "client":
                self._wait_for(peer)

    # Clients that are slow or gone

    def too_slow(self, peer: Peer) -> None:
        self.gone(peer, greeting.too_slow(peer.name, peer.link.queue_bytes, self._config.queue_bytes_max))

    def gone(self, peer: Peer, goodbye: Goodbye) -> None:
        if self.peers.get(peer.hop) is not peer:
            return
        self.part_with(peer, goodbye)
        self._forwarder.handle(peer.hop, ClientGone(goodbye.reason, goodbye.code))
        self._loop.call_soon(self._forwarder.flush)

    def part_with(self, peer: Peer, goodbye: Goodbye) -> None:
        """A client's session ends here; with what reason, it is told now or when it comes back."""
        if goodbye.code != "leaving":
            self.departed.add(peer.name, peer.incarnation, goodbye)
            if peer.stream is not None:
                self.refuse(peer.stream, goodbye)
        self._forwarder.remove(peer)

    def refuse(self, stream: Stream, goodbye: Goodbye) -> None:
        self._log.log("refused", address=stream.peer_address, code=goodbye.code, reason=goodbye.reason)
        stream.close(goodbye)

    async def look_after(self) -> None:
        """For ever: quiet peers are asked for a sign of life, dead connections are cut off."""
        while True:
            await asyncio.sleep(look_s(self._config.silence_ms / 1e3))
            now = self._loop.time()
            for peer in tuple(self.peers.values()):
                if not peer.look_after(now):
                    self._log.log("silent", peer=peer.hop)
