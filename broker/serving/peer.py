"""A neighbour or client on whatever socket it has at present."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.gate import peer
from broker.gate.channel import Delaying
from broker.gate.peer import Kind
from broker.protocol.delay import Delay
from broker.protocol.hops import Hop
from broker.transport.channel import delaying
from broker.transport.stream import Stream

Holding = Callable[[Delay, Hop], Delaying | None]
"""What holds messages on a link of this delay."""


class Peer(peer.Peer):
    stream: Stream | None

    def __init__(
        self, hop: Hop, kind: Kind, delay: Delay, silence_s: float, holding: Holding = delaying
    ) -> None:
        super().__init__(asyncio.get_running_loop(), hop, kind, silence_s, holding(delay, hop))

    def status(self) -> dict[str, Any]:
        link = self.link
        return {
            "hop": self.hop,
            "name": self.name,
            "kind": self.kind,
            "state": "up" if self.stream else ("away" if self.incarnation else "connecting"),
            "queue_bytes": self.queue_bytes,
            "queue_messages": link.queue_messages,
            "unacknowledged_messages": link.sent - link.sent_processed,
            "sent": link.sent,
            "received": link.processed,
            "sent_bytes": link.sent_bytes,
            "received_bytes": link.processed_bytes,
            "held": bool(self.waits_for),
            "waits_for": sorted(peer.hop for peer in self.waits_for),
            "stalled": self.stalled,
        }
