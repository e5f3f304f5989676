"""One labctl at a time: a file that is locked while somebody works, and removed afterwards."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labctl.exits import LabError

_LOOK_AGAIN_S = 0.02


@contextmanager
def exclusive(path: Path, wait_s: float, busy: LabError) -> Iterator[None]:
    """Hold the lock at `path`; raises `busy` when somebody else still holds it after the wait."""
    handle = _lock(path, wait_s, busy)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def _lock(path: Path, wait_s: float, busy: LabError) -> int:
    deadline = time.monotonic() + wait_s
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _try_lock(handle) and _is_at(handle, path):
            return handle
        os.close(handle)
        if time.monotonic() > deadline:
            raise busy
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
