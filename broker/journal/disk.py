"""The disk of this machine, and the process that dies at a point of its choice; the only module here that touches files.

With LABCTL_KILL_POINT=NAME in its environment a process kills itself, as SIGKILL does, where it reaches that point of
`POINTS` for the first time; with NAME:N where it does so for the N-th time. Who writes a snapshot for it takes it along.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Sequence

from broker.journal.files import POINTS, File, Lock, LockedError, Status

KILL_POINT = "LABCTL_KILL_POINT"

_PIECES_MAX = min(1024, os.sysconf("SC_IOV_MAX"))
_PID_BYTES = 32


class RealFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, pieces: Sequence[bytes]) -> None:
        for start in range(0, len(pieces), _PIECES_MAX):
            batch: Sequence[bytes | memoryview] = pieces[start : start + _PIECES_MAX]
            rest = sum(map(len, batch))
            while rest:
                written = os.writev(self._descriptor, batch)
                if not written:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                rest -= written
                if rest:
                    batch = _behind(batch, written)

    def truncate(self, byte_count: int) -> None:
        os.ftruncate(self._descriptor, byte_count)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class RealLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """The file stays: were it removed, two could hold a lock of that name."""
        os.close(self._descriptor)


class RealDisk:
    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            return
        self.sync_folder(os.path.dirname(os.path.abspath(path)))

    def list(self, path: str) -> list[str]:
        return os.listdir(path)

    def status(self, path: str) -> Status:
        found = os.stat(path)
        return Status(found.st_ino, found.st_size, found.st_mtime_ns)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def create(self, path: str) -> File:
        return RealFile(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600))

    def open(self, path: str) -> File:
        return RealFile(os.open(path, os.O_WRONLY | os.O_APPEND))

    def rename(self, path: str, new_path: str) -> None:
        os.rename(path, new_path)

    def remove(self, path: str) -> None:
        os.remove(path)

    def sync_folder(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> Lock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            holder = os.pread(descriptor, _PID_BYTES, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise LockedError(holder or "unknown") from None
        except OSError:
            os.close(descriptor)
            raise
        return RealLock(descriptor)

    def reached(self, point: str) -> None:
        reached(point)


def reached(point: str) -> None:
    """The process ends here if its environment says so."""
    if _kill_point is not None:
        _kill_point.reached(point)


class _KillPoint:
    def __init__(self, wanted: str) -> None:
        self._name, _, times = wanted.partition(":")
        if self._name not in POINTS or (times and not times.isdecimal()):
            raise ValueError(
                f"{KILL_POINT}={wanted} names no point at which the journal can be killed: NAME or NAME:N, and NAME"
                f" one of {', '.join(POINTS)}"
            )
        self._times_left = int(times or 1)
        self._process = os.getpid()

    def reached(self, point: str) -> None:
        if point == self._name:
            self._times_left -= 1
            if not self._times_left:
                os.kill(self._process, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)


def _behind(pieces: Sequence[bytes | memoryview], byte_count: int) -> Sequence[bytes | memoryview]:
    """What is left of the pieces when so many bytes are written."""
    for position, piece in enumerate(pieces):
        if byte_count < len(piece):
            return [memoryview(piece)[byte_count:], *pieces[position + 1 :]]
        byte_count -= len(piece)
    return []


_kill_point = _KillPoint(os.environ[KILL_POINT]) if os.environ.get(KILL_POINT) else None
