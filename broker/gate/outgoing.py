"""What is sent goes to its destinations: gathered for each, written once a turn; whoever is full is not fed on; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Raw

from broker.gate.peer import Peer
from broker.protocol import wire
from broker.protocol.events import SENT, MessageEvent
from broker.protocol.hops import Hop, Sends
from broker.protocol.wire import AnyMessage

P = TypeVar("P", bound=Peer)


class Outgoing(Generic[P]):
    def __init__(
        self, queue_bytes_max: int, is_too_slow: Callable[[P], None], release: Callable[[P], None]
    ) -> None:
        self._queue_bytes_max = queue_bytes_max
        self._is_too_slow = is_too_slow
        self._release = release
        self._dirty: list[P] = []
        self.reached: dict[Hop, P] = {}
        """Who is here, as of what has been carried out."""
        self.is_replayed = False
        """What is sent is on its link at once, and nobody waits for anybody or is too slow: that has been decided."""
        self.note: Callable[[MessageEvent, Hop, int, AnyMessage], None] | None = None
        """Where each message that is handled or sent is noted with its number on its link, if it is;
        publications are not."""

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be written."""
        return not self._dirty

    def put(self, pieces: Sequence[bytes | Raw], count: int, hops: Iterable[Hop], source: Hop = "") -> None:
        """`count` messages into the outbox of every hop but the source."""
        for hop in hops:
            peer = self.reached.get(hop)
            if peer is not None and hop != source:
                if not peer.outbox:
                    self._dirty.append(peer)
                peer.outbox += pieces
                peer.outbox_messages += count

    def put_messages(self, sends: Sends) -> None:
        encoded, last = b"", None
        for hop, message in sends:
            peer = self.reached.get(hop)
            if peer is None:
                continue  # whoever it was for is gone
            if message is not last:
                encoded, last = wire.encode(message), message
            if not peer.outbox:
                self._dirty.append(peer)
            peer.put(encoded)
            if self.note is not None:
                self.note(SENT, hop, peer.newest, message)

    def send(self, hop: Hop, message: AnyMessage, source: P) -> None:
        """At once: nothing else waits anywhere."""
        peer = self.reached.get(hop)
        if peer is None:
            return  # whoever it was for is gone
        peer.send_at_once(message)
        if self.is_replayed:
            peer.flush_now()
        if self.note is not None:
            self.note(SENT, hop, peer.newest, message)
        if peer.link.queue_bytes + peer.delayed_bytes > peer.hold_bytes:
            self._press(peer, source)

    def flush(self, source: P | None = None) -> None:
        """Write what this turn has gathered; a destination that is full makes the source wait."""
        while dirty := self._dirty:
            self._dirty = []
            for peer in dirty:
                if self.is_replayed:
                    peer.flush_now()
                else:
                    peer.flush()
                if peer.link.queue_bytes + peer.delayed_bytes > peer.hold_bytes:
                    self._press(peer, source)

    def _press(self, peer: P, source: P | None) -> None:
        if self.is_replayed:
            return
        if peer.link.queue_bytes > self._queue_bytes_max and peer.kind == "client":
            self._is_too_slow(peer)
        elif source is not None and source is not peer and not peer.stalled:
            peer.make_wait(source, self._release)
