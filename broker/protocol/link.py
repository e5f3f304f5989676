"""One end of a reliable FIFO link: numbering, flow control and resumption; pure.

A link outlives its connections. What is pushed is queued, put into frames, and kept until the peer
has *processed* it; a new connection resumes with the first message that the peer has not. A window
bounds what is under way, so a peer that stops processing is seen as a queue that grows here, and the
owner of the link decides what to do about it. Nothing here knows sockets or delays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from broker.protocol import wire
from broker.protocol.wire import BODY_BYTES_TARGET, WireError

WINDOW_BYTES = 1 << 20
"""What may be under way, unprocessed by the peer."""

REPORTS = 4
"""In a window: after processing so much of it, the peer is told even if there is nothing else to say."""


_Sent = tuple[int, int, bytes]
"""Number of the first message, number of the last, the messages."""


class LinkState(Struct, frozen=True):
    """What a link must remember to go on after its process has ended."""

    processed: int
    processed_bytes: int
    sent_processed: int
    sent_bytes: int
    """Without what the peer has not processed: that is sent again."""
    kept: tuple[tuple[bytes, int], ...]
    """What the peer has not processed."""


class Link:
    def __init__(self, window_bytes: int = WINDOW_BYTES) -> None:
        self.window_bytes = window_bytes
        self.report_bytes = window_bytes // REPORTS
        self.pending: deque[tuple[bytes, int]] = deque()
        self._sent: deque[_Sent] = deque()
        self.queue_bytes = 0
        """All that the peer has not processed: waiting here or under way."""
        self._pending_bytes = 0
        self._pending_messages = 0
        self.sent = 0
        """Number of the newest message that has been put into a frame."""
        self.sent_processed = 0
        """How many of ours the peer has processed."""
        self.received = 0
        """Number of the newest message taken from the present connection."""
        self.processed = 0
        """How many of the peer's we have processed; the rest is asked for again on resumption."""
        self.sent_bytes = self.processed_bytes = 0
        """Of all encoded messages so far, without frames: what a message costs."""
        self._reported_bytes = 0
        self.is_restored = False
        """How much of what it keeps had been sent, only the peer knows; it says so when the link is resumed."""

    @property
    def unprocessed_bytes(self) -> int:
        """Under way: put into frames, not yet processed by the peer."""
        return self.queue_bytes - self._pending_bytes

    @property
    def queue_messages(self) -> int:
        return self._pending_messages + self.sent - self.sent_processed

    @property
    def taken(self) -> int:
        """Number of the newest message that was pushed, in a frame or not."""
        return self.sent + self._pending_messages

    def push(self, messages: bytes, count: int = 1) -> None:
        """Queue `count` encoded messages, one behind the other."""
        self.pending.append((messages, count))
        self.queue_bytes += len(messages)
        self._pending_bytes += len(messages)
        self._pending_messages += count

    def pass_on(self, messages: bytes, count: int) -> bytes | None:
        """Like `push` and `take`, in one step where nothing waits: the frame, or None if it had to be queued."""
        if self.pending or self.queue_bytes >= self.window_bytes:  # if nothing is pending, all is under way
            self.push(messages, count)
            return None
        self.queue_bytes += len(messages)
        return self._send(messages, count)

    def take(self) -> bytes | None:
        """The next frame to write, or None while there is nothing to send or the window is full."""
        pending = self.pending
        if not pending or self.unprocessed_bytes >= self.window_bytes:
            return None
        messages, count = pending.popleft()
        if pending and len(messages) < BODY_BYTES_TARGET:
            messages, count = self._gather(messages, count)
        self._pending_bytes -= len(messages)
        self._pending_messages -= count
        return self._send(messages, count)

    def report(self) -> bytes | None:
        """A frame without messages that tells what we have processed, if the peer does not know."""
        if not self.unreported_bytes:
            return None
        self._reported_bytes = self.processed_bytes
        return wire.frame(b"", 0, self.sent + 1, self.processed)

    def accept(self, first: int, processed: int, count: int) -> bool:
        """Take a frame of `count` messages from the present connection; they are not processed yet.

        True if the peer has processed more of ours since.
        """
        if first != self.received + 1:
            raise WireError(f"message {self.received + 1} of this link was due, not {first}")
        self.received += count
        if processed == self.sent_processed:
            return False
        if processed == self.sent:  # nothing is under way any more
            self.sent_processed = processed
            self._sent.clear()
            self.queue_bytes = self._pending_bytes
        else:
            self.acknowledge(processed)
        return True

    def acknowledge(self, processed: int) -> None:
        if not self.sent_processed <= processed <= self.sent:
            raise WireError(
                f"{processed} messages cannot have been processed: {self.sent} were sent,"
                f" {self.sent_processed} already acknowledged"
            )
        self.sent_processed = processed
        sent = self._sent
        while sent and sent[0][1] <= processed:
            self.queue_bytes -= len(sent.popleft()[2])

    def done(self, count: int, byte_count: int) -> None:
        """`count` received messages have been processed."""
        self.processed += count
        self.processed_bytes += byte_count

    @property
    def unreported_bytes(self) -> int:
        """Processed, and the peer does not know it yet."""
        return self.processed_bytes - self._reported_bytes

    def resume(self, peer_processed: int) -> list[bytes]:
        """A new connection is up: what to write on it first. What was received and not processed is forgotten."""
        if self.is_restored:
            self.skip(peer_processed)
            self.is_restored = False
        self.acknowledge(peer_processed)
        self.received = self.processed
        return [wire.frame(*_behind(sent, peer_processed), self.processed) for sent in self._sent]

    def state(self, waiting: Iterable[tuple[bytes, int]] = ()) -> LinkState:
        """`waiting`: what will be pushed, and is to be kept as well."""
        kept = [_behind(sent, self.sent_processed)[:2] for sent in self._sent]
        sent_bytes = self.sent_bytes - sum(len(messages) for messages, _ in kept)
        return LinkState(
            self.processed,
            self.processed_bytes,
            self.sent_processed,
            sent_bytes,
            (*kept, *self.pending, *waiting),
        )

    def restore(self, state: LinkState) -> None:
        self.is_restored = True
        self.processed = self.received = state.processed
        self.processed_bytes = self._reported_bytes = state.processed_bytes
        self.sent = self.sent_processed = state.sent_processed
        self.sent_bytes = state.sent_bytes
        for messages, count in state.kept:
            self.push(messages, count)

    def skip(self, processed: int) -> None:
        """The peer has processed so much of what a restored link keeps."""
        if not self.sent_processed <= processed <= self.taken:
            raise WireError(
                f"{processed} messages cannot have been processed: {self.taken} were sent as far as is known,"
                f" {self.sent_processed} already acknowledged"
            )
        while self.sent < processed:
            messages, count = self.pending.popleft()
            self.queue_bytes -= len(messages)
            self._pending_bytes -= len(messages)
            self._pending_messages -= count
            self.sent += count
            if self.sent > processed:
                left, left_count, _ = _behind((self.sent - count + 1, self.sent, messages), processed)
                self.pending.appendleft((left, left_count))
                self.queue_bytes += len(left)
                self._pending_bytes += len(left)
                self._pending_messages += left_count
                self.sent = processed
        self.sent_processed = processed

    def _gather(self, messages: bytes, count: int) -> tuple[bytes, int]:
        """Small messages that wait one behind the other go into one frame."""
        parts, size = [messages], len(messages)
        pending = self.pending
        while pending and size + len(pending[0][0]) <= BODY_BYTES_TARGET:
            part, part_count = pending.popleft()
            parts.append(part)
            size += len(part)
            count += part_count
        return b"".join(parts), count

    def _send(self, messages: bytes, count: int) -> bytes:
        first = self.sent + 1
        self.sent = last = self.sent + count
        self._sent.append((first, last, messages))
        self.sent_bytes += len(messages)
        self._reported_bytes = self.processed_bytes
        return wire.frame(messages, count, first, self.processed)


def _behind(sent: _Sent, processed: int) -> tuple[bytes, int, int]:
    """The part of a sent frame that lies behind the message numbered `processed`."""
    first, last, messages = sent
    skipped = max(0, processed - first + 1)
    if not skipped:
        return messages, last - first + 1, first
    pieces = wire.split(wire.body(messages, last - first + 1), last - first + 1)[skipped:]
    return b"".join(pieces), len(pieces), first + skipped
