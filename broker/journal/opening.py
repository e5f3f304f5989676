"""Opening a data folder: refused, made, or tidied of what a crash has left; what is to be replayed."""

from __future__ import annotations

from typing import NamedTuple

from broker.journal import entries
from broker.journal.contents import IDENTITY, Contents, read_names, segment_name, snapshot_name
from broker.journal.failures import Damaged, FolderRefused, describe
from broker.journal.files import Disk, Lock
from broker.journal.identity import FolderOwner, Identity, hold, make_owner, read_owner, write_owner
from broker.journal.making import begin_segment, read_snapshot


class Opened(NamedTuple):
    owner: FolderOwner
    lock: Lock
    is_new: bool
    snapshot: int | None
    """The number of the newest."""
    segments: list[int]
    """Those behind it."""


def open_folder(disk: Disk, path: str, identity: Identity, life: int) -> Opened:
    try:
        disk.make_folder(path)
        if read_owner(disk, path, identity) is None:
            _refuse_strangers(disk, path)  # before there is a lock in it
        lock = hold(disk, path)
        try:
            return _open(disk, path, identity, life, lock)
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        raise FolderRefused(f"the data folder {path} cannot be used: {describe(error)}") from None


def _open(disk: Disk, path: str, identity: Identity, life: int, lock: Lock) -> Opened:
    owner = read_owner(disk, path, identity)
    if owner is None:
        _refuse_strangers(disk, path)  # somebody may have been quicker
    contents = read_names(disk.list(path))
    snapshot = contents.snapshots[-1] if contents.snapshots else None
    old = superfluous(contents, snapshot or 0)
    segments = [number for number in contents.segments if number >= (snapshot or 1)]
    if owner is not None:
        for due in range(snapshot or 1, max(segments, default=snapshot or 1) + 1):
            if due not in segments:
                raise Damaged(f"{path}/{segment_name(due)}", 0, "it is missing")
        if snapshot is not None and old:
            read_snapshot(disk, path, owner.in_files, snapshot)  # while there still is something else
    disk.sync_folder(path)  # a killed process may have left its last names unsynced
    for name in [*contents.unfinished, *old]:
        disk.remove(f"{path}/{name}")
    disk.sync_folder(path)
    if owner is None:
        return Opened(_make(disk, path, contents, make_owner(identity, life)), lock, True, None, [1])
    if owner.inode is None:
        write_owner(disk, path, owner)
    return Opened(owner, lock, False, snapshot, segments)


def _make(disk: Disk, path: str, contents: Contents, owner: FolderOwner) -> FolderOwner:
    """The identity comes last: where it is, the first segment is too."""
    for number in contents.segments:
        disk.remove(f"{path}/{segment_name(number)}")
    file, _ = begin_segment(disk, path, owner.in_files, 1, 1)
    file.close()
    write_owner(disk, path, owner)
    return owner


def _refuse_strangers(disk: Disk, path: str) -> None:
    """Without an identity a folder is empty, but for what a crash has left that came while it was being made."""
    contents = read_names(disk.list(path))
    if contents.strange:
        raise FolderRefused(
            f"{path} is no data folder, and it is not empty ({contents.strange[0]} is in it): name another folder"
        )
    if contents.snapshots or any(not _is_untouched(disk, path, number) for number in contents.segments):
        raise FolderRefused(
            f"the data folder {path} holds a journal, but its file {IDENTITY} is missing: bring it back from a copy"
        )


def _is_untouched(disk: Disk, path: str, number: int) -> bool:
    file = f"{path}/{segment_name(number)}"
    data = disk.read(file)
    return number == 1 and entries.decode_header(file, data, entries.SEGMENT).size == len(data)


def superfluous(contents: Contents, snapshot: int) -> list[str]:
    """The files in front of a snapshot, the oldest first."""
    return [
        *(segment_name(number) for number in contents.segments if number < snapshot),
        *(snapshot_name(number) for number in contents.snapshots if number < snapshot),
    ]
