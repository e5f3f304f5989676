"""Real broker processes for tests: each has its own file, its own loopback port and its own log.

    with brokers(tmp_path, links=[("b1", "b2")], limits={"payload_bytes_max": 100}) as overlay:
        asyncio.run(program(overlay.address("b1")))

Everything here blocks, so it is called outside an event loop; a program in one asks with `fetch_status`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from client.asking.monitor import fetch_status
from client.core.errors import ClientError
from labctl.overlay.launch import reserved_ports
from labctl.paths import PROJECT

DEADLINE_S = 15.0
POLL_S = 0.01
COMMAND = [sys.executable, "-m", "broker", "--config"]

Link = tuple[str, str]
"""The first of the two dials."""
Settings = Mapping[str, Any]


def wait_for(what: str, condition: Callable[[], Any], deadline_s: float = DEADLINE_S) -> Any:
    """The first true answer of `condition`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + deadline_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {deadline_s:g} s: {what}"
        time.sleep(POLL_S)
    return answer


class Process:
    """One `python -m broker`, with what it writes in two files beside its configuration."""

    def __init__(self, config: Path, command: Sequence[str] = (), **variables: str) -> None:
        """`command`: instead of `python -m broker --config`; `variables`: in its environment, beside ours."""
        self.config = config
        self.log_file = config.with_suffix(".log")
        self.error_file = config.with_suffix(".err")
        with open(self.log_file, "ab") as out, open(self.error_file, "ab") as err:
            self.child = subprocess.Popen(
                [*(command or COMMAND), str(config)],
                cwd=PROJECT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def log(self, event: str | None = None) -> list[dict[str, Any]]:
        """Every whole line, each of which must be a JSON object; or those of one event."""
        whole = self.log_file.read_bytes().rpartition(b"\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
        assert all(isinstance(line, dict) for line in lines)
        return [line for line in lines if event in (None, line["event"])]

    def errors(self) -> str:
        return self.error_file.read_text(errors="replace")

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Its exit code, when it has ended of itself or was told to."""
        return self.child.wait(deadline_s)

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.child.poll() is None, f"{self.config.stem} ended: {self.errors()}"
            return any(line["pid"] == self.child.pid for line in self.log("ready"))

        wait_for(f"{self.config.stem} is ready", is_ready)

    def end(self) -> None:
        """However stubborn it is."""
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.child.wait(DEADLINE_S)


class Overlay:
    """Brokers by name; `links` tells which of them should know each other."""

    def __init__(
        self, addresses: Mapping[str, str], configs: Mapping[str, Path], links: Sequence[Link]
    ) -> None:
        self._addresses = addresses
        self._configs = configs
        self._links = links
        self._processes: dict[str, Process] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    def process(self, name: str) -> Process:
        return self._processes[name]

    def address(self, name: str) -> str:
        return self._addresses[name]

    def pid(self, name: str) -> int:
        return self.process(name).child.pid

    def log(self, name: str, event: str | None = None) -> list[dict[str, Any]]:
        return self.process(name).log(event)

    def errors(self, name: str) -> str:
        return self.process(name).errors()

    def start(self, name: str, command: Sequence[str] = (), **variables: str) -> None:
        """Start it, for the first time or again; its log goes on."""
        self._processes[name] = Process(self._configs[name], command, **variables)

    def signal(self, name: str, number: int) -> None:
        os.kill(self.pid(name), number)

    def kill(self, name: str) -> None:
        """As a crash does."""
        self.signal(name, signal.SIGKILL)
        self.wait(name)

    def stop(self, name: str) -> int:
        """Ask it to stop; its exit code."""
        self.signal(name, signal.SIGTERM)
        return self.wait(name)

    def wait(self, name: str, deadline_s: float = DEADLINE_S) -> int:
        return self.process(name).wait(deadline_s)

    def is_alive(self, name: str) -> bool:
        return self.process(name).child.poll() is None

    def status(self, name: str, dump: bool = False) -> dict[str, Any]:
        return asyncio.run(fetch_status(self.address(name), dump=dump))

    def wait_until_linked(self) -> None:
        """Until every link is up at both ends and every broker knows all the others."""
        for name in self._processes:
            wait_for(f"{name} has its links", lambda name=name: self._is_linked(name))  # type: ignore[misc]

    def _is_linked(self, name: str) -> bool:
        assert self.is_alive(name), f"{name} ended: {self.errors(name)}"
        try:
            status = self.status(name)
        except ClientError:
            return False
        up = {link["name"] for link in status["links"] if link["kind"] == "broker" and link["state"] == "up"}
        return up == set(neighbours(name, self._links)) and set(status["overlay"]) == {*self.names} - {name}

    def close(self) -> None:
        for process in self._processes.values():
            if process.child.poll() is None:
                process.child.terminate()
        for process in self._processes.values():
            process.end()


@contextmanager
def brokers(
    folder: Path,
    links: Iterable[Link] = (),
    names: Iterable[str] = (),
    *,
    clients: Settings | None = None,
    limits: Settings | None = None,
    delays: Mapping[Link, Settings] | None = None,
    settings: Settings | None = None,
    durable: str = "",
    start: bool = True,
) -> Iterator[Overlay]:
    """A running overlay, all links up; without links and names it is one broker, b1.

    `clients` is the emulated delay towards clients, `delays` that of a link from its first to its second
    broker, `settings` what stands at the top of every file. With `durable`, a mode, every broker has a data folder, as
    `data_folder` says. With `start=False` nothing is started.
    """
    edges = list(links)
    ids = sorted({*names, *(name for edge in edges for name in edge)}) or ["b1"]
    addresses = dict(zip(ids, free_addresses(len(ids)), strict=True))
    configs = {}
    for name in ids:
        top = {"id": name, "listen": addresses[name], **(settings or {})}
        if durable:
            top |= {"durable": durable, "data": str(data_folder(folder, name)), "overlay": folder.name}
        near = []
        for other in neighbours(name, edges):
            address = {"address": addresses[other]} if (name, other) in edges else {}
            near.append({"id": other, **address, **(delays or {}).get((name, other), {})})
        configs[name] = folder / f"{name}.toml"
        configs[name].write_text(node_file(top, near, clients or {}, limits or {}))
    overlay = Overlay(addresses, configs, edges)
    try:
        if start:
            for name in ids:
                overlay.start(name)
            for name in ids:
                overlay.process(name).wait_until_ready()
            overlay.wait_until_linked()
        yield overlay
    finally:
        overlay.close()
    for name in overlay.names:
        if (folder / f"{name}.err").exists():
            assert "Traceback" not in (folder / f"{name}.err").read_text(errors="replace"), name


def data_folder(folder: Path, name: str) -> Path:
    """Of a broker whose file is in this folder."""
    return folder / f"{name}.data"


def free_addresses(count: int) -> list[str]:
    with reserved_ports(count) as ports:
        return [f"127.0.0.1:{port}" for port in ports]


def neighbours(name: str, links: Iterable[Link]) -> list[str]:
    return [b if a == name else a for a, b in links if name in (a, b)]


def node_file(top: Settings, near: Iterable[Settings], clients: Settings, limits: Settings) -> str:
    """A configuration as TOML, good or bad: nothing is checked here."""
    sections = [("", top), ("[clients]", clients), ("[limits]", limits)]
    sections += [("[[neighbours]]", neighbour) for neighbour in near]
    lines = []
    for title, table in sections:
        # What JSON writes for numbers, texts and lists is TOML as well.
        lines += [title, *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
