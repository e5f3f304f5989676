"""What the journal asks of a disk, and the points at which it can be killed; no disk.

The disk of this machine is `broker.journal.disk`, the one of the simulator `labctl.simulate.crashes.disk`. Errors are
OSErrors as they come. Nothing is certain to survive the machine before it was synced: of a file what was written, of a
folder the names in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

POINTS = (
    "before-write",
    "after-write",
    "after-sync",
    "before-send",
    "snapshot-begun",
    "snapshot-half-written",
    "snapshot-written",
    "snapshot-renamed",
    "truncating",
    "truncated",
    "recovering",
)
"""Where a process can be killed by name; before-send is reached by whoever sends what stands on an entry, recovering by
whoever is given one again."""


class LockedError(Exception):
    """Another process holds the lock."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"locked by process {holder}")
        self.holder = holder
        """Its process id, as text."""


class Status(NamedTuple):
    inode: int
    byte_count: int
    changed_ns: int


class File(Protocol):
    """A file to whose end is written."""

    def write(self, pieces: Sequence[bytes]) -> None:
        """All of them; after an error anything from nothing to nearly all."""

    def truncate(self, byte_count: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    """Paths are text; folders below folders are nobody's business here."""

    def make_folder(self, path: str) -> None:
        """For its owner only, unless it is there; certain to survive."""

    def list(self, path: str) -> list[str]: ...

    def status(self, path: str) -> Status: ...

    def read(self, path: str) -> bytes: ...

    def create(self, path: str) -> File:
        """A file that is not there yet, for its owner only."""

    def open(self, path: str) -> File:
        """A file that is there."""

    def rename(self, path: str, new_path: str) -> None:
        """What has the new name loses it."""

    def remove(self, path: str) -> None: ...

    def sync_folder(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Raises LockedError; a lock ends with its process."""

    def reached(self, point: str) -> None:
        """One of `POINTS`."""
