"""Faults among the processes of a host: each step at its time, by the host's own clock.

The steps are brought beforehand and begin when they are released, so that no line and no other host delays them.
Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from labctl.exits import LabError

QUOTA = "quota"
"""In a data folder: so many bytes may be in it, and no more."""
ENDING_S = 4.0
"""For somebody whose disk was full to get rid of what others wait for, and end."""


class DisturbanceError(LabError):
    """A fault that could not be done."""


class DisturbedProcess:
    """One that was started here, and can be started again."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.may_end = False
        """Its end is part of a fault: nobody need hear of it."""
        self.is_paused = False

    def signal(self, number: signal.Signals) -> None:
        if self.process.returncode is not None:
            raise DisturbanceError(f"{self.name} does not run")
        self.process.send_signal(number)


class Disturbances:
    def __init__(
        self,
        find: Callable[[str], DisturbedProcess],
        start_again: Callable[[str, list[str]], Awaitable[None]],
        out: Callable[[dict[str, Any]], None],
    ) -> None:
        """`start_again`: with what is to be added to its command."""
        self._find = find
        self._start_again = start_again
        self._out = out
        self._steps: list[dict[str, Any]] = []
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._paused: dict[str, DisturbedProcess] = {}
        self._lives: dict[str, int] = {}

    def arm(self, steps: list[dict[str, Any]]) -> None:
        self._steps = steps

    def release(self) -> float:
        """The clock's time from which the steps count."""
        loop, began_s = asyncio.get_running_loop(), time.monotonic()
        # The loop's clock is the same one.
        self._timers = [
            loop.call_at(began_s + step["at_s"], self._begin, step, began_s) for step in self._steps
        ]
        self._steps = []
        return began_s

    def end(self) -> None:
        """Nothing more happens, and nobody stays paused: what is paused hears no other signal."""
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        for process in self._paused.values():
            with contextlib.suppress(DisturbanceError):
                process.signal(signal.SIGCONT)
        self._timers, self._steps = [], []
        self._paused.clear()

    def _begin(self, step: dict[str, Any], began_s: float) -> None:
        self._spawn(self._do(step, began_s))

    async def _do(self, step: dict[str, Any], began_s: float) -> None:
        error = ""
        try:
            await getattr(self, f"_{step['do']}")(step)
        except (LabError, OSError) as problem:
            error = str(problem)
        told = {name: step[name] for name in ("fault", "phase", "node")}
        self._out({**told, "time_s": round(time.monotonic() - began_s, 6), "error": error})

    async def _kill(self, step: dict[str, Any]) -> None:
        process = self._find(step["node"])
        process.may_end = True
        process.signal(signal.SIGKILL)

    async def _start(self, step: dict[str, Any]) -> None:
        name = step["node"]
        await self._find(name).process.wait()
        life = self._lives[name] = self._lives.get(name, 0) + 1
        for file in step["files"]:
            cut_torn_end(Path(file))
        for file in step["apart"]:
            set_apart(Path(file), life)
        await self._start_again(name, step["more"])

    async def _pause(self, step: dict[str, Any]) -> None:
        process = self._find(step["node"])
        process.signal(signal.SIGSTOP)
        self._paused[process.name] = process

    async def _resume(self, step: dict[str, Any]) -> None:
        process = self._find(step["node"])
        process.signal(signal.SIGCONT)
        self._paused.pop(process.name, None)

    async def _control(self, step: dict[str, Any]) -> None:
        write_whole(Path(step["control"]), step["text"])
        # Somebody who is away looks at it when he is back.
        with contextlib.suppress(DisturbanceError):
            self._find(step["node"]).signal(signal.SIGUSR1)

    async def _fill(self, step: dict[str, Any]) -> None:
        self._find(step["node"]).may_end = True
        write_whole(Path(step["data"]) / QUOTA, "0\n")

    async def _empty(self, step: dict[str, Any]) -> None:
        (Path(step["data"]) / QUOTA).unlink(missing_ok=True)
        process = self._find(step["node"])
        if process.process.returncode is None:
            self._spawn(self._ending(process, step))
        else:
            await self._start(step)

    async def _ending(self, process: DisturbedProcess, step: dict[str, Any]) -> None:
        """Somebody who has met the full disk may take a while to end."""
        try:
            await asyncio.wait_for(process.process.wait(), ENDING_S)
        except TimeoutError:
            process.may_end = False
        else:
            await self._start(step)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def write_whole(path: Path, text: str) -> None:
    """Whoever reads it meanwhile gets the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def cut_torn_end(path: Path) -> None:
    """Of lines whose writer was killed: what stands behind the last end was never said."""
    with contextlib.suppress(FileNotFoundError):
        end = path.read_bytes().rfind(b"\n") + 1
        os.truncate(path, end)


def set_apart(path: Path, life: int) -> None:
    """A history is of one life: `E.jsonl` becomes `E.1.jsonl`, and the next life has a file of its own."""
    with contextlib.suppress(FileNotFoundError):
        path.rename(path.with_name(f"{path.stem}.{life}{path.suffix}"))
