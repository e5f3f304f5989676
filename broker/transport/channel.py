"""A link and whatever connection carries it at present.

What is to be sent is gathered in `outbox` and leaves with `flush`, once per destination and turn of the
loop; an emulated delay stands between the two. What arrives is counted, and what has been processed is
reported to the peer: at once when much has, within `REPORT_S` otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Raw

from broker.protocol import wire
from broker.protocol.delay import Delay, DelayLine
from broker.protocol.link import REPORT_BYTES, Link
from broker.protocol.messages import Ping
from broker.protocol.vocabulary import Message
from broker.protocol.wire import BODY_BYTES_TARGET, MESSAGE_BYTES_MAX
from broker.transport.delayed import DelayedSender
from broker.transport.stream import Stream

REPORT_S = 0.05


def look_s(silence_s: float) -> float:
    """How long to wait between two looks at a connection that may be silent for `silence_s`."""
    return min(1.0, silence_s / 6)


class Channel:
    def __init__(self, name: str, delay: Delay, silence_s: float) -> None:
        self.link = Link()
        self.silence_s = silence_s
        """After so much the connection is dead, whatever TCP says."""
        self.stream: Stream | None = None
        self.outbox: list[bytes | Raw] = []
        """Encoded messages; a piece may hold several, one behind the other."""
        self.outbox_messages = 0
        self._loop = asyncio.get_running_loop()
        self._report_timer: asyncio.TimerHandle | None = None
        self._delayed: DelayedSender[bytes | Raw] | None = None
        self.delayed_bytes = 0
        if not delay.is_zero:
            self._delayed = DelayedSender(DelayLine(delay, name), self._release_delayed)

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
        for piece in pieces if len(pieces) == count else _apart(b"".join(pieces), count):
            self.delayed_bytes += len(piece)
            self._delayed.push(piece)

    def _release_delayed(self, pieces: list[bytes | Raw]) -> None:
        self.delayed_bytes -= sum(len(piece) for piece in pieces)
        self._push(b"".join(pieces), len(pieces))

    def _push(self, joined: bytes, count: int) -> None:
        if count > 1 and len(joined) > MESSAGE_BYTES_MAX:
            self._push_in_parts(_apart(joined, count))
            self.pump()
        elif (stream := self.stream) is None:
            self.link.push(joined, count)
        elif (frame := self.link.pass_on(joined, count)) is not None:
            stream.write(frame)

    def _push_in_parts(self, pieces: Sequence[bytes | Raw]) -> None:
        """More than one frame can hold."""
        part: list[bytes] = []
        size = 0
        for piece in map(bytes, pieces):
            if part and size + len(piece) > BODY_BYTES_TARGET:
                self.link.push(b"".join(part), len(part))
                part, size = [], 0
            part.append(piece)
            size += len(piece)
        self.link.push(b"".join(part), len(part))

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

    def attach(self, stream: Stream, peer_processed: int, greeting: Message | None = None) -> None:
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
        if self.link.unreported_bytes >= REPORT_BYTES:
            self._report()
        elif self._report_timer is None and self.stream is not None:
            self._report_timer = self._loop.call_later(REPORT_S, self._report)

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


def _apart(joined: bytes, count: int) -> Sequence[bytes | Raw]:
    return wire.split(wire.body(joined, count), count)
