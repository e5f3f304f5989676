"""What arrives on links goes through the core, and on to its destinations.

The core decides, and what it says is carried out behind the gate (`broker.gate`): sends, then `processed`, then
notices. Whatever a read leads to is gathered per destination and written at the end of that turn of the loop; but
what a message other than a publication leads to leaves before the next one of its frame is taken, so that
its receivers work while we do. Publications travel as the bytes they came as. A source whose destination is
full waits (`broker.serving.peer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

from msgspec import Raw

from broker.core import Broker, Input
from broker.gate.gate import Append, Gate
from broker.node.history import TRANSACTION_TYPES, History
from broker.protocol import wire
from broker.protocol.events import ARRIVED, SENT, MessageEvent
from broker.protocol.hops import Hop
from broker.protocol.messages import Publish, Refused
from broker.protocol.wire import MESSAGE_BYTES_MAX, AnyMessage, WireError
from broker.routing.publications import Decision
from broker.routing.ready import Notice, ProtocolError, Ready
from broker.serving.peer import Peer
from broker.transport.stream import Stream

EXPIRE_S = 0.5
"""Between two looks at open transactions: lifetimes, silence, what is over."""


class Owner(Protocol):
    def happened(self, notice: Notice) -> None:
        """The core has something to tell."""

    def is_too_slow(self, peer: Peer) -> None:
        """More waits for this client than may."""

    def failed(self, stream: Stream) -> None:
        """The peer broke the protocol, in a frame that had been held."""


class Forwarder:
    def __init__(
        self, core: Broker, owner: Owner, queue_bytes_max: int, append: Append | None = None
    ) -> None:
        self._core = core
        self._owner = owner
        self._queue_bytes_max = queue_bytes_max
        self._loop = asyncio.get_running_loop()
        self.gate = Gate(append)
        self.peers: dict[Hop, Peer] = {}
        self._dirty: list[Peer] = []
        self._expiry: asyncio.TimerHandle | None = None
        self._messages: History | None = None
        """Where each message of a transaction is noted, if it is."""

    def keep_history(self, history: History) -> None:
        self._core.state.keeps_history = True
        self._messages = history if history.has_messages else None

    def close(self) -> None:
        self._messages = None
        if self._expiry is not None:
            self._expiry.cancel()

    def receive(
        self, peer: Peer, first: int, processed: int, messages: list[AnyMessage], body: bytes
    ) -> None:
        count, link = len(messages), peer.link
        if link.accept(first, processed, count) and (link.pending or peer.stalled or peer.waited_for_by):
            peer.drained(self.release)
        if not count:
            return  # the peer has only told what it has processed
        if peer.waits_for or peer.held.frames:
            peer.held.append(messages, body)
            return
        try:
            if count == 1 and type(messages[0]) is Publish and len(body) <= MESSAGE_BYTES_MAX:
                self._forward_one(peer, messages[0], body)
            else:
                self._handle_frame(peer, messages, body)
        except ProtocolError as error:
            raise WireError(str(error)) from error

    def release(self, peer: Peer) -> None:
        """Its destinations have room again: go on with what was held."""
        while peer.held.frames and not peer.waits_for and peer.stream is not None:
            messages, body = peer.held.popleft()
            try:
                self._handle_frame(peer, messages, body)
            except (ProtocolError, WireError) as error:
                peer.held.clear()
                peer.stream.fail(str(error))
                self._owner.failed(peer.stream)
                break
            self.flush(peer)
        self.flush(peer)

    def _forward_one(self, peer: Peer, message: Publish, body: bytes) -> None:
        """A publication that has come alone, without what only several need: half the time of a small frame."""
        if self.gate:
            self._handle_frame(
                peer, [message], body
            )  # others wait for the journal, and are to leave before it
            return
        try:
            hops, reason = self._core.decide_one(peer.hop, message)
        except ProtocolError:
            peer.done(1, 0)
            raise
        if reason:
            self._put([wire.encode(Refused(message.id, reason))], 1, (peer.hop,))
        elif hops:
            self._put(wire.split(body, 1), 1, hops, peer.hop)
        peer.done(1, len(body))

    def _handle_frame(self, peer: Peer, messages: list[AnyMessage], body: bytes) -> None:
        """In order. Publications that stand one behind the other are decided on together."""
        left, cutter = len(messages), Cutter(body, len(messages))
        if len(body) > MESSAGE_BYTES_MAX and peer.kind == "client":
            cutter.check_sizes()
        for kind, run in groupby(messages, type):
            if kind is Publish:
                publications: list[Publish] = list(run)  # type: ignore[arg-type]
                place = len(messages) - left
                left -= len(publications)
                self._decide(peer, publications, cutter, place, 0 if left else len(body))
            else:
                for message in run:
                    left -= 1
                    self._handle_one(peer, message, 0 if left else len(body))
                if self._expiry is None:
                    self._watch_lifetimes()

    def _decide(
        self, peer: Peer, messages: Sequence[Publish], cutter: Cutter, place: int, byte_count: int
    ) -> None:
        try:
            decision = self._core.decide(peer.hop, messages)
        except ProtocolError:
            self.gate.submit((), self._carry_out, Ready([], []), peer, messages[0], 0)
            raise
        self.gate.submit((), self._forward, peer, messages, decision, cutter, place, byte_count)

    def _forward(
        self,
        peer: Peer,
        messages: Sequence[Publish],
        decision: Decision,
        cutter: Cutter,
        start: int,
        byte_count: int,
    ) -> None:
        """Publications, from this place of a frame on; those that go the same way are put there together."""
        for place, reason in decision.refused.items():
            self._put([wire.encode(Refused(messages[place].id, reason))], 1, (peer.hop,))
        for hops, run in groupby(decision.hops):
            end = start + len(list(run))
            if hops:
                self._put(cutter.cut(start, end), end - start, hops, peer.hop)
            start = end
        peer.done(len(messages), byte_count)

    def _handle_one(self, peer: Peer, message: AnyMessage, byte_count: int) -> None:
        """Whoever gets something of it works on that while we go on with the next."""
        try:
            ready = self._core.handle(self._loop.time(), peer.hop, message)
        except ProtocolError:
            # What stands before it has been done, and must not be asked for again.
            self.gate.submit((), self._carry_out, Ready([], []), peer, message, 0)
            raise
        self.gate.submit(ready.entries, self._carry_out, ready, peer, message, byte_count)

    def _carry_out(self, ready: Ready, peer: Peer, message: AnyMessage, byte_count: int) -> None:
        """Nothing is written before it is counted as processed, so that an answer tells that, too."""
        if self._messages is not None:
            self._note(ARRIVED, peer.hop, peer.link.processed + 1, message)
        if len(ready.sends) == 1 and not self._dirty:
            peer.link.done(1, byte_count)
            self._send(*ready.sends[0], peer)
            self._tell(ready)
        else:
            self._put_messages(ready)
            peer.link.done(1, byte_count)
            self._tell(ready)
            self.flush(peer)
        peer.report_in_time()

    def _send(self, hop: Hop, message: AnyMessage, source: Peer) -> None:
        """At once: nothing else waits anywhere."""
        peer = self.peers.get(hop)
        if peer is None:
            return  # whoever it was for is gone
        peer.send_at_once(message)
        if self._messages is not None:
            self._note(SENT, hop, peer.newest, message)
        if peer.link.queue_bytes + peer.delayed_bytes > peer.hold_bytes:
            self._press(peer, source)

    def _note(self, name: MessageEvent, hop: Hop, number: int, message: AnyMessage) -> None:
        if self._messages is not None and type(message) in TRANSACTION_TYPES:
            self._messages.message(name, hop, number, message)

    def _put(self, pieces: Sequence[bytes | Raw], count: int, hops: Iterable[Hop], source: Hop = "") -> None:
        """`count` messages into the outbox of every hop but the source."""
        for hop in hops:
            peer = self.peers.get(hop)
            if peer is not None and hop != source:
                if not peer.outbox:
                    self._dirty.append(peer)
                peer.outbox += pieces
                peer.outbox_messages += count

    def handle(self, source: Hop, message: Input) -> None:
        """What does not come on a link: a client comes, goes, is away."""
        self.perform(self._core.handle(self._loop.time(), source, message))
        if self._expiry is None:
            self._watch_lifetimes()

    def _watch_lifetimes(self) -> None:
        """Now and then while a transaction is open, and not at all otherwise."""
        if self._core.has_open_transactions:
            self._expiry = self._loop.call_later(EXPIRE_S, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if self._core.has_open_transactions:
            self.perform(self._core.expire(self._loop.time()))
            self.flush()
            self._watch_lifetimes()

    def perform(self, ready: Ready) -> None:
        """What follows from something else than a peer's message."""
        self.gate.submit(ready.entries, self._perform, ready)

    def _perform(self, ready: Ready) -> None:
        self._put_messages(ready)
        self._tell(ready)

    def durable(self, number: int) -> None:
        """The journal has all entries up to this one; what stood on them leaves."""
        self.gate.durable(number)
        self.flush()

    def _put_messages(self, ready: Ready) -> None:
        encoded, last = b"", None
        for hop, message in ready.sends:
            peer = self.peers.get(hop)
            if peer is None:
                continue  # whoever it was for is gone
            if message is not last:
                encoded, last = wire.encode(message), message
            if not peer.outbox:
                self._dirty.append(peer)
            peer.put(encoded)
            if self._messages is not None:
                self._note(SENT, hop, peer.newest, message)

    def _tell(self, ready: Ready) -> None:
        for notice in ready.notices:
            self._owner.happened(notice)

    def flush(self, source: Peer | None = None) -> None:
        """Write what this turn has gathered; a destination that is full makes the source wait."""
        while dirty := self._dirty:
            self._dirty = []
            for peer in dirty:
                peer.flush()
                if peer.link.queue_bytes + peer.delayed_bytes > peer.hold_bytes:
                    self._press(peer, source)

    def _press(self, peer: Peer, source: Peer | None) -> None:
        if peer.link.queue_bytes > self._queue_bytes_max and peer.kind == "client":
            self._owner.is_too_slow(peer)
        elif source is not None and source is not peer and not peer.stalled:
            peer.make_wait(source, self.release)


class Cutter:
    """The bytes of a frame's messages: as they came if all go one way, cut apart, once, if not."""

    def __init__(self, body: bytes, count: int) -> None:
        self._body = body
        self._count = count
        self._pieces: Sequence[bytes | Raw] = ()

    def cut(self, start: int, end: int) -> Sequence[bytes | Raw]:
        if end - start == self._count and (whole := wire.messages_of(self._body)):
            return (whole,)
        return self._apart()[start:end]

    def check_sizes(self) -> None:
        """A message that is too large would go on in a frame that nobody takes."""
        size = max(map(len, self._apart()))
        if size > MESSAGE_BYTES_MAX:
            raise WireError(f"a message of {size} bytes; the limit is {MESSAGE_BYTES_MAX}")

    def _apart(self) -> Sequence[bytes | Raw]:
        self._pieces = self._pieces or wire.split(self._body, self._count)
        return self._pieces
