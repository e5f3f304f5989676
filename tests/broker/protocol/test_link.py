"""A link loses, doubles and reorders nothing, whatever happens to its connections."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from broker.protocol import wire
from broker.protocol.link import Link
from broker.protocol.messages import Accepted
from broker.protocol.wire import HEADER_BYTES, WireError


def message(number: int) -> bytes:
    return wire.encode(Accepted(number))


class Pair:
    """Two ends and the connection between them, which carries frames in flight and can be cut."""

    def __init__(self, window_bytes: int) -> None:
        self.ends = [Link(window_bytes), Link(window_bytes)]
        self.flying: list[deque[bytes]] = [deque(), deque()]
        self.unprocessed: list[deque[tuple[int, list[int]]]] = [deque(), deque()]
        self.arrived: list[list[int]] = [[], []]

    def pump(self, end: int) -> None:
        while (frame := self.ends[end].take()) is not None:
            self.flying[1 - end].append(frame)

    def carry(self, end: int) -> None:
        """One frame reaches `end`."""
        if self.flying[end]:
            frame = self.flying[end].popleft()
            (_, first, processed), body = wire.read_header(frame), frame[HEADER_BYTES:]
            numbers = [m.number for m in wire.decode(body) if isinstance(m, Accepted)]
            self.ends[end].accept(first, processed, len(numbers))
            if numbers:
                self.unprocessed[end].append((len(body), numbers))

    def process(self, end: int) -> None:
        if self.unprocessed[end]:
            size, numbers = self.unprocessed[end].popleft()
            self.arrived[end] += numbers
            self.ends[end].done(len(numbers), size)

    def report(self, end: int) -> None:
        frame = self.ends[end].report()
        if frame is not None:
            self.flying[1 - end].append(frame)

    def cut_and_resume(self) -> None:
        """Whatever is in flight is lost, and so is what was received and not processed."""
        processed = [end.processed for end in self.ends]
        for end in (0, 1):
            self.flying[end].clear()
            self.unprocessed[end].clear()
        for end in (0, 1):
            self.flying[1 - end].extend(self.ends[end].resume(processed[1 - end]))


@pytest.mark.parametrize("seed", range(60))
def test_everything_arrives_once_and_in_order_across_lost_connections(seed: int) -> None:
    random = Random(seed)
    pair = Pair(random.choice([1, 40, 1000]))
    sent = [0, 0]
    steps = [pair.pump, pair.carry, pair.process, pair.report]
    for _ in range(600):
        end = random.randrange(2)
        if random.random() < 0.4:
            count = random.randint(1, 5)
            numbers = range(sent[end], sent[end] + count)
            pair.ends[end].push(b"".join(map(message, numbers)), count)
            sent[end] += count
        elif random.random() < 0.03:
            pair.cut_and_resume()
        else:
            random.choice(steps)(end)
    while any(end.queue_messages for end in pair.ends):
        for end in (0, 1):
            for step in steps:
                step(end)
    assert pair.arrived == [list(range(sent[1])), list(range(sent[0]))]
    assert [end.queue_bytes for end in pair.ends] == [0, 0]


def test_a_peer_that_does_not_process_closes_the_window() -> None:
    link = Link(window_bytes=10)
    for number in range(100):
        link.push(message(number) * 5, 5)
        while link.take():
            pass
    assert link.unprocessed_bytes < 10 + 5 * len(message(0))
    assert link.queue_messages == 500


def test_small_messages_that_wait_share_a_frame() -> None:
    link = Link()
    for number in range(100):
        link.push(message(number))
    frame = link.take()
    assert frame is not None
    assert len(wire.decode(frame[HEADER_BYTES:])) == 100
    assert link.take() is None


def test_a_gap_or_a_repetition_is_an_error() -> None:
    for first in (2, 0):
        with pytest.raises(WireError, match="was due"):
            Link().accept(first, 0, 1)


def test_an_acknowledgement_of_what_was_never_sent_is_an_error() -> None:
    with pytest.raises(WireError, match="cannot have been processed"):
        Link().accept(1, 5, 0)


@pytest.mark.parametrize("is_queued", [True, False])
def test_it_counts_the_bytes_of_messages_once_each_way(is_queued: bool) -> None:
    pair = Pair(1 << 20)
    here, there = pair.ends
    texts = [message(number) for number in (1, 2, 300)]
    if is_queued:
        for text in texts:
            here.push(text)
        assert here.take() is not None
    else:
        assert here.pass_on(b"".join(texts), len(texts)) is not None
    there.accept(1, 0, len(texts))
    there.done(len(texts), sum(map(len, texts)))
    assert here.sent_bytes == there.processed_bytes == sum(map(len, texts))
    here.resume(0)
    assert here.sent_bytes == sum(map(len, texts)), "what is sent again on a new connection is no new message"
