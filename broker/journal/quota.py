"""A disk that is full sooner than it is, so that a full disk can be tried without filling one.

The limit is for the bytes of all files in a folder together. It may be given, or stand as a number in a file `quota` in
that folder, which is looked at before each write; what is no number there is no limit. As on a real disk, the
write that does not fit is carried out as far as it does.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from broker.journal.contents import QUOTA
from broker.journal.files import Disk, File, Status

_FULL = "No space left on device"


class Quota:
    def __init__(self, disk: Disk, byte_count_max: int | None = None) -> None:
        self.disk = disk
        self.byte_count_max = byte_count_max
        """May be changed at any time; None: no limit."""
        self.make_folder = disk.make_folder
        self.list = disk.list
        self.status = disk.status
        self.read = disk.read
        self.rename = disk.rename
        self.remove = disk.remove
        self.sync_folder = disk.sync_folder
        self.lock = disk.lock
        self.reached = disk.reached
        self._limits: dict[str, tuple[Status, int | None]] = {}
        """What the file in each folder said when it was last changed."""

    def create(self, path: str) -> File:
        return _LimitedFile(self, path, self.disk.create(path))

    def open(self, path: str) -> File:
        return _LimitedFile(self, path, self.disk.open(path))

    def room(self, folder: str) -> int | None:
        """How many bytes may still be written there; None: as many as you like."""
        limits = [limit for limit in (self.byte_count_max, self._limit_in(folder)) if limit is not None]
        if not limits:
            return None
        return max(0, min(limits) - self._used(folder))

    def _limit_in(self, folder: str) -> int | None:
        path = f"{folder}/{QUOTA}"
        try:
            status = self.disk.status(path)
            known = self._limits.get(folder)
            if known is None or known[0] != status:
                text = self.disk.read(path).strip()
                known = self._limits[folder] = status, int(text) if text.isdigit() else None
        except FileNotFoundError:
            return None
        return known[1]

    def _used(self, folder: str) -> int:
        """Looked up anew each time: a snapshot is written by another process."""
        used = 0
        for name in self.disk.list(folder):
            if name != QUOTA:
                try:
                    used += self.disk.status(f"{folder}/{name}").byte_count
                except FileNotFoundError:
                    continue
        return used


class _LimitedFile:
    def __init__(self, quota: Quota, path: str, file: File) -> None:
        self._quota = quota
        self._path = path
        self._folder = path.rpartition("/")[0]
        self._file = file
        self.truncate = file.truncate
        self.sync = file.sync
        self.close = file.close

    def write(self, pieces: Sequence[bytes]) -> None:
        room = self._quota.room(self._folder)
        if room is None or room >= sum(map(len, pieces)):
            self._file.write(pieces)
            return
        fitting = b"".join(pieces)[:room]
        if fitting:
            self._file.write([fitting])
        raise OSError(errno.ENOSPC, _FULL, self._path)
