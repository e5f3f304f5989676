"""A disk that takes no more ends the broker, which says why; when it is mended the broker goes on, and nothing is lost.

A disk is full by a quota in the data folder; a write fails by a limit on the size of files, and a sync because the
process is told so by a file, which no disk can be made to do.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random

import pytest

from broker.protocol.vocabulary import PROTOCOLS
from labctl.checks.judge import judge
from labctl.results.histories import load
from tests.support.brokers import Overlay, brokers, data_folder
from tests.support.numbered import Traffic
from tests.support.observe import LINE, eventually, in_loop, start
from tests.support.playing import keep_histories, nothing_is_open
from tests.support.rounds import Lane

pytestmark = pytest.mark.slow

FAILING = """
import errno, os, sys
from broker.__main__ import main

sync, trigger = os.fdatasync, sys.argv.pop(1)

def sync_or_fail(descriptor):
    if os.path.exists(trigger):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    sync(descriptor)

os.fdatasync = sync_or_fail
sys.exit(main(sys.argv[1:]))
"""
ROOM_BYTES = 20_000
Failure = Callable[[int, Path], AbstractContextManager[None]]


@contextmanager
def full_disk(_: int, folder: Path) -> Iterator[None]:
    data = data_folder(folder, "b2")
    quota = data / "quota"
    quota.write_text(str(sum(file.stat().st_size for file in data.iterdir()) + ROOM_BYTES))
    yield
    quota.unlink()


@contextmanager
def failing_write(pid: int, folder: Path) -> Iterator[None]:
    newest = max(data_folder(folder, "b2").glob("segment-*"))
    limit = newest.stat().st_size + ROOM_BYTES
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
    yield


@contextmanager
def failing_sync(_: int, folder: Path) -> Iterator[None]:
    (folder / "fail").touch()
    yield
    (folder / "fail").unlink()


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (full_disk, "the disk is full (No space left on device): make room, and start again"),
        (failing_write, "the disk reports an error (File too large)"),
        (failing_sync, "the disk reports an error (Input/output error): find out what is wrong with it"),
    ],
)
@in_loop
async def test_a_disk_that_fails_ends_the_broker_and_nothing_that_was_acknowledged_is_lost(
    tmp_path: Path, failure: Failure, reason: str
) -> None:
    with brokers(tmp_path, LINE, durable="fsync", start=False) as overlay:
        # The limit on files would cut a history off as well.
        result = keep_histories(tmp_path, () if failure is failing_write else overlay.names, "transactions")
        await start(overlay)
        overlay.stop("b2")
        overlay.start("b2", [sys.executable, "-c", FAILING, str(tmp_path / "fail"), "--config"])
        traffic = Traffic({"P": overlay.address("b1")}, {"S": overlay.address("b3")}, rate=200)
        lanes = [
            Lane(overlay, result, "dispatching", approach, Random(f"{reason} {approach}"), size=4)
            for approach in PROTOCOLS
        ]
        await traffic.begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(traffic.run())
            for lane in lanes:
                tasks.create_task(lane.run(client_kill_share=0.0))
            await asyncio.sleep(0.3)
            with failure(overlay.pid("b2"), tmp_path):
                await eventually("b2 ends", lambda: _has_ended(overlay))
            assert overlay.process("b2").child.returncode == 4
            told = overlay.errors("b2")
            assert told.startswith(
                f"Broker b2 ends: the journal in {data_folder(tmp_path, 'b2')} has stopped"
            )
            assert reason in told
            assert told.count("\n") == 1
            assert told.strip() == overlay.log("b2", "fatal")[-1]["reason"]
            overlay.start("b2")
            for lane in lanes:
                lane.stop()
            await asyncio.sleep(0.2)
            traffic.stop()
        faults = await traffic.end()
        await nothing_is_open(overlay)
    faults += [fault for lane in lanes for fault in lane.faults]
    if failure is not failing_write:
        faults += [fault for verdict in judge(load(result)) for fault in verdict.faults]
    assert faults == []
    assert sum(lane.outcomes["committed"] for lane in lanes) > 0


async def _has_ended(overlay: Overlay) -> bool:
    return not overlay.is_alive("b2")
