"""A coordinator that is told by lines on a pipe when to go on.

It says `{"event": "ready"}` and the like when it has come to a point, and goes on at a line `go`. `stop`
means: begin no more transactions. The end of the input means both, so that nobody waits for one who has died.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from client.scenarios.attempts import Attempt
from client.scenarios.roles import Coordinator


class Cues:
    """In the running loop."""

    def __init__(self, coordinator: Coordinator, source: int, tell: Callable[[Any], None]) -> None:
        self._coordinator = coordinator
        self._source = source
        self._tell = tell
        self._go = asyncio.Semaphore(0)
        self._is_over = False
        self._rest = b""
        coordinator.at, coordinator.told = self._at, self._told
        asyncio.get_running_loop().add_reader(source, self._read)

    async def _at(self, point: str) -> None:
        self._tell({"event": point})
        if not self._is_over:
            await self._go.acquire()

    def _told(self, attempt: Attempt) -> None:
        self._tell(
            {
                "event": "transaction",
                "transaction": attempt.number,
                "outcome": attempt.outcome,
                "latency_ms": attempt.latency_ms,
                "wrong": attempt.is_wrong,
            }
        )

    def _read(self) -> None:
        block = os.read(self._source, 4096)
        if not block:
            asyncio.get_running_loop().remove_reader(self._source)
            self._is_over = True
            self._coordinator.wind_up()
            self._go.release()
        *lines, self._rest = (self._rest + block).split(b"\n")
        for line in lines:
            if line.strip() == b"go":
                self._go.release()
            elif line.strip() == b"stop":
                self._coordinator.wind_up()
