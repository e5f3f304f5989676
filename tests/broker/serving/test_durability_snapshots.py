"""Snapshots by a process of their own: when one is due, when one fails, and when the broker stops meanwhile."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from broker.config import NodeConfig
from broker.core import Broker
from broker.journal import graph
from broker.node.log import JsonLog
from broker.protocol.limits import Limits
from broker.serving.durability import Durability
from broker.sessions.greeting import Departed
from broker.sessions.saved import Saved
from tests.support.observe import eventually, in_loop

pytestmark = pytest.mark.slow

STATE = Saved(Broker("b1", [], 1, "all", Limits()), (), 0.0, 0, Departed())


def opened(folder: Path, log: Path) -> Durability:
    """With so much behind its snapshot that one is due."""
    config = NodeConfig("b1", "127.0.0.1:0", data=str(folder / "data"), durable="fsync", redo_ms_max=1)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    durability = Durability(config, "fsync", JsonLog(descriptor, "b1"))
    for _ in durability.folder.entries() if not durability.folder.is_new else ():
        pass
    return durability


def fill(durability: Durability, count: int = 30) -> None:
    for _ in range(count):
        durability.folder.append(b"entry")
    durability.folder.sync()


async def is_written(durability: Durability) -> bool:
    return durability._writer is None


@in_loop
async def test_a_snapshot_is_due_when_much_would_have_to_be_done_again_and_then_stands_for_it(
    tmp_path: Path,
) -> None:
    durability = opened(tmp_path, tmp_path / "log")
    assert not durability.is_snapshot_due
    fill(durability)
    assert durability.is_snapshot_due
    durability.begin_snapshot(STATE)
    assert not durability.is_snapshot_due
    await eventually("it is written", lambda: is_written(durability))
    assert durability.folder.entries_behind_snapshot == 0
    durability.close(None)
    assert opened(tmp_path, tmp_path / "log").saved is not None


@in_loop
async def test_one_that_fails_is_not_tried_again_at_once_and_the_journal_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durability = opened(tmp_path, tmp_path / "log")
    fill(durability)
    with monkeypatch.context() as patch:
        patch.setattr(graph, "freeze", lambda state: 1 / 0)
        durability.begin_snapshot(STATE)
        await eventually("it has failed", lambda: is_written(durability))
    assert "ZeroDivisionError" in (tmp_path / "log").read_text()
    assert durability.folder.entries_behind_snapshot == 30
    fill(durability, 20)
    assert not durability.is_snapshot_due
    fill(durability, 20_000)
    assert durability.is_snapshot_due
    durability.begin_snapshot(STATE)
    await eventually("it is written", lambda: is_written(durability))
    assert durability.folder.entries_behind_snapshot == 0
    durability.close(None)


@in_loop
async def test_a_machine_without_room_for_one_more_process_has_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durability = opened(tmp_path, tmp_path / "log")
    fill(durability)

    def no_fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", no_fork)
        durability.begin_snapshot(STATE)
    assert "Resource temporarily unavailable" in (tmp_path / "log").read_text()
    assert not durability.is_snapshot_due
    fill(durability, 40)
    assert durability.is_snapshot_due
    durability.close(None)


@pytest.mark.parametrize("state", [None, STATE], ids=["with effects that wait", "at rest"])
@in_loop
async def test_a_broker_may_stop_while_one_is_written(tmp_path: Path, state: Saved | None) -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    durability = opened(tmp_path, tmp_path / "log")
    fill(durability)
    durability.begin_snapshot(STATE)
    durability.close(state)
    await asyncio.sleep(0.05)  # whatever the loop still calls
    assert problems == []
    again = opened(tmp_path, tmp_path / "log")
    assert (again.saved is None) == (state is None)
    assert again.folder.entries_behind_snapshot == (30 if state is None else 0)
    again.close(None)
