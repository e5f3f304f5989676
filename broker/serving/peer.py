"""A neighbour or client on whatever socket it has at present."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker.gate import peer
from broker.gate.channel import Delaying
from broker.gate.clock import Timer
from broker.gate.peer import Kind, Release
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
        self.grace_timer: Timer | None = None
        """Until a client that is away is gone."""

    def forget(self, release: Release) -> None:
        super().forget(release)
        self.stop_grace()

    def stop_grace(self) -> None:
        if self.grace_timer is not None:
            self.grace_timer.cancel()
            self.grace_timer = None

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
