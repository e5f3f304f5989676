"""What arrives on links goes through the core, and on to its destinations; pure.

The core decides, and what it says is carried out behind the gate: sends, then `processed`, then notices. With a
journal, what the core is given is entered there first (`broker.gate.ledger`), and what it says waits until that is
durable: once for all that one turn of the loop has brought. Whatever a read leads to is gathered per destination and written at the end of that turn of the loop; but what a message other
than a publication leads to leaves before the next one of its frame is taken, so that its receivers work while we do.
Publications travel as the bytes they came as. A source whose destination is full waits (`broker.gate.peer`).

The server (`broker.serving`) has sockets and a loop's time around it, the simulator links that it loses and restores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

from broker.gate import ledger
from broker.gate.channel import Pipe
from broker.gate.clock import Clock, Timer
from broker.gate.cutter import Cutter
from broker.gate.gate import Gate
from broker.gate.outgoing import Outgoing
from broker.gate.parties import Core, Decision, Keeper, NodeJournal, Owner, Ready
from broker.gate.peer import Peer
from broker.journal.failures import JournalFailed
from broker.protocol import wire
from broker.protocol.events import ARRIVED
from broker.protocol.hops import Hop
from broker.protocol.messages import Publish, Refused
from broker.protocol.vocabulary import Message
from broker.protocol.wire import MESSAGE_BYTES_MAX, AnyMessage, WireError

EXPIRE_S = 0.5
"""Between two looks at open transactions: lifetimes, silence, what is over."""
P = TypeVar("P", bound=Peer)


class Transit(Generic[P]):
    def __init__(
        self,
        core: Core,
        owner: Owner[P],
        clock: Clock,
        queue_bytes_max: int,
    ) -> None:
        self._core = core
        self._owner = owner
        self._clock = clock
        self.gate = Gate()
        self.peers: dict[Hop, P] = {}
        """Who is here, as of what has been handled."""
        self.outgoing: Outgoing[P] = Outgoing(queue_bytes_max, owner.is_too_slow, self.release)
        self.flush = self.outgoing.flush
        self._put = self.outgoing.put
        self._journal: NodeJournal | None = None
        self._keeper: Keeper | None = None
        self._sync_is_due = False
        self._source: P | None = None
        """Whose publications have been put into outboxes last, while the gate lets out what has waited."""
        self.ahead_s = 0.0
        """Of the clock: time goes on where it was when the journal was written."""
        self.expire_s = EXPIRE_S
        self._expiry: Timer | None = None

    def keep_journal(self, journal: NodeJournal, keeper: Keeper) -> None:
        """From now on; what was open in a snapshot may be over before anything else happens."""
        self._journal, self._keeper = journal, keeper
        self.gate = Gate(journal.append)
        if self._expiry is None:
            self._watch_lifetimes()

    def time(self) -> float:
        return self._clock.time() + self.ahead_s

    def close(self) -> None:
        """What has not left by now never does; the journal may be closed."""
        self.outgoing.note = None
        self.gate.seal()
        self._keeper = None
        if self._expiry is not None:
            self._expiry.cancel()

    def begin(self, entry: ledger.FirstEntry, ready: Ready) -> None:
        """The node makes itself known."""
        if self._journal is not None:
            self._enter(ledger.encode(entry))
        self.perform(ready)
        self.flush()

    # Peers

    def add(self, peer: P) -> None:
        self.peers[peer.hop] = peer
        self.gate.submit(self.outgoing.reached.__setitem__, peer.hop, peer)

    def remove(self, peer: P) -> None:
        """What was handled before still goes to it."""
        del self.peers[peer.hop]
        self.gate.submit(self._unreach, peer)
        peer.forget(self.release)

    def _unreach(self, peer: P) -> None:
        reached = self.outgoing.reached
        if reached.get(peer.hop) is peer:
            del reached[peer.hop]

    def resume(self, peer: P, stream: Pipe, received: int, greeting: Message | None = None) -> None:
        """The peer has a connection, by which it says how many of our messages it has processed."""
        peer.attach(stream, received, greeting)
        self._heard(peer)
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
            self._heard(peer)
            return  # the peer has only told what it has processed
        if peer.waits_for or peer.held.frames:
            peer.held.append(messages, body)
            return
        if (
            count == 1
            and self._journal is None
            and type(messages[0]) is Publish
            and len(body) <= MESSAGE_BYTES_MAX
        ):
            self._forward_one(peer, messages[0], body)
        else:
            self._take_frame(peer, messages, body)

    def release(self, peer: P) -> None:
        """Its destinations have room again: go on with what was held."""
        while peer.held.frames and not peer.waits_for and peer.stream is not None:
            messages, body = peer.held.popleft()
            try:
                self._take_frame(peer, messages, body)
            except WireError as error:
                peer.held.clear()
                peer.stream.fail(str(error))
                self._owner.failed(peer.stream)
                break
            self.flush(peer)
        self.flush(peer)

    def _heard(self, peer: P) -> None:
        """Nothing waits for this: a link that is resumed learns it again."""
        if self._journal is not None and self._keeper is not None:
            try:
                self._journal.append(ledger.encode(ledger.HeardEntry(peer.hop, peer.link.sent_processed)))
            except JournalFailed as error:
                self._fail(error)

    def met(self, peer: P, incarnation: int) -> None:
        """It has said who it is."""
        if self._journal is not None and peer.incarnation != incarnation:
            self._enter(ledger.encode(ledger.GreetedEntry(peer.hop, incarnation)))
        peer.incarnation = incarnation

    def _enter(self, *pieces: bytes) -> bool:
        """What is submitted from now on waits until the journal has this. False: it takes nothing more."""
        try:
            self.gate.enter(*pieces)
        except JournalFailed as error:
            self._fail(error)
            return False
        if not self._sync_is_due and self._keeper is not None:
            self._sync_is_due = True
            self._keeper.sync_soon(self.sync)
        return True

    def sync(self) -> None:
        """What has been handled leaves."""
        self._sync_is_due = False
        if self._journal is None or self._keeper is None:
            return
        try:
            self.leave(self._journal.sync())
            if not self.gate:
                self._keeper.rested()
        except JournalFailed as error:
            self._fail(error)

    def leave(self, number: int) -> None:
        """Entries up to this one are durable: what stands on them leaves."""
        self.gate.durable(number)
        source, self._source = self._source, None
        self.flush(source)

    def _fail(self, error: JournalFailed) -> None:
        """What has been handled since then is as if it had never come."""
        self.gate.seal()
        if self._keeper is not None:
            self._keeper.journal_failed(error)

    def _forward_one(self, peer: P, message: Publish, body: bytes) -> None:
        """A publication that has come alone, without what only several need: half the time of a small frame."""
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

    def _take_frame(self, peer: P, messages: list[AnyMessage], body: bytes) -> None:
        now = None
        if self._journal is not None:
            now = self.time()
            if not self._enter(*ledger.frame(peer.hop, now, peer.link.sent_processed, body)):
                return
        self.handle_frame(peer, messages, body, now)

    def handle_frame(
        self, peer: P, messages: list[AnyMessage], body: bytes, now: float | None = None
    ) -> None:
        """In order. Publications that stand one behind the other are decided on together.

        `now`: when, by the journal; without one each message has its own time.
        """
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
                    self._handle_one(peer, message, 0 if left else len(body), now)
                if self._expiry is None:
                    self._watch_lifetimes()

    def _decide(
        self, peer: P, messages: Sequence[Publish], cutter: Cutter, place: int, byte_count: int
    ) -> None:
        try:
            decision = self._core.decide(peer.hop, messages)
        except WireError:
            self.gate.submit(self._pass_over, peer, messages[0])
            raise
        self.gate.submit(self._forward, peer, messages, decision, cutter, place, byte_count)

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
        if self._journal is not None and self._source is not peer:
            self.flush(self._source)
            self._source = peer
        for place, reason in decision.refused.items():
            self._put([wire.encode(Refused(messages[place].id, reason))], 1, (peer.hop,))
        for hops, run in groupby(decision.hops):
            end = start + len(list(run))
            if hops:
                self._put(cutter.cut(start, end), end - start, hops, peer.hop)
            start = end
        peer.done(len(messages), byte_count)

    def _handle_one(self, peer: P, message: AnyMessage, byte_count: int, now: float | None) -> None:
        """Whoever gets something of it works on that while we go on with the next."""
        try:
            ready = self._core.handle(self.time() if now is None else now, peer.hop, message)
        except WireError:
            self.gate.submit(self._pass_over, peer, message)
            raise
        self.gate.submit(self._carry_out, ready, peer, message, byte_count)

    def _carry_out(self, ready: Ready, peer: P, message: AnyMessage, byte_count: int) -> None:
        """Nothing is written before it is counted as processed, so that an answer tells that, too."""
        outgoing = self.outgoing
        if outgoing.note is not None:
            outgoing.note(ARRIVED, peer.hop, peer.link.processed + 1, message)
        if len(ready.sends) == 1 and outgoing.is_empty:
            peer.link.done(1, byte_count)
            outgoing.send(*ready.sends[0], peer)
            self._tell(ready)
        else:
            outgoing.put_messages(ready.sends)
            peer.link.done(1, byte_count)
            self._tell(ready)
            self.flush(peer)
        peer.report_in_time()

    def _pass_over(self, peer: P, message: AnyMessage) -> None:
        """It broke the protocol. What stands before it has been done, and must not be asked for again."""
        if self.outgoing.note is not None:
            self.outgoing.note(ARRIVED, peer.hop, peer.link.processed + 1, message)
        peer.link.done(1, 0)
        self.flush(peer)
        peer.report_in_time()

    def handle(self, source: Hop, message: Any, first: Callable[[], None] | None = None) -> None:
        """What does not come on a link: a client comes, goes, is away. `first` is carried out before what follows."""
        now = self.time()
        if self._journal is not None and not self._enter(ledger.told(source, now, message)):
            return
        if first is not None:
            self.gate.submit(first)
        self.tell_core(now, source, message)
        if self._expiry is None:
            self._watch_lifetimes()

    def tell_core(self, now: float, source: Hop, message: Any) -> None:
        self.perform(self._core.handle(now, source, message))

    def _watch_lifetimes(self) -> None:
        """Now and then while a transaction is open, and not at all otherwise."""
        if self._core.has_open_transactions:
            self._expiry = self._clock.call_later(self.expire_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        if self._core.has_open_transactions:
            now = self.time()
            if self._journal is not None and not self._enter(ledger.encode(ledger.TimeEntry(now))):
                return
            self.expire(now)
            self._watch_lifetimes()

    def expire(self, now: float) -> None:
        self.perform(self._core.expire(now))
        self.flush()

    def perform(self, ready: Ready) -> None:
        """What follows from something else than a peer's message."""
        self.gate.submit(self._perform, ready)

    def _perform(self, ready: Ready) -> None:
        self.outgoing.put_messages(ready.sends)
        self._tell(ready)

    def _tell(self, ready: Ready) -> None:
        for notice in ready.notices:
            self._owner.happened(notice)
