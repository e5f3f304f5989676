"""What arrives on links goes through the core, and on to its destinations; pure.

The core decides, and what it says is carried out behind the gate: sends, then `processed`, then notices. Whatever a
read leads to is gathered per destination and written at the end of that turn of the loop; but what a message other
than a publication leads to leaves before the next one of its frame is taken, so that its receivers work while we do.
Publications travel as the bytes they came as. A source whose destination is full waits (`broker.gate.peer`).

The server (`broker.serving`) has sockets and a loop's time around it, the simulator links that it loses and restores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Raw

from broker.gate.channel import Pipe
from broker.gate.clock import Clock, Timer
from broker.gate.cutter import Cutter
from broker.gate.gate import Append, Gate
from broker.gate.peer import Peer
from broker.protocol import wire
from broker.protocol.events import ARRIVED, SENT, MessageEvent
from broker.protocol.hops import Hop, Sends
from broker.protocol.messages import Publish, Refused
from broker.protocol.vocabulary import Message
from broker.protocol.wire import MESSAGE_BYTES_MAX, AnyMessage, WireError

EXPIRE_S = 0.5
"""Between two looks at open transactions: lifetimes, silence, what is over."""
P = TypeVar("P", bound=Peer)
P_contra = TypeVar("P_contra", bound=Peer, contravariant=True)


class Decision(Protocol):
    """About several publications of one source, by their places (`broker.routing.publications`)."""

    @property
    def hops(self) -> list[Collection[Hop]]: ...

    @property
    def refused(self) -> Mapping[int, str]: ...


class Ready(Protocol):
    """What follows from a message (`broker.routing.ready`)."""

    sends: Sends
    notices: list[Any]
    entries: tuple[bytes, ...]


class Core(Protocol):
    """Whoever decides (`broker.core`). A `WireError` of it means that the source broke the protocol."""

    def decide_one(self, source: Hop, message: Publish, /) -> tuple[Collection[Hop], str]: ...

    def decide(self, source: Hop, messages: Sequence[Publish], /) -> Decision: ...

    def handle(self, now: float, source: Hop, message: Any, /) -> Ready: ...

    def expire(self, now: float, /) -> Ready: ...

    @property
    def has_open_transactions(self) -> bool: ...


class Owner(Protocol[P_contra]):
    def happened(self, notice: Any, /) -> None:
        """The core has something to tell."""

    def is_too_slow(self, peer: P_contra, /) -> None:
        """More waits for this client than may."""

    def failed(self, stream: Any, /) -> None:
        """The peer broke the protocol, in a frame that had been held."""


class Transit(Generic[P]):
    def __init__(
        self,
        core: Core,
        owner: Owner[P],
        clock: Clock,
        queue_bytes_max: int,
        append: Append | None = None,
    ) -> None:
        self._core = core
        self._owner = owner
        self._queue_bytes_max = queue_bytes_max
        self._clock = clock
        self.gate = Gate(append)
        self.peers: dict[Hop, P] = {}
        self._dirty: list[P] = []
        self.expire_s = EXPIRE_S
        self._expiry: Timer | None = None
        self.note: Callable[[MessageEvent, Hop, int, AnyMessage], None] | None = None
        """Where each message that is handled or sent is noted with its number on its link, if it is;
        publications are not."""

    def close(self) -> None:
        self.note = None
        if self._expiry is not None:
            self._expiry.cancel()

    def resume(self, peer: P, stream: Pipe, received: int, greeting: Message | None = None) -> None:
        """The peer has a connection, by which it says how many of our messages it has processed."""
        peer.attach(stream, received, greeting)
        peer.held.clear()
        # What it has processed may be known only now, and others may have waited for that.
        peer.drained(self.release)

    def interrupt(self, peer: P) -> None:
        """Its connection is lost; what was received and not processed will come again."""
        peer.detach()
        peer.held.clear()

    def receive(self, peer: P, first: int, processed: int, messages: list[AnyMessage], body: bytes) -> None:
        """A frame of a peer. Raises `WireError` if the peer broke the protocol by it."""
        count, link = len(messages), peer.link
        if link.accept(first, processed, count) and (link.pending or peer.stalled or peer.waited_for_by):
            peer.drained(self.release)
        if not count:
            return  # the peer has only told what it has processed
        if peer.waits_for or peer.held.frames:
            peer.held.append(messages, body)
            return
        if count == 1 and type(messages[0]) is Publish and len(body) <= MESSAGE_BYTES_MAX:
            self._forward_one(peer, messages[0], body)
        else:
            self._handle_frame(peer, messages, body)

    def release(self, peer: P) -> None:
        """Its destinations have room again: go on with what was held."""
        while peer.held.frames and not peer.waits_for and peer.stream is not None:
            messages, body = peer.held.popleft()
            try:
                self._handle_frame(peer, messages, body)
            except WireError as error:
                peer.held.clear()
                peer.stream.fail(str(error))
                self._owner.failed(peer.stream)
                break
            self.flush(peer)
        self.flush(peer)

    def _forward_one(self, peer: P, message: Publish, body: bytes) -> None:
        """A publication that has come alone, without what only several need: half the time of a small frame."""
        if self.gate:
            # Others wait for the journal, and are to leave before it.
            self._handle_frame(peer, [message], body)
            return
        try:
            hops, reason = self._core.decide_one(peer.hop, message)
        except WireError:
            peer.done(1, 0)
            raise
        if reason:
            self._put([wire.encode(Refused(message.id, reason))], 1, (peer.hop,))
        elif hops:
            self._put(wire.split(body, 1), 1, hops, peer.hop)
        peer.done(1, len(body))

    def _handle_frame(self, peer: P, messages: list[AnyMessage], body: bytes) -> None:
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
        self, peer: P, messages: Sequence[Publish], cutter: Cutter, place: int, byte_count: int
    ) -> None:
        try:
            decision = self._core.decide(peer.hop, messages)
        except WireError:
            self.gate.submit((), self._pass_over, peer, messages[0])
            raise
        self.gate.submit((), self._forward, peer, messages, decision, cutter, place, byte_count)

    def _forward(
        self,
        peer: P,
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

    def _handle_one(self, peer: P, message: AnyMessage, byte_count: int) -> None:
        """Whoever gets something of it works on that while we go on with the next."""
        try:
            ready = self._core.handle(self._clock.time(), peer.hop, message)
        except WireError:
            self.gate.submit((), self._pass_over, peer, message)
            raise
        self.gate.submit(ready.entries, self._carry_out, ready, peer, message, byte_count)

    def _carry_out(self, ready: Ready, peer: P, message: AnyMessage, byte_count: int) -> None:
        """Nothing is written before it is counted as processed, so that an answer tells that, too."""
        if self.note is not None:
            self.note(ARRIVED, peer.hop, peer.link.processed + 1, message)
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

    def _send(self, hop: Hop, message: AnyMessage, source: P) -> None:
        """At once: nothing else waits anywhere."""
        peer = self.peers.get(hop)
        if peer is None:
            return  # whoever it was for is gone
        peer.send_at_once(message)
        if self.note is not None:
            self.note(SENT, hop, peer.newest, message)
        if peer.link.queue_bytes + peer.delayed_bytes > peer.hold_bytes:
            self._press(peer, source)

    def _pass_over(self, peer: P, message: AnyMessage) -> None:
        """It broke the protocol. What stands before it has been done, and must not be asked for again."""
        if self.note is not None:
            self.note(ARRIVED, peer.hop, peer.link.processed + 1, message)
        peer.link.done(1, 0)
        self.flush(peer)
        peer.report_in_time()

    def _put(self, pieces: Sequence[bytes | Raw], count: int, hops: Iterable[Hop], source: Hop = "") -> None:
        """`count` messages into the outbox of every hop but the source."""
        for hop in hops:
            peer = self.peers.get(hop)
            if peer is not None and hop != source:
                if not peer.outbox:
                    self._dirty.append(peer)
                peer.outbox += pieces
                peer.outbox_messages += count

    def handle(self, source: Hop, message: Any) -> None:
        """What does not come on a link: a client comes, goes, is away."""
        self.perform(self._core.handle(self._clock.time(), source, message))
        if self._expiry is None:
            self._watch_lifetimes()

    def _watch_lifetimes(self) -> None:
        """Now and then while a transaction is open, and not at all otherwise."""
        if self._core.has_open_transactions:
            self._expiry = self._clock.call_later(self.expire_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if self._core.has_open_transactions:
            self.perform(self._core.expire(self._clock.time()))
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
            if self.note is not None:
                self.note(SENT, hop, peer.newest, message)

    def _tell(self, ready: Ready) -> None:
        for notice in ready.notices:
            self._owner.happened(notice)

    def flush(self, source: P | None = None) -> None:
        """Write what this turn has gathered; a destination that is full makes the source wait."""
        while dirty := self._dirty:
            self._dirty = []
            for peer in dirty:
                peer.flush()
                if peer.link.queue_bytes + peer.delayed_bytes > peer.hold_bytes:
                    self._press(peer, source)

    def _press(self, peer: P, source: P | None) -> None:
        if peer.link.queue_bytes > self._queue_bytes_max and peer.kind == "client":
            self._owner.is_too_slow(peer)
        elif source is not None and source is not peer and not peer.stalled:
            peer.make_wait(source, self.release)
