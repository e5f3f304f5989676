"""Processes of this machine, told apart so that a reused pid is never taken for the one we meant.

A process is its pid and its start time (`/proc/PID/stat`, field 22). Signals go through a pidfd that
was opened before the start time was compared, so that nothing can slip in between. Linux only.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Literal, NamedTuple

from labctl.exits import LabError

How = Literal["stopped", "killed", "was not running"]


class Process(NamedTuple):
    pid: int
    started: int
    """Clock ticks after boot."""
    arguments: tuple[str, ...]
    """Empty once it has ended and waits to be collected."""


class StopError(LabError):
    """A process that we may not signal, or that outlives SIGKILL."""


def look(pid: int) -> Process | None:
    """The process that has this pid now; None when there is none, or it is hidden from us."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat, open(f"/proc/{pid}/cmdline", "rb") as command:
            after_name = stat.read().rpartition(b")")[2].split()
            arguments = command.read().split(b"\0")[:-1]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name, field 2, may hold spaces and brackets; behind it field 3 comes first.
    return Process(pid, int(after_name[22 - 3]), tuple(os.fsdecode(a) for a in arguments))


def find(wanted: Callable[[Process], bool]) -> list[Process]:
    """Every process, other than ourselves, that is wanted."""
    return [process for process in _everything() if process.pid != os.getpid() and wanted(process)]


def stop(processes: Iterable[Process], term_s: float = 5.0, kill_s: float = 5.0) -> dict[int, How]:
    """SIGTERM to all, a bounded wait, SIGKILL to the rest; says per pid how it went."""
    how: dict[int, How] = {}
    with ExitStack() as closing:
        handles: dict[int, int] = {}
        for process in processes:
            handle = _open(process)
            if handle is None:
                how[process.pid] = "was not running"
                continue
            closing.callback(os.close, handle)
            handles[process.pid] = handle
        _signal(handles, signal.SIGTERM)
        stubborn = _wait(handles, term_s)
        _signal(stubborn, signal.SIGKILL)
        immortal = _wait(stubborn, kill_s)
        how |= {pid: "killed" if pid in stubborn else "stopped" for pid in handles}
        _collect(handles)
    if immortal:
        raise StopError(f"still running {kill_s:g} s after SIGKILL: pid {', '.join(map(str, immortal))}")
    return how


def _everything() -> Iterator[Process]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (process := look(int(entry))) is not None:
            yield process


def _open(process: Process) -> int | None:
    """A handle on exactly this process; None when it is gone or its pid is another's."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    now = look(process.pid)
    if now is None or now.started != process.started:
        os.close(handle)
        return None
    return handle


def _signal(handles: dict[int, int], number: signal.Signals) -> None:
    for pid, handle in handles.items():
        try:
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            continue
        except PermissionError:
            raise StopError(f"pid {pid} belongs to another user; stop it as that user") from None


def _wait(handles: dict[int, int], limit_s: float) -> dict[int, int]:
    """Those that have not ended within the limit; a pidfd turns readable when its process ends."""
    left = dict(handles)
    deadline = time.monotonic() + limit_s
    while left:
        remaining_s = max(0.0, deadline - time.monotonic())
        ended = _readable(list(left.values()), remaining_s)
        left = {pid: handle for pid, handle in left.items() if handle not in ended}
        if remaining_s == 0:
            break
    return left


def _collect(pids: Iterable[int]) -> None:
    """Those that are our own children would stay as zombies for as long as we live."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue


def _readable(handles: Sequence[int], limit_s: float) -> set[int]:
    poller = select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    return {handle for handle, _ in poller.poll(limit_s * 1000)}
