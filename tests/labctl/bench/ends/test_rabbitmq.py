"""RabbitMQ as a peer: its frames, and what a confirm is about."""

from __future__ import annotations

import struct

import pytest

from labctl.bench.ends import rabbitmq

ACKS = b"".join(
    (
        rabbitmq.method(rabbitmq.ACK, struct.pack("!QB", 1, 0)),
        rabbitmq.frame(rabbitmq.HEADER, 1, b"of something else"),
        rabbitmq.method(rabbitmq.ACK, struct.pack("!QB", 3, 1)),
    )
)


def test_methods_are_cut_out_of_the_frames() -> None:
    first, second = struct.pack("!QB", 1, 0), struct.pack("!QB", 3, 1)
    assert rabbitmq.split(ACKS) == ([(rabbitmq.ACK, first), (rabbitmq.ACK, second)], b"")


@pytest.mark.parametrize("end", range(len(ACKS)))
def test_what_is_not_whole_is_kept(end: int) -> None:
    found, tail = rabbitmq.split(ACKS[:end])
    more, left = rabbitmq.split(tail + ACKS[end:])
    assert (found + more, left) == rabbitmq.split(ACKS)


def test_a_confirm_is_about_one_message_or_about_all_up_to_it() -> None:
    unconfirmed = rabbitmq.Unconfirmed()
    unconfirmed.publish(4)
    unconfirmed.publish(2)
    counts = [
        unconfirmed.confirm(struct.pack("!QB", *ack)) for ack in ((2, 0), (4, 1), (4, 1), (6, 0), (6, 1))
    ]
    assert counts == [1, 3, 0, 1, 1]
