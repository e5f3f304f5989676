"""A disk in memory that loses what was not synced; every choice comes from a generator with a seed.

When its machine crashes, of what was written to a file since its last sync an arbitrary beginning stays, cut at any
byte, and there may be zeroes where a page did not reach the disk before later ones did. Of the names that
were made, changed and removed in a folder since that was last synced, some are and some are not, whatever their order.
When only a process is killed, nothing is lost but its locks. Folders themselves are there for ever.

Operations that change something are counted. One of them can fail, or be the one before which everything stops.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from random import Random

from broker.journal.files import File, Lock, LockedError, Status

PAGE_BYTES = 4096

_HOLE = 0.3
"""How often something in the middle is missing, too."""


class Crashed(BaseException):
    """The machine has stopped; no handler of ordinary errors sees it."""


class _Inode:
    """A file by whatever name."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.content = bytearray()
        """As it is read."""
        self.durable = bytearray()
        self.unsynced: list[bytes | int] = []
        """Writes and truncations since the last sync."""
        self.changed = 0

    def write(self, data: bytes) -> None:
        self.content += data
        self.unsynced.append(data)

    def truncate(self, byte_count: int) -> None:
        del self.content[byte_count:]
        self.unsynced.append(byte_count)

    def sync(self) -> None:
        for change in self.unsynced:
            _carry_out(self.durable, change)
        self.unsynced.clear()

    def fail_to_sync(self) -> None:
        """As on Linux: what could not be written counts as written from now on, and a later sync reports success."""
        self.unsynced = [
            change if isinstance(change, int) else bytes(len(change)) for change in self.unsynced
        ]

    def crash(self, random: Random) -> None:
        certain = len(self.durable)
        survivors = self.unsynced[: random.randint(0, len(self.unsynced))]
        for change in survivors:
            certain = min(certain, change) if isinstance(change, int) else certain
            _carry_out(self.durable, change)
        torn = self.unsynced[len(survivors)] if len(survivors) < len(self.unsynced) else 0
        if isinstance(torn, bytes):
            self.durable += torn[: random.randint(0, len(torn))]
        if len(self.durable) > certain and random.random() < _HOLE:
            start = random.randrange(certain, len(self.durable))
            end = min(len(self.durable), max(start + 1, start // PAGE_BYTES * PAGE_BYTES + PAGE_BYTES))
            self.durable[start:end] = bytes(end - start)
        self.content = bytearray(self.durable)
        self.unsynced.clear()


def _carry_out(content: bytearray, change: bytes | int) -> None:
    if isinstance(change, int):
        del content[change:]
    else:
        content += change


class _Names:
    """The names in a folder."""

    def __init__(self) -> None:
        self.now: dict[str, _Inode] = {}
        self.durable: dict[str, _Inode] = {}
        self.unsynced: list[tuple[str | None, str | None, _Inode]] = []
        """Old name, new name, and what had the one and has the other."""

    def change(self, old: str | None, new: str | None, inode: _Inode) -> None:
        _rename(self.now, old, new, inode)
        self.unsynced.append((old, new, inode))

    def sync(self) -> None:
        self.durable = dict(self.now)
        self.unsynced.clear()

    def crash(self, random: Random) -> None:
        for old, new, inode in self.unsynced:
            if random.random() < 0.5:
                _rename(self.durable, old, new, inode)
        self.now = dict(self.durable)
        self.unsynced.clear()


def _rename(names: dict[str, _Inode], old: str | None, new: str | None, inode: _Inode) -> None:
    if old is not None:
        names.pop(old, None)
    if new is not None:
        names[new] = inode


class SimDisk:
    def __init__(self) -> None:
        self.operations = 0
        """So many have been carried out that changed something."""
        self.stop_before: int | None = None
        """The operation with this number raises Crashed, and so does each behind it; the first is 1."""
        self.has_stopped = False
        self._failing: dict[int, int] = {}
        self._folders: dict[str, _Names] = {}
        self._inodes = 0
        self._locked: dict[str, _SimLock] = {}
        self._life = 0
        """Files and locks of an earlier one are dead."""

    def fail(self, operation: int, error: int) -> None:
        """The operation with this number raises an OSError with this errno; a write is carried out to half."""
        self._failing[operation] = error

    @property
    def is_to_fail(self) -> bool:
        return any(number > self.operations for number in self._failing)

    def fail_no_more(self) -> None:
        self._failing.clear()

    def crash(self, random: Random) -> None:
        """The machine is started again."""
        self.kill()
        for names in self._folders.values():
            inodes = {id(inode): inode for inode in (*names.durable.values(), *names.now.values())}
            inodes |= {id(inode): inode for _, _, inode in names.unsynced}
            names.crash(random)
            for inode in inodes.values():
                inode.crash(random)

    def kill(self) -> None:
        """The process that used the disk is gone; nothing was lost."""
        self.stop_before = None
        self.has_stopped = False
        self._failing.clear()
        self._locked.clear()
        self._life += 1

    def make_folder(self, path: str) -> None:
        self._folders.setdefault(path, _Names())

    def list(self, path: str) -> list[str]:
        return list(self._names(path).now)

    def status(self, path: str) -> Status:
        inode = self._inode(path)
        return Status(inode.number, len(inode.content), inode.changed)

    def read(self, path: str) -> bytes:
        return bytes(self._inode(path).content)

    def create(self, path: str) -> File:
        folder, _, name = path.rpartition("/")
        names = self._names(folder)
        if name in names.now:
            raise _error(errno.EEXIST, path)
        self.step(path)
        self._inodes += 1
        inode = _Inode(self._inodes)
        names.change(None, name, inode)
        return _SimFile(self, self._life, path, inode)

    def open(self, path: str) -> File:
        return _SimFile(self, self._life, path, self._inode(path))

    def rename(self, path: str, new_path: str) -> None:
        folder, _, name = path.rpartition("/")
        inode = self._inode(path)
        self.step(path)
        self._names(folder).change(name, new_path.rpartition("/")[2], inode)

    def remove(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        inode = self._inode(path)
        self.step(path)
        self._names(folder).change(name, None, inode)

    def sync_folder(self, path: str) -> None:
        self.step(path)
        self._names(path).sync()

    def lock(self, path: str) -> Lock:
        if path in self._locked:
            raise LockedError("1")
        lock = self._locked[path] = _SimLock(self._locked, path)
        return lock

    def reached(self, point: str) -> None:
        """Simulated processes stop at operations."""

    def step(self, path: str, on_error: Callable[[], None] | None = None) -> int:
        """One operation more, if it is not the one that fails or before which everything stops."""
        number = self.operations + 1
        if self.stop_before is not None and number >= self.stop_before:
            self.has_stopped = True
            raise Crashed(f"in front of operation {number}, at {path}")
        self.operations = number
        if number in self._failing:
            if on_error is not None:
                on_error()
            raise _error(self._failing[number], path)
        return number

    def is_alive(self, life: int) -> bool:
        return life == self._life

    def _names(self, folder: str) -> _Names:
        if folder not in self._folders:
            raise _error(errno.ENOENT, folder)
        return self._folders[folder]

    def _inode(self, path: str) -> _Inode:
        folder, _, name = path.rpartition("/")
        names = self._names(folder).now
        if name not in names:
            raise _error(errno.ENOENT, path)
        return names[name]


class _SimFile:
    def __init__(self, disk: SimDisk, life: int, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._life = life
        self._path = path
        self._inode = inode

    def write(self, pieces: Sequence[bytes]) -> None:
        data = b"".join(pieces)
        self._inode.changed = self._step(lambda: self._inode.write(data[: len(data) // 2]))
        self._inode.write(data)

    def truncate(self, byte_count: int) -> None:
        self._inode.changed = self._step()
        self._inode.truncate(byte_count)

    def sync(self) -> None:
        self._step(self._inode.fail_to_sync)
        self._inode.sync()

    def close(self) -> None:
        self._life = -1

    def _step(self, on_error: Callable[[], None] | None = None) -> int:
        if not self._disk.is_alive(self._life):
            raise _error(errno.EBADF, self._path)
        return self._disk.step(self._path, on_error)


class _SimLock:
    def __init__(self, locked: dict[str, _SimLock], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        if self._locked.get(self._path) is self:
            del self._locked[self._path]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
