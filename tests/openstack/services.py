"""Long-running programs of the control plane: started with a log each, stopped by pid, all bounded in time.

Each leads a process group of its own, so that its workers end with it; nothing is ever found by name.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

LOOK_AGAIN_S = 0.1
STOP_S = 10.0


class NotReady(Exception):
    """A program ended, or did not become ready in time; the text has the end of its log."""


class Services:
    """The programs that run now, in the order in which they were started."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.logs = folder / "log"
        self.logs.mkdir(parents=True)

    def start(self, name: str, command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> None:
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**self._environment, **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def run(self, name: str, commands: Sequence[Sequence[str | Path]], limit_s: float) -> None:
        """One after the other, each to its end."""
        for command in commands:
            with self.log(name).open("ab") as log:
                try:
                    done = subprocess.run(
                        command,
                        cwd=self._folder,
                        env=dict(self._environment),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        timeout=limit_s,
                        check=False,
                    )
                except subprocess.TimeoutExpired:
                    raise NotReady(f"{command[0]} took over {limit_s:g} s\n{self.tail(name)}") from None
            if done.returncode:
                raise NotReady(f"{command} ended with {done.returncode}\n{self.tail(name)}")

    def wait(self, name: str, ready: Callable[[], bool], limit_s: float) -> None:
        """Until `ready()`; an error when the program ends first, or the time does."""
        deadline = time.monotonic() + limit_s
        while not ready():
            code = self._running[name].poll()
            if code is not None:
                raise NotReady(f"{name} ended with {code}\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise NotReady(f"{name} was not ready after {limit_s:g} s\n{self.tail(name)}")
            time.sleep(LOOK_AGAIN_S)

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def tail(self, name: str) -> str:
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-25:])

    def stop(self) -> None:
        """The youngest first; whoever does not go when asked is killed."""
        for process in reversed(self._running.values()):
            _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in reversed(self._running.values()):
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(LOOK_AGAIN_S)
            # Also what a leader that went in good order has left in its group.
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()


def _signal_group(leader: int, number: signal.Signals) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return


def listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now; asked for all at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
