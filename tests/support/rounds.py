"""Copies of the scenarios, round after round, while the brokers below them are killed and come back.

A lane plays one scenario by one protocol: a few transactions, then everybody leaves and a fresh copy begins, so that
nothing has a reason to grow. In some rounds a client is a process of its own, and is killed and started again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from random import Random

from msgspec.structs import replace

from client import ClientError, TimedOut
from client.scenarios.stage import Options, ScenarioError
from tests.support.brokers import Overlay
from tests.support.observe import eventually
from tests.support.playing import Playing

ROLES = {"dispatching": ("E", "D", "A1", "A2"), "consolidation": ("C", "E", "A1", "A2")}
TIMEOUT_S = 60.0
"""Of a request: several brokers on its way may be down, one after the other."""
VICTIM_S_MAX = 1.5
VICTIM_PATIENCE_S = 3.0
"""What was meant for a victim is waited for no longer."""


class Lane:
    """One after the other, until it is told to stop."""

    def __init__(
        self, overlay: Overlay, result: Path, scenario: str, approach: str, random: Random, size: int
    ) -> None:
        self._overlay = overlay
        self._result = result
        self._scenario = scenario
        self._random = random
        self._options = Options(
            approach, transactions=size, concurrency=2, patience_s=TIMEOUT_S, ready_s=TIMEOUT_S
        )
        self.name = f"{scenario} by {approach}"
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.client_kills = 0
        self._number = 0
        self._is_over = False

    def stop(self) -> None:
        self._is_over = True

    async def run(self, client_kill_share: float) -> None:
        while not self._is_over:
            self._number += 1
            victim = ""
            if self._random.random() < client_kill_share:
                victim = self._random.choice(ROLES[self._scenario])
            await self._round(self._playing(victim))

    def last_playing(self) -> Playing:
        """A round in peace, to be played by somebody else."""
        self._number += 1
        return self._playing("")

    def _playing(self, victim: str) -> Playing:
        homes = {
            role: self._overlay.address(self._random.choice(self._overlay.names))
            for role in ROLES[self._scenario]
        }
        copy = f".{self._scenario[0]}{self._number}"
        options = replace(self._options, patience_s=VICTIM_PATIENCE_S) if victim else self._options
        settings = {"timeout_s": TIMEOUT_S, "connect_s": TIMEOUT_S}
        return Playing(self._result, self._scenario, homes, options, victim, copy, **settings)

    async def _round(self, playing: Playing) -> None:
        try:
            if playing.elsewhere:
                await self._play_and_kill(playing)
            else:
                await playing.run()
        except* (ClientError, ScenarioError) as group:
            self.faults += [f"round {self._number} of {self.name}: {error!r}" for error in group.exceptions]
        finally:
            for session in playing.sessions.values():
                with contextlib.suppress(TimedOut):  # its broker is away, for longer than a client cares
                    await session.close()
        if playing.coordinator is not None:
            self._count(playing)

    def _count(self, playing: Playing) -> None:
        for line in playing.report.lines():
            self.outcomes[line["outcome"]] += 1
            where = f"round {self._number} of {self.name}, transaction {line['transaction']}"
            if line["correct"] is False and not playing.elsewhere:
                self.faults.append(f"{where} is wrong: {line}")
            if line["outcome"] == "unknown" and not playing.elsewhere:
                self.faults.append(f"{where} is unknown, and nobody is gone: {line['reason']}")

    async def _play_and_kill(self, playing: Playing) -> None:
        """The victim comes back by its name, and is told that it is somebody new."""
        processes = [await playing.start_elsewhere()]
        task = asyncio.create_task(playing.run())
        try:
            await eventually("the first transaction", lambda: _is_under_way(playing, task), 2 * TIMEOUT_S)
            await asyncio.sleep(self._random.uniform(0, VICTIM_S_MAX))
            await _kill(processes[0])
            self.client_kills += 1
            processes.append(await playing.start_elsewhere(".2"))
            if playing.coordinator is not None:
                await asyncio.sleep(self._random.uniform(0, VICTIM_S_MAX))
                playing.coordinator.wind_up()
                await asyncio.wait([task], timeout=2 * TIMEOUT_S)
        finally:
            for process in processes:
                await _kill(process)
            if not task.done():
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _is_under_way(playing: Playing, task: asyncio.Task[None]) -> bool:
    return playing.is_under_way or task.done()


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()
