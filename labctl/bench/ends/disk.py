"""What the disk alone allows: appends that are synced, by nobody but a loop; and how often it is flushed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

PROBE_BYTES = 200
"""About what one message of a transaction is as an entry."""
FLUSHES = 15
"""The place of the flush requests in the figures of a block device (Documentation/block/stat.rst of Linux)."""


def sync_us(folder: Path, count: int = 200) -> float:
    """The median of an append of a small entry and its fdatasync."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        taken = []
        for _ in range(count):
            began = perf_counter()
            os.write(file.fileno(), b"x" * PROBE_BYTES)
            os.fdatasync(file.fileno())
            taken.append(perf_counter() - began)
        return 1e6 * median(taken)


def loop_rate(
    folder: Path, frames: Sequence[bytes], events_in_each: int, bytes_max: int = 128 << 20
) -> float:
    """Events a second of a loop that appends these frames and syncs, again and again."""
    data = b"".join(frames)
    rounds = max(20, min(2000, bytes_max // max(1, len(data))))
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        began = perf_counter()
        for _ in range(rounds):
            os.writev(file.fileno(), list(frames))
            os.fdatasync(file.fileno())
        return rounds * len(frames) * events_in_each / (perf_counter() - began)


def flushes(folder: Path) -> int | None:
    """How often the block device under this folder was told to flush so far, by anybody; None: nobody counts it."""
    device = folder.stat().st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text("ascii").split()
    except OSError:
        return None
    return int(fields[FLUSHES]) if len(fields) > FLUSHES else None


def read_s(paths: Sequence[Path]) -> float:
    """What it takes to read these files."""
    began = perf_counter()
    for path in paths:
        path.read_bytes()
    return perf_counter() - began
