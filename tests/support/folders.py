"""Data folders on simulated disks."""

from __future__ import annotations

from broker.journal.folder import Folder, Mode
from broker.journal.identity import Identity
from labctl.simulate.crashes.disk import SimDisk

ME = Identity("broker", "b1", "three brokers", 1)


def opened(disk: SimDisk, mode: Mode = "fsync", life: int = 5) -> Folder:
    return Folder.open(disk, "d", ME, mode, life)


def replayed(disk: SimDisk, mode: Mode = "fsync") -> tuple[Folder, list[bytes]]:
    folder = opened(disk, mode)
    return folder, list(folder.entries())


def filled(disk: SimDisk, *entries: bytes) -> Folder:
    """Each entry synced on its own."""
    folder, _ = replayed(disk)
    for entry in entries:
        folder.append(entry)
        folder.sync()
    return folder


def take_snapshot(folder: Folder, *pieces: bytes) -> int:
    number = folder.begin_snapshot()
    folder.write_snapshot(number, pieces)
    folder.adopt_snapshot(number)
    return number
