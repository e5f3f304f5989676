"""Faults around the core, planted in real servers: each is named by a replay of what they recorded.

The core is without fault in all of them, so that no schedule of the simulator could show them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from broker.config import Neighbour, NodeConfig
from broker.gate.cutter import Cutter
from broker.gate.outgoing import Outgoing
from broker.gate.transit import Transit
from broker.node.log import JsonLog
from broker.protocol.delay import Delay
from broker.protocol.events import FINISHED, STARTED
from broker.protocol.messages import Operation, Over, Settle
from broker.serving.server import Server
from broker.transport.delayed import DelayedSender
from client import Delivery, connect
from labctl.overlay.launch import reserved_ports
from labctl.results import histories
from labctl.simulate.recorded import reading, repetition, smaller
from labctl.simulate.views import recorded
from tests.mutations import tables
from tests.mutations.patching import Mutation, replace

DELAY = Delay(delay_ms=1, sigma=0.5)


async def play(folder: Path) -> None:
    """Two brokers, three clients: regular publications, several at once, and a transaction."""
    with reserved_ports(2) as ports:
        one, other = (f"127.0.0.1:{port}" for port in ports)
    configs = [
        NodeConfig("b1", one, neighbours=(Neighbour("b2", other, DELAY),), history=f"{folder}/b1.jsonl"),
        NodeConfig("b2", other, neighbours=(Neighbour("b1", "", DELAY),), history=f"{folder}/b2.jsonl"),
    ]
    log = os.open(os.devnull, os.O_WRONLY)
    servers = [Server(config, JsonLog(log, config.id)) for config in configs]
    running = [asyncio.create_task(server.run()) for server in reversed(servers)]
    await asyncio.sleep(0.1)
    try:
        async with asyncio.timeout(20):
            await _talk(folder, one, other)
    except TimeoutError:
        pass  # a fault may leave somebody waiting
    finally:
        for server in servers:
            server.stop()
        await asyncio.gather(*running)
        os.close(log)


def ignore(_: Delivery) -> None:
    """It stands in the history."""


async def _talk(folder: Path, one: str, other: str) -> None:
    async with AsyncExitStack() as stack:
        e, a, c = [
            await stack.enter_async_context(
                connect(where, client_id=name, on_delivery=ignore, history=folder / f"{name}.jsonl")
            )
            for name, where in (("E", one), ("A", other), ("C", one))
        ]
        await e.advertise({"s": "x"})
        await e.subscribe({"s": "x", "n": 5})
        await c.subscribe({"s": "x", "n": [2, 4]})
        await a.subscribe({"s": "x", "n": [1, 3, 5]})
        for session in (e, a, c):
            await session.settled()
            session.note(STARTED)
        await asyncio.gather(*(e.publish({"s": "x", "n": n}) for n in range(1, 6)))
        async with e.transaction("d-tx") as tx:
            await tx.publish({"s": "x", "n": 1})
        await e.settled()
        await asyncio.sleep(0.7)  # somebody looks at what is over, and tells
        await e.publish({"s": "x", "n": 3})
        await e.settled()
        for session in (e, a, c):
            session.note(FINISHED)


def forgets_one_of_several(patch: pytest.MonkeyPatch) -> None:
    """Whatever the core sends is put on a link."""

    def put(original: Any, self: Any, sends: Any) -> None:
        if len(sends) > 1:
            sends = [(hop, m) for hop, m in sends if not isinstance(m, Operation)]
        original(self, sends)

    replace(patch, Outgoing, "put_messages", put)


def gives_publishers_their_own_back(patch: pytest.MonkeyPatch) -> None:
    """No publication goes back to where it came from."""

    def put(original: Any, self: Any, pieces: Any, count: int, hops: Any, *_source: str) -> None:
        original(self, pieces, count, hops)

    replace(patch, Outgoing, "put", put)


def cuts_frames_at_the_wrong_place(patch: pytest.MonkeyPatch) -> None:
    """The bytes that go on are those of the message that was decided on."""

    def cut(original: Any, self: Any, start: int, end: int) -> Any:
        return original(self, max(0, start - 1), max(1, end - 1))

    replace(patch, Cutter, "cut", cut)


def overtakes_on_the_emulated_way(patch: pytest.MonkeyPatch) -> None:
    """Delays keep the order."""

    def push(original: Any, self: Any, item: Any) -> None:
        original(self, item)
        if len(self._waiting) > 1:
            self._waiting[-1], self._waiting[-2] = self._waiting[-2], self._waiting[-1]

    replace(patch, DelayedSender, "push", push)


def handles_some_twice(patch: pytest.MonkeyPatch) -> None:
    """What has arrived once is handled once."""

    def handle(original: Any, self: Any, peer: Any, message: Any, *rest: Any) -> None:
        if isinstance(message, Settle) and peer.kind == "broker":
            self._core.handle(self._clock.time(), peer.hop, message)
        original(self, peer, message, *rest)

    replace(patch, Transit, "_handle_one", handle)


def overlooks_some(patch: pytest.MonkeyPatch) -> None:
    """What has arrived is handled."""

    def handle(original: Any, self: Any, peer: Any, message: Any, *rest: Any) -> None:
        if isinstance(message, Over | Operation) and peer.kind == "broker":
            peer.done(1, rest[0])
        else:
            original(self, peer, message, *rest)

    replace(patch, Transit, "_handle_one", handle)


def tells_nobody(patch: pytest.MonkeyPatch) -> None:
    """What the core tells reaches the history."""

    def happened(original: Any, self: Any, notice: Any) -> None:
        if notice.name != "voted":
            original(self, notice)

    replace(patch, Server, "happened", happened)


FAULTS: Sequence[tuple[Mutation, str]] = (
    (forgets_one_of_several, "where its core sends"),
    (gives_publishers_their_own_back, "to client:E: b1 sent Publish"),
    (cuts_frames_at_the_wrong_place, "to client:C: b1 sent Publish s=x n="),
    (overtakes_on_the_emulated_way, "where its core sends"),
    (handles_some_twice, "from b1 to b2 "),
    (overlooks_some, "from b1 to b2 left as "),
    (tells_nobody, "where its core tells voted"),
)


def faults(folder: Path) -> tuple[str, ...]:
    asyncio.run(play(folder))
    return recorded.verdict(repetition.replay(reading.load(folder))).faults


@pytest.mark.slow
def test_servers_without_fault_are_reproduced(tmp_path: Path) -> None:
    assert faults(tmp_path) == ()


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "said"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_around_the_core_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Mutation, said: str
) -> None:
    fault(monkeypatch)
    found = faults(tmp_path)
    assert found
    assert any(said in text for text in found), found


@pytest.mark.slow
def test_a_fault_of_the_core_in_a_real_run_shrinks_to_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From sockets to a schedule: of three clients, a transaction and six publications a few messages are left."""
    tables.a_batch_loses_its_last(monkeypatch)
    asyncio.run(play(tmp_path))
    result = histories.load(tmp_path)
    recordings = reading.of(result, tmp_path)
    assert repetition.replay(recordings).differences == []
    case = repetition.case(recordings, result)
    assert case is not None
    assert case.broken(case.world()).keys() == {"recipients"}
    small = smaller.shrink(case, "recipients")
    assert small.broken(small.world()).keys() == {"recipients"}
    assert {unit[0] for _, unit in small.world().said} <= {"stay", "request", "publication"}
    assert len(small.world().passages) < len(case.world().passages) / 2
