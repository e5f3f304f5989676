"""The sessions of a broker's process: `broker.sessions.presence` with sockets, a log, and a limit for who is slow."""

from __future__ import annotations

import asyncio
from typing import Literal

from broker.config import NodeConfig
from broker.gate.peer import HOLD_BYTES
from broker.node.log import JsonLog
from broker.protocol import wire
from broker.protocol.delay import Delay
from broker.protocol.hops import Hop, broker_hop
from broker.protocol.messages import Goodbye, Welcome
from broker.serving.forwarding import Forwarder
from broker.serving.peer import Holding, Peer
from broker.serving.recording import RecordingFile
from broker.sessions import greeting
from broker.sessions.presence import PeerSessions
from broker.transport.channel import delaying, look_s
from broker.transport.stream import Stream


class Sessions(PeerSessions[Peer]):
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
        self._loop = asyncio.get_running_loop()
        super().__init__(config.id, incarnation, forwarder, self._loop, config.grace_ms, departed)
        self._config = config
        self._log = log
        self._recording = recording
        self._holding = holding
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

    def greeting_to(self, peer: Peer | None = None) -> Welcome:
        processed = 0 if peer is None else peer.link.processed
        return Welcome(self._config.id, self.incarnation, processed, self._config.limits)

    def address_of(self, stream: Stream) -> str:
        return stream.peer_address

    def is_lost(self, stream: Stream) -> bool:
        return not stream.is_open

    def attached(self, peer: Peer, stream: Stream) -> None:
        stream.context = peer
        stream.body_bytes_max = wire.BODY_BYTES_MAX
        self._log.log("up", peer=peer.hop, address=stream.peer_address)

    def interrupted(self, peer: Peer, reason: str) -> None:
        """Its connection has ended."""
        if self._recording is not None:
            self._recording.lost(peer.hop, peer.link)
        self._log.log("away", peer=peer.hop, reason=reason)
        self.lost(peer)

    def too_slow(self, peer: Peer) -> None:
        self.gone(peer, greeting.too_slow(peer.name, peer.link.queue_bytes, self._config.queue_bytes_max))

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
