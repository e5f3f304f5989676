"""Processes of a benchmark: started with their arguments as JSON, told to go, asked for one result.

A worker is a coroutine `role(arguments, ready) -> result` in a module that calls `serve`. It awaits
`ready(facts)` once it is set up; that returns when the benchmark says go. All ends by itself or by pid.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import uvloop

from broker.node.garbage import collect_rarely
from labctl.exits import LabError

Ready = Callable[[dict[str, Any]], Awaitable[None]]
Role = Callable[[dict[str, Any], Ready], Awaitable[dict[str, Any]]]

WORKER_S_MAX = 120.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class BenchError(LabError):
    """A benchmark that could not be carried out; the text names the process and what it said."""


class Worker:
    """The parent's end of one worker process."""

    def __init__(self, module: str, role: str, arguments: dict[str, Any]) -> None:
        self.role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, role, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def wait_ready(self, limit_s: float = 30.0) -> dict[str, Any]:
        return self._read(limit_s)

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()

    def result(self, limit_s: float = WORKER_S_MAX) -> dict[str, Any]:
        return self._read(limit_s)

    def stop(self) -> None:
        _stop(self._process)

    def _read(self, limit_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], limit_s)
        line = self._process.stdout.readline() if readable else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        raise BenchError(f"{self.role}: {self._fault(limit_s if not readable else None)}")

    def _fault(self, limit_s: float | None) -> str:
        if limit_s is not None and self._process.poll() is None:
            return f"no answer within {limit_s:g} s"
        assert self._process.stderr is not None
        self._process.wait(5)
        said = self._process.stderr.read().decode(errors="replace").strip().splitlines()
        return f"ended with exit code {self._process.returncode}: {said[-1] if said else 'without a word'}"


@contextlib.contextmanager
def workers(module: str, *roles: tuple[str, dict[str, Any]]) -> Iterator[list[Worker]]:
    """Start them all; whatever happens, none is left behind."""
    started: list[Worker] = []
    try:
        for role, arguments in roles:
            started.append(Worker(module, role, arguments))
        yield started
    finally:
        for worker in reversed(started):
            worker.stop()


@contextlib.contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None, **streams: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that a benchmark needs, for the length of a block; it ends with us even if we are killed.

    `labctl.host.launcher` starts what is meant to outlive us.
    """
    process = subprocess.Popen(
        command,
        **streams,  # type: ignore[call-overload]
        env=environment,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - nothing here runs in threads
    )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def end_with_parent() -> None:
    """Even a benchmark that is killed leaves no process behind; also fit for `preexec_fn`."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def serve(roles: dict[str, Role]) -> None:
    """The child's end: run the role that the command line names, once."""
    end_with_parent()
    role, arguments = roles[sys.argv[1]], json.loads(sys.argv[2])
    collect_rarely()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_run(role, arguments))
    _say(result)


async def _run(role: Role, arguments: dict[str, Any]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()

    async def ready(facts: dict[str, Any]) -> None:
        _say(facts)
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if not line:
            raise SystemExit(0)  # the parent is gone, or does not need us any more

    return await role(arguments, ready)


def _say(facts: dict[str, Any]) -> None:
    os.write(sys.stdout.fileno(), json.dumps(facts).encode() + b"\n")
