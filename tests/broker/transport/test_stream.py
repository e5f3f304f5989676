"""Bytes to whole frames, however they are cut, and how a connection ends."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
import uvloop

from broker.protocol import wire
from broker.protocol.messages import Goodbye, Ping
from broker.protocol.wire import BODY_BYTES_MAX, HEADER, HEADER_BYTES, WireError
from broker.transport.stream import Stream


class Transport(asyncio.Transport):
    """Keeps what is written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "written after the end"
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = "half-closed"

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def messages(self) -> list[wire.AnyMessage]:
        found, data = [], self.written
        while data:
            size = HEADER.unpack_from(data)[0] + HEADER_BYTES
            found += wire.decode(data[HEADER_BYTES:size])
            data = data[size:]
        return found


class Owner:
    def __init__(self) -> None:
        self.frames: list[tuple[int, int, bytes]] = []
        self.turns = 0
        self.on_frame: Callable[[Stream], None] = lambda _stream: None

    def stream_opened(self, stream: Stream) -> None: ...

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        self.frames.append((first, processed, body))
        self.on_frame(stream)

    def turn_ended(self, stream: Stream) -> None:
        self.turns += 1

    def stream_closed(self, stream: Stream, reason: str) -> None: ...


def with_stream(test: Callable[[Stream, Owner, Transport], None]) -> None:
    async def run() -> None:
        owner, transport = Owner(), Transport()
        stream = Stream(owner)
        stream.connection_made(transport)
        test(stream, owner, transport)

    main: Coroutine[Any, Any, None] = run()
    asyncio.run(main)


def frame(number: int, body: bytes) -> bytes:
    return HEADER.pack(len(body), number, 2 * number) + body


@pytest.mark.parametrize("seed", range(20))
def test_frames_come_whole_and_in_order_however_they_are_cut(seed: int) -> None:
    random = Random(seed)
    sent = [(n, 2 * n, random.randbytes(random.choice((0, 1, 5, 300, 5000)))) for n in range(100)]
    data = b"".join(frame(number, body) for number, _, body in sent)
    largest = random.choice((1, 3, 40, 2000, 100_000))

    def test(stream: Stream, owner: Owner, _transport: Transport) -> None:
        start = 0
        while start < len(data):
            size = random.randint(1, largest)
            stream.data_received(data[start : start + size])
            start += size
        assert owner.frames == sent

    with_stream(test)


def test_what_is_written_leaves_before_the_turn_of_the_loop_ends() -> None:
    async def run() -> None:
        here, there = socket.socketpair()
        with there:
            there.setblocking(False)
            loop = asyncio.get_running_loop()
            _, stream = await loop.create_connection(lambda: Stream(Owner()), sock=here)
            stream.write(b"at once")
            assert there.recv(100) == b"at once"
            stream.abort()
            await stream.closed

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_a_frame_that_comes_in_crumbs_costs_no_more_than_its_size() -> None:
    """To copy all that has come so far for every few bytes that follow would keep a broker busy for minutes."""
    body = bytes(BODY_BYTES_MAX)
    data = frame(1, body)

    def test(stream: Stream, owner: Owner, _transport: Transport) -> None:
        began = time.process_time()
        for start in range(0, len(data), 16):
            stream.data_received(data[start : start + 16])
        assert owner.frames == [(1, 2, body)]
        assert time.process_time() - began < 2.0

    with_stream(test)


def test_a_header_over_the_limit_ends_the_connection_before_its_body_comes() -> None:
    def test(stream: Stream, owner: Owner, transport: Transport) -> None:
        stream.body_bytes_max = 100
        stream.data_received(frame(1, bytes(100)) + HEADER.pack(101, 2, 0))
        assert len(owner.frames) == 1
        assert transport.messages() == [Goodbye("protocol", "a frame of 101 bytes; the limit is 100")]
        assert stream.fault == "a frame of 101 bytes; the limit is 100"
        assert not stream.is_open

    with_stream(test)


def test_who_breaks_the_protocol_is_told_and_not_listened_to_any_more() -> None:
    def break_down(_stream: Stream) -> None:
        raise WireError("x" * 10_000)

    def test(stream: Stream, owner: Owner, transport: Transport) -> None:
        owner.on_frame = break_down
        stream.data_received(frame(1, b"") + frame(2, b""))
        stream.data_received(frame(3, b""))
        assert [number for number, _, _ in owner.frames] == [1]
        assert owner.turns == 1
        (goodbye,) = transport.messages()
        assert isinstance(goodbye, Goodbye)
        assert len(goodbye.reason) == wire.REASON_LENGTH_MAX

    with_stream(test)


def test_with_a_goodbye_only_our_half_is_closed_so_that_it_is_not_overtaken_by_a_reset() -> None:
    def test(stream: Stream, _owner: Owner, transport: Transport) -> None:
        stream.close(Goodbye("stopping", "b1 is stopping"))
        assert transport.ended == "half-closed"
        stream.say(Ping())
        stream.close(Goodbye("stopping", "again"))
        assert transport.messages() == [Goodbye("stopping", "b1 is stopping")]

    with_stream(test)


def test_nothing_is_handed_over_behind_the_frame_on_which_the_owner_closed() -> None:
    def test(stream: Stream, owner: Owner, transport: Transport) -> None:
        owner.on_frame = lambda stream: stream.close()
        stream.data_received(frame(1, b"") + frame(2, b""))
        assert len(owner.frames) == 1
        assert transport.ended == "closed"

    with_stream(test)


def test_what_is_left_of_a_connection_that_has_ended_is_not_kept_by_its_limits() -> None:
    async def run() -> None:
        stream = Stream(Owner())
        stream.connection_made(Transport())
        stream.limit(60.0, stream.abort)
        stream.close(Goodbye("stopping", "b1 is stopping"))
        left = weakref.ref(stream)
        stream.connection_lost(None)
        del stream
        assert left() is None

    gc.collect()
    gc.disable()  # by nothing at all, that is: what is no cycle needs no collector
    try:
        asyncio.run(run())
    finally:
        gc.enable()


def test_of_two_limits_the_later_one_counts() -> None:
    async def run() -> list[str]:
        expired: list[str] = []
        stream = Stream(Owner())
        stream.connection_made(Transport())
        stream.limit(0.001, lambda: expired.append("first"))
        stream.limit(0.01, lambda: expired.append("second"))
        while not expired:
            await asyncio.sleep(0.001)
        return expired

    assert asyncio.run(run()) == ["second"]
