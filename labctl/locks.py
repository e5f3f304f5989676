"""One labctl at a time: a file that is locked, and names its holder, while somebody works, and is removed afterwards.

Standard library only: it also runs on hosts.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.exits import LabError

_LOOK_AGAIN_S = 0.02
_PID_BYTES = 32


class LockError(LabError):
    """There is no place for the file of a lock."""


@contextmanager
def exclusive(path: Path, wait_s: float, busy: Callable[[str], LabError]) -> Iterator[None]:
    """Hold the lock at `path`; when somebody else still holds it after the wait, raises `busy` of their pid."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = _lock(path, wait_s, busy)
    except OSError as error:
        raise LockError(
            f"the lock {path} cannot be made: {error.strerror}; see to it that you may write there"
        ) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _lock(path: Path, wait_s: float, busy: Callable[[str], LabError]) -> int:
    deadline = time.monotonic() + wait_s
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _try_lock(handle):
            if _is_at(handle, path):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
                return handle
            os.close(handle)
            continue
        holder = os.pread(handle, _PID_BYTES, 0).decode(errors="replace").strip()
        os.close(handle)
        if time.monotonic() > deadline:
            raise busy(holder or "unknown")
        time.sleep(_LOOK_AGAIN_S)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    """False when the holder before us has removed the file that we have just locked."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
