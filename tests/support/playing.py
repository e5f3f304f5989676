"""Scenarios over TCP in the test's own loop, on an overlay that keeps histories; and the verdict on them."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from client import Connection, connect
from client.asking.monitor import fetch_status
from client.scenarios.attempts import CoordinatorReport
from client.scenarios.cases import consolidation, dispatching
from client.scenarios.roles import Coordinator, Member, Role
from client.scenarios.stage import Cast, Options, Stage
from labctl.checks.judge import judge
from labctl.checks.verdict import Verdict
from labctl.paths import PROJECT
from labctl.results.histories import load
from labctl.simulate.recorded import reading, repetition
from labctl.simulate.views import recorded
from tests.support.brokers import Overlay
from tests.support.observe import eventually

SCENARIOS: Mapping[str, ModuleType] = {"dispatching": dispatching, "consolidation": consolidation}
Homes = Mapping[str, str]
"""The address of each role's broker."""


def keep_histories(folder: Path, names: Iterable[str], detail: str = "all") -> Path:
    """Tell brokers that are not started yet; their histories are in the folder that is returned."""
    result = folder / "result"
    (result / "tables").mkdir(parents=True)
    for name in names:
        file = folder / f"{name}.toml"
        told = f'history = "{result / name}.jsonl"\nhistory_detail = "{detail}"\n'
        file.write_text(told + file.read_text())
    return result


RETIRING_LOOKS = 30
"""That all have committed is told to all brokers within half a second."""


class Playing:
    """A copy of a scenario; its roles run in this loop, except for those that are played elsewhere."""

    def __init__(
        self,
        result: Path,
        scenario: str,
        homes: Homes,
        options: Options,
        elsewhere: str = "",
        copy: str = "",
        **settings: float,
    ) -> None:
        """`copy` tells this copy from others of the same approach; `settings` are those of its clients."""
        self._result = result
        self._scenario = scenario
        self._homes = homes
        self._options = options
        self._suffix = f"@{options.approach}{copy}"
        self._settings = settings
        self.elsewhere = elsewhere
        module = SCENARIOS[scenario]
        agents = sum(role.startswith("A") for role in homes)
        self.cast: Cast = module.cast(agents, self._suffix)
        self.roles: dict[str, Role] = {
            role: module.role(role + self._suffix, self.cast, options) for role in homes if role != elsewhere
        }
        self.sessions: dict[str, Connection] = {}

    @property
    def report(self) -> CoordinatorReport:
        assert self.coordinator is not None
        return self.coordinator.report

    @property
    def coordinator(self) -> Coordinator | None:
        """None if it is played elsewhere."""
        return next((role for role in self.roles.values() if isinstance(role, Coordinator)), None)

    @property
    def is_under_way(self) -> bool:
        if self.coordinator is not None:
            return bool(self.coordinator.report.attempts)
        return all(isinstance(role, Member) and role.is_playing for role in self.roles.values())

    async def run(self, coordinator_after_s: float = 0.0) -> None:
        """Until the coordinator has said stop; sessions stay open."""
        async with asyncio.TaskGroup() as group:
            for name, role in self.roles.items():
                group.create_task(self._run(name, coordinator_after_s if role is self.coordinator else 0.0))

    async def _run(self, name: str, after_s: float) -> None:
        await asyncio.sleep(after_s)
        role = self.roles[name]
        session = connect(
            self._homes[name],
            client_id=role.name,
            on_delivery=role.deliver,
            on_tcm=role.on_tcm,
            history=self._result / f"{role.name}.jsonl",
            **self._settings,
        )
        self.sessions[name] = await session.__aenter__()
        await role.run(Stage(session, session, time.monotonic, session.call_later))

    async def start_elsewhere(self, life: str = "") -> asyncio.subprocess.Process:
        """The role that is played by a process of its own; each life of it has its own history."""
        name, options = self.elsewhere, self._options
        history = self._result / f"{name}{self._suffix}{life}.jsonl"
        arguments: dict[str, Any] = {
            "scenario": self._scenario,
            "role": name,
            "suffix": self._suffix,
            "broker": self._homes[name],
            "approach": options.approach,
            "transactions": options.transactions,
            "history": history,
            **{name.replace("_", "-"): value for name, value in self._settings.items()},
        }
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "client",
            *(str(part) for key, value in arguments.items() for part in (f"--{key}", value)),
            cwd=PROJECT,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL if life else None,  # of a second life nobody expects much
        )

    async def close(self) -> None:
        for session in self.sessions.values():
            await session.close()


@asynccontextmanager
async def on_stage(playings: Iterable[Playing]) -> AsyncIterator[list[Playing]]:
    found = list(playings)
    try:
        yield found
    finally:
        for playing in found:
            await playing.close()


async def play_all(playings: Iterable[Playing]) -> None:
    async with asyncio.TaskGroup() as group:
        for playing in playings:
            group.create_task(playing.run())


async def nothing_is_open(overlay: Overlay) -> None:
    async def look() -> bool:
        opens = [(await fetch_status(overlay.address(name)))["open"] for name in overlay.names]
        return not any(rows for kinds in opens for rows in kinds.values())

    await eventually("no broker has anything of a transaction", look, deadline_s=40.0)
    for _ in range(RETIRING_LOOKS):  # until then a record of what has committed may carry its tag
        counts = [(await fetch_status(overlay.address(name)))["counts"] for name in overlay.names]
        if not any(count["retiring"] for count in counts):
            return
        await asyncio.sleep(0.1)


async def keep_tables(overlay: Overlay, result: Path) -> None:
    for name in overlay.names:
        status = await fetch_status(overlay.address(name), dump=True)
        (result / "tables" / f"{name}.json").write_bytes(msgspec.json.encode(status))


def verdicts(result: Path) -> dict[str, Verdict]:
    """When the brokers have ended, and so written all they know: what they promise, and whether they did what their
    cores do."""
    loaded = load(result)
    replayed = recorded.verdict(repetition.replay(reading.of(loaded, result)))
    return {verdict.property: verdict for verdict in (*judge(loaded), replayed)}
