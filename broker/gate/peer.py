"""A neighbour or client as its broker sees it, and what happens when it is slow; pure.

A destination whose queue has grown past its `hold_bytes` makes the sources that feed it wait: their frames
are kept unprocessed, so their windows close and they slow down. A client that does not move at all is
waited for no longer than `patience_s`: its queue may grow to the broker's limit, then it is disconnected.
So one stalled subscriber costs others at most that time, and never more memory than the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Literal

from broker.gate.channel import Channel, Delaying
from broker.gate.clock import Clock, Timer
from broker.gate.holding import Held
from broker.protocol.hops import Hop
from broker.protocol.link import Link

HOLD_BYTES = 2 << 20
"""Unless the limit on a client's queue is lower: its sources must wait before it is disconnected."""
LOOKS = 5
"""At a client within one's patience, none of which may find it moved. A broker that did not get a processor for a
while, and has yet to read what its clients said meanwhile, has missed one of them only."""
Kind = Literal["broker", "client"]
Release = Callable[[Any], None]
"""What is to be done with a peer that need not wait any more."""


class Peer(Channel):
    def __init__(
        self,
        clock: Clock,
        hop: Hop,
        kind: Kind,
        silence_s: float = inf,
        delaying: Delaying | None = None,
        link: Link | None = None,
    ) -> None:
        super().__init__(clock, silence_s, delaying, link)
        self.hold_bytes = HOLD_BYTES
        self.patience_s = inf
        """A neighbour is always waited for, a client as long as its broker is told to."""
        self.hop = hop
        self.kind = kind
        self.name = hop.partition(":")[2]
        self.incarnation = 0
        """Of the other side; 0 before it has spoken."""
        self.held = Held()
        self.waits_for: set[Peer] = set()
        self.waited_for_by: dict[Peer, None] = {}
        """In the order in which they began to wait."""
        self.stalled = False
        self.is_gone = False
        self.grace_timer: Timer | None = None
        """Until a client that is away is gone."""
        self._stall_timer: Timer | None = None

    def make_wait(self, source: Peer, release: Release) -> None:
        """`source` feeds us faster than we drain. Whoever is gone drains no more: what was for it came too late."""
        if self.is_gone:
            return
        source.waits_for.add(self)
        self.waited_for_by[source] = None
        if self._stall_timer is None and self.patience_s < inf:
            self._watch(release)

    def drained(self, release: Release) -> None:
        """The peer has processed something: more may go to it."""
        self.stalled = False
        self.pump()
        if self.waited_for_by and self.queue_bytes < self.hold_bytes // 2:
            self._let_go(release)

    def forget(self, release: Release) -> None:
        """This peer is gone: nobody waits for it, and it waits for nobody."""
        self.is_gone = True
        self._let_go(release)
        for other in self.waits_for:
            other.waited_for_by.pop(self, None)
        self.waits_for.clear()
        self.held.clear()
        self.close()
        self.stop_grace()

    def stop_grace(self) -> None:
        if self.grace_timer is not None:
            self.grace_timer.cancel()
            self.grace_timer = None

    def _watch(self, release: Release, looks: int = LOOKS) -> None:
        before, had_work = self.link.sent_processed, self.link.queue_messages > 0

        def look() -> None:
            self._stall_timer = None
            if not self.waited_for_by:
                return
            # What is still on its emulated way is not the peer's fault.
            if not had_work or self.link.sent_processed != before:
                self._watch(release)
            elif looks > 1:
                self._watch(release, looks - 1)
            else:
                self.stalled = True
                self._let_go(release)

        self._stall_timer = self._clock.call_later(self.patience_s / LOOKS, look)

    def _let_go(self, release: Release) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        waiting, self.waited_for_by = self.waited_for_by, {}
        for source in waiting:
            source.waits_for.discard(self)
            if not source.waits_for:
                self._clock.call_soon(release, source)
