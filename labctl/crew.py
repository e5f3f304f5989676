"""The processes of a run: the lock that lets one run at a time, scenario clients, and what a killed run left.

Every client is written down with its pid and start time before it is used, in one file per user, together with
the folder that stands on its command line: what a `kill -9` of labctl leaves is found by either, and stopped.
Brokers are found in the same way by `labctl.overlay`.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from labctl import drivers, overlay, overlay_state, processes
from labctl.exits import LabError
from labctl.processes import Process

OVERLAY = "experiment"
"""Name of the overlay of whatever is run or calibrated; the lock makes sure that there is one."""
STOP_S = 5.0


class CrewError(LabError):
    """A client that has ended, or that says nothing any more."""


class Busy(LabError):
    """Somebody else is measuring on this machine."""


def _state() -> Path:
    return overlay_state.root() / "run"


@contextmanager
def locked() -> Iterator[list[str]]:
    """The machine for ourselves; what an earlier run has left is stopped first, and told."""
    folder = _state()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CrewError(f"{folder} cannot be made: {error.strerror}; `labctl doctor` says more") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
            raise Busy(
                f"another labctl (pid {holder or 'unknown'}) runs an experiment or a calibration on this machine; "
                "two at once would measure each other"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield stop_leftovers()
    finally:
        os.close(handle)


def stop_leftovers() -> list[str]:
    """One sentence for each process that was still there. For the holder of the lock."""
    stopped = [
        f"broker {one.broker} of an earlier run (pid {one.pid}) {one.how}"
        for one in overlay.down(OVERLAY)
        if one.how != "was not running"
    ]
    found = _left_clients()
    how = processes.stop(found, STOP_S)
    stopped += [f"client of an earlier run (pid {pid}) {text}" for pid, text in how.items()]
    _file().unlink(missing_ok=True)
    return stopped


def _file() -> Path:
    return _state() / "clients.jsonl"


class _Entry(msgspec.Struct):
    folder: str
    pid: int | None = None
    started: int | None = None


def _left_clients() -> list[Process]:
    try:
        lines = _file().read_bytes().splitlines()
    except FileNotFoundError:
        return []
    entries = []
    for line in lines:
        with suppress(msgspec.MsgspecError):  # the last one may be torn
            entries.append(msgspec.json.decode(line, type=_Entry))
    recorded = {(entry.pid, entry.started) for entry in entries}
    folders = tuple(f"{entry.folder}{os.sep}" for entry in entries)

    def is_ours(process: Process) -> bool:
        return (process.pid, process.started) in recorded or _works_in(process, folders)

    return processes.find(is_ours)


def _works_in(process: Process, folders: tuple[str, ...]) -> bool:
    """For one that was started, but not yet written down, when labctl was killed."""
    if "--scenario" not in " ".join(process.arguments):
        return False
    return any(argument.partition("=")[2].startswith(folders) for argument in process.arguments)


def _write_down(entry: _Entry) -> None:
    handle = os.open(_file(), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, msgspec.json.encode(entry) + b"\n")
    finally:
        os.close(handle)


def _environment() -> dict[str, str]:
    """What we can import, clients can: somebody's own scenario may be a file of the directory that we are in."""
    paths = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


class Member:
    """A running client."""

    def __init__(self, client: drivers.Client, command: Sequence[str], folder: Path) -> None:
        self.client = client
        self.errors = folder / "nodes" / f"{client.name}.err"
        pipe = subprocess.PIPE if client.coordinates else subprocess.DEVNULL
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=_environment(),
                stdin=pipe,
                stdout=pipe,
                stderr=errors,
                start_new_session=True,
            )
        seen = processes.look(self.process.pid)
        self.seen = seen
        _write_down(_Entry(str(folder), self.process.pid, seen.started if seen else None))
        self._rest = b""

    def check(self) -> None:
        """Raises if it has ended other than well."""
        code = self.process.poll()
        if code:
            raise CrewError(f"client {self.client.name} ended with {code}: {self.last_words()}")

    def last_words(self) -> str:
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it said nothing (see {self.errors})"

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            self.process.wait(STOP_S)
            self.check()
            raise CrewError(f"client {self.client.name} does not listen any more") from None

    def read(self) -> list[drivers.Line]:
        """What it has printed since; call it when there is something."""
        assert self.process.stdout is not None
        block = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self._rest = (self._rest + block).split(b"\n")
        return [drivers.parse(line) for line in lines if line]

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


class Crew:
    """The clients of one repetition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: list[Member] = []
        self._selector = selectors.DefaultSelector()
        _write_down(_Entry(str(folder)))

    def add(self, client: drivers.Client, command: Sequence[str]) -> None:
        member = Member(client, command, self.folder)
        self.members.append(member)
        if client.coordinates:
            assert member.process.stdout is not None
            self._selector.register(member.process.stdout, selectors.EVENT_READ, member)

    @property
    def coordinators(self) -> list[Member]:
        return [member for member in self.members if member.client.coordinates]

    def news(self, limit_s: float) -> list[tuple[Member, list[drivers.Line]]]:
        """What coordinators have printed, or nothing when the time is over or one of them has ended."""
        found = []
        for key, _ in self._selector.select(limit_s):
            member: Member = key.data
            lines = member.read()
            found.append((member, lines))
            if not lines and member.process.poll() is not None:
                self._selector.unregister(key.fileobj)
        return found

    def check(self) -> None:
        for member in self.members:
            member.check()

    def wait(self, limit_s: float) -> None:
        """Until all have ended by themselves."""
        deadline = time.monotonic() + limit_s
        for member in self.members:
            try:
                member.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise CrewError(f"client {member.client.name} did not end within {limit_s:g} s") from None
            member.check()

    def stop(self) -> None:
        """Whatever still runs; returns when nothing does."""
        self._selector.close()
        # Not only the members: an interrupt may have come between the start of one and its being added.
        processes.stop(_left_clients(), STOP_S)
        for member in self.members:
            member.close()
            with suppress(subprocess.TimeoutExpired):
                member.process.wait(STOP_S)
        _file().unlink(missing_ok=True)
