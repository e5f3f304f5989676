"""A broker is killed at every named point of its durable path, under load; started again, it has lost nothing."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from random import Random

import pytest

from broker.journal.disk import KILL_POINT
from broker.journal.files import POINTS
from broker.protocol.vocabulary import PROTOCOLS
from labctl.checks.judge import judge
from labctl.results.histories import load
from tests.support.brokers import Overlay, brokers
from tests.support.numbered import Traffic
from tests.support.observe import LINE, eventually, in_loop, start
from tests.support.playing import keep_histories, nothing_is_open
from tests.support.rounds import Lane

pytestmark = pytest.mark.slow

GROUPS = {
    "entries": ("before-write:30", "after-write:30", "after-sync:30", "before-send:30"),
    "snapshots": (
        "snapshot-begun:2",
        "snapshot-half-written",  # these two by a process of its own, which reaches them once
        "snapshot-written",
        "snapshot-renamed:2",
        "truncating:2",
        "truncated:2",
    ),
    "recovery": ("recovering", "recovering:40"),
}
"""In the middle of the load, or of what is to be recovered: how often a point is reached before."""
REDO_MS_MAX = {"snapshots": 10}


def test_every_point_is_tried() -> None:
    assert {point.partition(":")[0] for group in GROUPS.values() for point in group} == {*POINTS}


async def killed_at(overlay: Overlay, name: str, point: str) -> None:
    """It is killed, goes on, dies at the point, and goes on."""
    await asyncio.sleep(0.3)
    overlay.kill(name)
    overlay.start(name, **{KILL_POINT: point})
    process = overlay.process(name)

    async def has_died() -> bool:
        return process.child.poll() is not None

    await eventually(f"{name} dies at {point}", has_died, 30)
    assert process.child.returncode == -signal.SIGKILL, overlay.errors(name)
    overlay.start(name)
    await asyncio.to_thread(overlay.process(name).wait_until_ready)


@pytest.mark.parametrize("group", GROUPS)
@in_loop
async def test_killed_at_any_point_of_the_durable_path_a_broker_loses_nothing(
    tmp_path: Path, group: str
) -> None:
    settings = {"redo_ms_max": REDO_MS_MAX.get(group, 500)}
    with brokers(tmp_path, LINE, settings=settings, durable="fsync", start=False) as overlay:
        result = keep_histories(tmp_path, overlay.names, "transactions")
        await start(overlay)
        traffic = Traffic({"P": overlay.address("b1")}, {"S": overlay.address("b3")}, rate=200)
        lanes = [
            Lane(overlay, result, "dispatching", approach, Random(f"{group} {approach}"), size=4)
            for approach in PROTOCOLS
        ]
        await traffic.begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(traffic.run())
            for lane in lanes:
                tasks.create_task(lane.run(client_kill_share=0.0))
            for point in GROUPS[group]:
                await killed_at(overlay, "b2", point)
            for lane in lanes:
                lane.stop()
            await asyncio.sleep(0.2)
            traffic.stop()
        faults = await traffic.end()
        await nothing_is_open(overlay)
        assert len(overlay.log("b2", "recovered")) >= len(GROUPS[group])
    faults += [fault for lane in lanes for fault in lane.faults]
    faults += [fault for verdict in judge(load(result)) for fault in verdict.faults]
    assert faults == []
    assert sum(lane.outcomes["committed"] for lane in lanes) > 0
