"""Who is waited for, and for how long."""

from __future__ import annotations

import asyncio
import time

from broker.gate.peer import LOOKS
from broker.protocol import wire
from broker.protocol.delay import Delay
from broker.protocol.messages import Ping
from broker.serving.peer import Peer

PATIENCE_S = 0.1


class Publisher:
    """Waits for a client that has something to take, until the client's broker lets it go."""

    def __init__(self) -> None:
        self.client = Peer("client:S", "client", Delay(), 10.0)
        self.client.patience_s = PATIENCE_S
        for _ in range(100):
            self.client.link.push(wire.encode(Ping()))
        self.client.link.take()
        self.client.make_wait(Peer("client:P", "client", Delay(), 10.0), self._let_go)
        self.waited = asyncio.Event()

    def _let_go(self, _publisher: Peer) -> None:
        self.waited.set()


def test_a_client_that_takes_nothing_is_waited_for_as_long_as_the_patience_lasts() -> None:
    async def run() -> float:
        began = time.monotonic()
        publisher = Publisher()
        async with asyncio.timeout(10):
            await publisher.waited.wait()
        assert publisher.client.stalled
        return time.monotonic() - began

    assert asyncio.run(run()) >= 0.9 * PATIENCE_S


def test_a_client_that_takes_a_little_at_a_time_is_waited_for() -> None:
    async def run() -> None:
        publisher = Publisher()
        for taken in range(1, 4 * LOOKS):
            publisher.client.link.acknowledge(taken)
            await asyncio.sleep(PATIENCE_S / 4)
            assert not publisher.waited.is_set()

    asyncio.run(run())


def stand_still(seconds: float) -> None:
    """The whole process, as one that gets no processor."""
    time.sleep(seconds)


def test_time_in_which_the_broker_did_not_run_does_not_count() -> None:
    async def run() -> None:
        publisher = Publisher()
        stand_still(3 * PATIENCE_S)
        await asyncio.sleep(0.001)  # timers come before what has been read
        assert not publisher.client.stalled
        async with asyncio.timeout(10):
            await publisher.waited.wait()

    asyncio.run(run())
