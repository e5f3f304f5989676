"""The files of a data folder, written whole before they get their names: the beginning of a segment, a snapshot."""

from __future__ import annotations

from collections.abc import Iterable

from broker.journal import entries
from broker.journal.contents import UNFINISHED, segment_name, snapshot_name
from broker.journal.failures import Damaged
from broker.journal.files import Disk, File

_WRITE_BYTES = 1 << 20


def begin_segment(disk: Disk, path: str, owner: bytes, number: int, first: int) -> tuple[File, int]:
    """A segment without entries, which is certain to survive, and the seed of its entries."""
    header, seed = entries.encode_header(entries.SEGMENT, owner, number, first)
    final = f"{path}/{segment_name(number)}"
    file = disk.create(final + UNFINISHED)
    try:
        file.write([header])
        file.sync()
        disk.rename(final + UNFINISHED, final)
        disk.sync_folder(path)
    except OSError:
        file.close()
        raise
    return file, seed


def write_snapshot(
    disk: Disk, path: str, owner: bytes, number: int, first: int, pieces: Iterable[bytes]
) -> None:
    """Under a name that is not yet its own. In large writes, of which the last makes it complete."""
    file = disk.create(f"{path}/{snapshot_name(number)}{UNFINISHED}")
    waiting: list[bytes] = []
    byte_count = 0
    try:
        for piece in entries.encode_snapshot(owner, number, first, pieces):
            if byte_count >= _WRITE_BYTES:
                file.write(waiting)
                waiting, byte_count = [], 0
            waiting.append(piece)
            byte_count += len(piece)
        file.write(waiting[:-1])
        disk.reached("snapshot-half-written")
        file.write(waiting[-1:])
        file.sync()
    finally:
        file.close()
    disk.reached("snapshot-written")


def read_snapshot(disk: Disk, path: str, owner: bytes, number: int) -> bytes:
    file = f"{path}/{snapshot_name(number)}"
    data = disk.read(file)
    header = entries.decode_header(file, data, entries.SNAPSHOT)
    check_owner(file, header, owner, number)
    return entries.decode_snapshot(file, data, header)


def check_owner(file: str, header: entries.Header, owner: bytes, number: int) -> None:
    if (header.identity, header.number) != (owner, number):
        raise Damaged(file, 0, "it was written for another data folder, or under another name")
