"""A link and whatever connection carries it at present; pure.

What is to be sent is gathered in `outbox` and leaves with `flush`, once per destination and turn of the
loop; an emulated delay stands between the two. What arrives is counted, and what has been processed is
reported to the peer: at once when much has, within `REPORT_S` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Raw

from broker.gate.clock import Clock, Timer
from broker.gate.cutter import apart, parts
from broker.protocol import wire
from broker.protocol.link import Link, LinkState
from broker.protocol.messages import Ping
from broker.protocol.vocabulary import Message
from broker.protocol.wire import MESSAGE_BYTES_MAX

REPORT_S = 0.05


class Pipe(Protocol):
    """A connection, as a channel uses it."""

    heard: float
    """When the last bytes came, by the clock."""

    def write(self, data: bytes, /) -> None: ...

    def say(self, message: Message, /) -> None:
        """Outside the link's numbering."""

    def fail(self, reason: str, /) -> None:
        """The peer broke the protocol: tell it, and take nothing more from it."""

    def abort(self, reason: str = "", /) -> None: ...


class Delayed(Protocol):
    """Holds messages until they have been under way for long enough."""

    def __len__(self) -> int: ...

    def push(self, item: bytes | Raw, /) -> None: ...

    def waiting(self) -> Iterable[bytes | Raw]: ...

    def flush_now(self) -> None: ...

    def close(self) -> None: ...


Delaying = Callable[[Callable[[list[bytes | Raw]], None]], Delayed]
"""Makes one, from what is to be done with messages whose time has come."""


class Channel:
    def __init__(
        self, clock: Clock, silence_s: float, delaying: Delaying | None = None, link: Link | None = None
    ) -> None:
        self.link = Link() if link is None else link
        self.silence_s = silence_s
        """After so much the connection is dead, whatever TCP says."""
        self.stream: Pipe | None = None
        self.outbox: list[bytes | Raw] = []
        """Encoded messages; a piece may hold several, one behind the other."""
        self.outbox_messages = 0
        self._clock = clock
        self._report_timer: Timer | None = None
        self._delayed = None if delaying is None else delaying(self._release_delayed)
        self.delayed_bytes = 0

    def send(self, message: Message) -> None:
        """It leaves with the next `flush`."""
        self.put(wire.encode(message))

    def send_at_once(self, message: Message) -> None:
        """Alone, if nothing waits before it."""
        if self._delayed is None and not self.outbox:
            self._push(wire.encode(message), 1)
        else:
            self.send(message)
            self.flush()

    def put(self, encoded: bytes) -> None:
        """One message into the outbox; it leaves with the next `flush`."""
        self.outbox.append(encoded)
        self.outbox_messages += 1

    def flush(self) -> None:
        pieces = self.outbox
        if not pieces:
            return
        count = self.outbox_messages
        self.outbox, self.outbox_messages = [], 0
        if self._delayed is None:
            self._push(b"".join(pieces), count)
            return
        for piece in pieces if len(pieces) == count else apart(b"".join(pieces), count):
            self.delayed_bytes += len(piece)
            self._delayed.push(piece)

    def _release_delayed(self, pieces: list[bytes | Raw]) -> None:
        self.delayed_bytes -= sum(len(piece) for piece in pieces)
        self._push(b"".join(pieces), len(pieces))

    def _push(self, joined: bytes, count: int) -> None:
        if count > 1 and len(joined) > MESSAGE_BYTES_MAX:
            for part in parts(apart(joined, count)):
                self.link.push(*part)
            self.pump()
        elif (stream := self.stream) is None:
            self.link.push(joined, count)
        elif (frame := self.link.pass_on(joined, count)) is not None:
            stream.write(frame)

    def state(self) -> LinkState:
        """Of the link, with what is on its emulated way; to be asked when the outbox is empty."""
        waiting = () if self._delayed is None else self._delayed.waiting()
        return self.link.state((bytes(piece), 1) for piece in waiting)

    def flush_now(self) -> None:
        """Whatever was sent is on the link, without an emulated delay."""
        self.flush()
        if self._delayed is not None:
            self._delayed.flush_now()

    @property
    def queue_bytes(self) -> int:
        """What was sent and not processed by the peer, on the emulated way or on the real one."""
        return self.delayed_bytes + self.link.queue_bytes

    @property
    def newest(self) -> int:
        """The number that the message put in last has, or will have, on the link."""
        waiting = 0 if self._delayed is None else len(self._delayed)
        return self.link.taken + waiting + self.outbox_messages

    @property
    def moved(self) -> int:
        """Grows whenever a message has got through, either way."""
        return self.link.processed + self.link.sent_processed

    @property
    def is_busy(self) -> bool:
        """Something has not been processed by the peer yet."""
        return bool(self.outbox or self._delayed or self.link.queue_messages)

    def pump(self) -> None:
        """Write what the window allows."""
        if self.stream is not None:
            while (frame := self.link.take()) is not None:
                self.stream.write(frame)

    def attach(self, stream: Pipe, peer_processed: int, greeting: Message | None = None) -> None:
        """A connection is there: greet, and go on where the peer's knowledge ends.

        Raises `WireError`, and changes nothing, if the peer claims to know what was never sent.
        """
        frames = self.link.resume(peer_processed)
        if self.stream is not None:
            self.stream.abort()
        self.stream = stream
        if greeting is not None:
            stream.say(greeting)
        for frame in frames:
            stream.write(frame)
        self.pump()

    def detach(self) -> None:
        self.stream = None
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None

    def done(self, count: int, byte_count: int) -> None:
        """`count` messages of the peer have been processed."""
        self.link.done(count, byte_count)
        self.report_in_time()

    def report_in_time(self) -> None:
        """What has been processed: at once if it is much, soon if nothing else is sent there before."""
        if self.link.unreported_bytes >= self.link.report_bytes:
            self._report()
        elif self._report_timer is None and self.stream is not None:
            self._report_timer = self._clock.call_later(REPORT_S, self._report)

    def _report(self) -> None:
        if self._report_timer is not None:
            self._report_timer.cancel()
            self._report_timer = None
        frame = self.link.report()
        if frame is not None and self.stream is not None:
            self.stream.write(frame)

    def look_after(self, now: float) -> bool:
        """Ask a quiet peer for a sign of life. False: it gave none for too long, and is cut off.

        Outside the link's numbering, because a peer that holds our messages back for good reasons must
        not be taken for dead.
        """
        if self.stream is None:
            return True
        silence_s = now - self.stream.heard
        if silence_s > self.silence_s:
            self.stream.abort(f"silent for {silence_s:.1f} s")
            return False
        if silence_s > self.silence_s / 3:
            self.stream.say(Ping())
        return True

    def close(self) -> None:
        if self._delayed is not None:
            self._delayed.flush_now()
            self._delayed.close()
            self._delayed = None
        self.detach()
