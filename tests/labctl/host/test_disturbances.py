"""Faults among the processes of a host: done in time, told of, and undone when the run is over."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from labctl.host import disturbances
from labctl.host.disturbances import Disturbances, DisturbedProcess, cut_torn_end, set_apart

PROGRAM = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print(open(sys.argv[1]).read(), flush=True))
print("ready", flush=True)
while True: signal.pause()
"""


class Host:
    """One process, b1, and what is told of the faults that it meets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[dict[str, Any]] = []
        self.starts: list[list[str]] = []
        self.disturbances = Disturbances(self._find, self._start_again, self.told.append)

    async def start(self) -> None:
        command = [sys.executable, "-c", PROGRAM, str(self.folder / "b1.json")]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        self.child = DisturbedProcess("b1", process)
        assert await self.line() == "ready"

    async def line(self) -> str:
        assert self.child.process.stdout is not None
        return (await self.child.process.stdout.readline()).decode().strip()

    def _find(self, name: str) -> DisturbedProcess:
        assert name == "b1"
        return self.child

    async def _start_again(self, name: str, more: list[str]) -> None:
        await self.start()
        self.starts.append(more)

    @property
    def is_stopped(self) -> bool:
        """By what the kernel says."""
        text = Path(f"/proc/{self.child.process.pid}/stat").read_text()
        return text.rpartition(")")[2].split()[0] == "T"

    async def until_stopped(self, is_stopped: bool) -> None:
        async with asyncio.timeout(10):
            while self.is_stopped is not is_stopped:
                await asyncio.sleep(0.005)

    def step(self, at_s: float, do: str, **others: Any) -> dict[str, Any]:
        files = [str(self.folder / name) for name in ("history.jsonl", "log.jsonl")]
        paths = {"control": str(self.folder / "b1.json"), "data": str(self.folder / "data")}
        step = {"at_s": at_s, "fault": 1, "phase": "begun", "node": "b1", "do": do, "text": ""}
        return {**step, **paths, "files": files, "apart": files[:1], "more": ["--returns"], **others}

    async def until_told(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.told) < count:
                await asyncio.sleep(0.005)


def play(folder: Path, program: Callable[[Host], Awaitable[None]]) -> Host:
    async def run() -> Host:
        host = Host(folder)
        await host.start()
        try:
            await program(host)
        finally:
            host.disturbances.end()
            if host.child.process.returncode is None:
                host.child.process.kill()
            await host.child.process.communicate()
        return host

    return asyncio.run(run())


def test_a_process_that_is_killed_is_started_again_with_what_comes_back(tmp_path: Path) -> None:
    for name in ("history.jsonl", "log.jsonl"):
        (tmp_path / name).write_text('{"a":1}\n{"b":')

    async def program(host: Host) -> None:
        first = host.child.process
        host.disturbances.arm([host.step(0.05, "kill"), host.step(0.1, "start", phase="ended")])
        host.disturbances.release()
        await host.until_told(2)
        assert first.returncode == -9
        assert host.child.process is not first
        assert host.starts == [["--returns"]]

    host = play(tmp_path, program)
    assert [line["phase"] for line in host.told] == ["begun", "ended"]
    assert host.told[0]["time_s"] >= 0.05
    assert host.told[1]["time_s"] >= 0.1
    assert (tmp_path / "history.1.jsonl").read_text() == (tmp_path / "log.jsonl").read_text() == '{"a":1}\n'
    assert not (tmp_path / "history.jsonl").exists()


def test_a_pause_ends_in_time_and_when_everything_is_over(tmp_path: Path) -> None:
    async def program(host: Host) -> None:
        pauses = [host.step(0.01, "pause"), host.step(0.5, "resume"), host.step(0.6, "pause")]
        host.disturbances.arm(pauses)
        host.disturbances.release()
        for is_stopped in (True, False, True):
            await host.until_stopped(is_stopped)
        await host.until_told(3)
        host.disturbances.end()
        await host.until_stopped(False)

    assert [line["error"] for line in play(tmp_path, program).told] == ["", "", ""]


def test_a_control_file_is_there_before_the_process_is_told_to_look(tmp_path: Path) -> None:
    async def program(host: Host) -> None:
        host.disturbances.arm([host.step(0.01, "control", text=json.dumps({"cut": ["b2"]}))])
        host.disturbances.release()
        assert json.loads(await host.line()) == {"cut": ["b2"]}

    play(tmp_path, program)


def test_somebody_who_ends_because_its_disk_is_full_is_started_again_afterwards(tmp_path: Path) -> None:
    quota = tmp_path / "data" / disturbances.QUOTA

    async def program(host: Host) -> None:
        host.disturbances.arm([host.step(0.01, "fill"), host.step(0.2, "empty")])
        host.disturbances.release()
        await host.until_told(1)
        assert quota.read_text() == "0\n"
        assert host.child.may_end
        host.child.process.kill()
        await host.until_told(2)
        assert host.starts == [["--returns"]]

    play(tmp_path, program)
    assert not quota.exists()


def test_somebody_who_takes_a_while_to_end_is_started_again_too(tmp_path: Path) -> None:
    async def program(host: Host) -> None:
        host.disturbances.arm([host.step(0.01, "fill"), host.step(0.02, "empty")])
        host.disturbances.release()
        await host.until_told(2)
        host.child.process.kill()
        async with asyncio.timeout(10):
            while not host.starts:
                await asyncio.sleep(0.005)

    play(tmp_path, program)


def test_a_full_disk_that_harms_nobody_leaves_the_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbances, "ENDING_S", 0.1)

    async def program(host: Host) -> None:
        host.disturbances.arm([host.step(0.01, "fill"), host.step(0.05, "empty")])
        host.disturbances.release()
        await host.until_told(2)
        async with asyncio.timeout(10):
            while host.child.may_end:
                await asyncio.sleep(0.005)
        assert host.starts == []

    play(tmp_path, program)


def test_what_could_not_be_done_is_told_with_the_reason(tmp_path: Path) -> None:
    async def program(host: Host) -> None:
        host.child.process.kill()
        await host.child.process.wait()
        host.disturbances.arm([host.step(0.01, "pause")])
        host.disturbances.release()
        await host.until_told(1)

    assert play(tmp_path, program).told[0]["error"] == "b1 does not run"


def test_nothing_happens_after_the_end(tmp_path: Path) -> None:
    async def program(host: Host) -> None:
        host.disturbances.arm([host.step(0.02, "kill")])
        host.disturbances.release()
        host.disturbances.end()
        await asyncio.sleep(0.1)
        assert host.child.process.returncode is None

    assert play(tmp_path, program).told == []


def test_a_torn_end_is_cut_off_and_a_missing_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "E.jsonl"
    for text, left in (('{"a":1}\n{"b', '{"a":1}\n'), ('{"a', ""), ('{"a":1}\n', '{"a":1}\n'), ("", "")):
        path.write_text(text)
        cut_torn_end(path)
        assert path.read_text() == left
    cut_torn_end(tmp_path / "missing.jsonl")
    set_apart(tmp_path / "missing.jsonl", 1)
    set_apart(path, 2)
    assert (tmp_path / "E.2.jsonl").exists()
