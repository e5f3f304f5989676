"""A log that does not grow for ever: what is full gets another name, and a new file takes its place.

Of `b1.jsonl` the file before is `b1.jsonl.1`, the one before that `b1.jsonl.2`; the oldest of so many is
overwritten. The descriptor stays the same, so a log that is the standard output of its process goes on there, and so
does its standard error where that is the same file. What is no file (a pipe, a terminal) is left alone.
"""

from __future__ import annotations

import contextlib
import os
import stat

FILES_KEPT = 3
"""Beside the one that is written."""
_STANDARD = (1, 2)


class Rotation:
    def __init__(self, fd: int, bytes_max: int | None) -> None:
        """`bytes_max`: of each file; None: it may grow."""
        self._fd = fd
        self._path = None if bytes_max is None else _path_of(fd)
        self._bytes_max = bytes_max or 0
        self._bytes = os.fstat(fd).st_size if self._path is not None else 0

    def has_room(self, count: int) -> bool:
        """For so many bytes more; an empty file has room for anything."""
        return self._path is None or not 0 < self._bytes > self._bytes_max - count

    def add(self, count: int) -> None:
        """So many bytes were written."""
        self._bytes += count

    def begin_anew(self) -> bool:
        """Whether there is a new file now. If there is not, the old one goes on until as much has come again."""
        assert self._path is not None, "what may grow is never full"
        self._bytes = 0
        try:
            self._begin_anew(self._path)
        except OSError:
            return False
        return True

    def _begin_anew(self, path: str) -> None:
        old = os.fstat(self._fd)
        if _is_at(path, old):  # nobody else, who shares it or keeps house here, was quicker
            for number in range(FILES_KEPT, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(path if number == 1 else f"{path}.{number - 1}", f"{path}.{number}")
        fresh = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, stat.S_IMODE(old.st_mode)
        )
        try:
            for fd in {self._fd, *_STANDARD}:
                with contextlib.suppress(OSError):  # closed
                    if os.path.samestat(os.fstat(fd), old):
                        os.dup2(fresh, fd, os.get_inheritable(fd))
        finally:
            os.close(fresh)


def _path_of(fd: int) -> str | None:
    """None if it is no file, or has no name any more."""
    try:
        path = os.readlink(f"/proc/self/fd/{fd}")
        found = os.fstat(fd)
    except OSError:
        return None
    return path if stat.S_ISREG(found.st_mode) and _is_at(path, found) else None


def _is_at(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), file)
    except OSError:
        return False
