"""A data folder: open, replay, append, sync, snapshots.

    identity             whose it is
    lock                 held by the process that uses it
    segment-00000001     entries, and those behind them in the segments with the next numbers
    snapshot-00000003    the state that the entries in front of segment 3 have led to

Who opens a folder takes its snapshot, if there is one, and then runs through `entries()` to the end; only then more
can be appended. What `sync` says is durable survives the process, and in the mode `fsync` the machine too. In the
mode `os` only what was replayed, or stands in front of a snapshot that was begun, is certain to survive the machine;
if that loses entries and keeps later ones, the folder is damaged. Snapshots and names are synced in both modes.

A snapshot is taken in steps, so that a forked process can write it while more is appended: `begin_snapshot` here,
`let_go` and `write_snapshot` there, then `adopt_snapshot` or `drop_snapshot` here.

A folder is for one thread. Where the disk fails, nothing is tried again: who cannot say what a failed write or sync has
left can promise nothing any more. Who starts anew reads what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from broker.journal.contents import UNFINISHED, read_names, segment_name, snapshot_name
from broker.journal.entries import SEGMENT, Header, Scan, decode_header, encode, scan
from broker.journal.failures import Damaged, FolderRefused, JournalFailed, SnapshotFailed, describe
from broker.journal.files import Disk, File
from broker.journal.identity import Identity
from broker.journal.making import begin_segment, check_owner, read_snapshot, write_snapshot
from broker.journal.opening import Opened, open_folder, superfluous

Mode = Literal["fsync", "os"]
"""Where nothing is durable there is no folder."""

REMOVALS_MAX = 64
"""What a snapshot has made superfluous is removed with it, but at most so many files; the rest with the next."""


class _Place(NamedTuple):
    """How far the journal had come when a snapshot was begun."""

    snapshot: int
    newest: int
    byte_count: int


class Folder:
    def __init__(self, disk: Disk, path: str, opened: Opened, mode: Mode) -> None:
        """See `open`."""
        self.path = path
        self.mode: Mode = mode
        self.is_new = opened.is_new
        self.life = opened.owner.life
        """What the folder was given when it was made."""
        self.newest = 0
        """Number of the newest entry; the first is 1."""
        self.durable = 0
        """Number of the newest that is durable; so are all before it."""
        self.syncs = 0
        """How often entries were synced."""
        self._disk = disk
        self._owner = opened.owner.in_files
        self._lock = opened.lock
        self._snapshot = opened.snapshot
        self._segments = opened.segments
        self._file: File | None = None
        """The newest segment, as soon as there can be more entries."""
        self._seed = 0
        self._buffer: list[bytes] = []
        self._byte_count = 0
        """Of all entries since the folder was opened, the replayed ones included."""
        self._taken = _Place(opened.snapshot or 0, 0, 0)
        """The newest snapshot."""
        self._begun: _Place | None = None
        """The one that is being taken."""
        self._failure: str | None = None

    @classmethod
    def open(cls, disk: Disk, path: str, identity: Identity, mode: Mode, life: int) -> Folder:
        """Raises FolderRefused; `life` is for a folder that is made now."""
        folder = cls(disk, path, open_folder(disk, path, identity, life), mode)
        if folder.is_new:
            for _ in folder.entries():
                raise AssertionError("a new folder has no entries")
        return folder

    @property
    def snapshot(self) -> bytes | None:
        """The newest; it is read anew each time. Raises FolderRefused where it is damaged."""
        if self._snapshot is None:
            return None
        try:
            return read_snapshot(self._disk, self.path, self._owner, self._snapshot)
        except OSError as error:
            raise self._refused(snapshot_name(self._snapshot), error) from None

    @property
    def bytes_behind_snapshot(self) -> int:
        """Of the entries that must be replayed."""
        return self._byte_count - self._taken.byte_count

    @property
    def entries_behind_snapshot(self) -> int:
        return self.newest - self._taken.newest

    def entries(self) -> Iterator[bytes]:
        """Those behind the snapshot, once; then there can be more. Raises FolderRefused where one is damaged."""
        due = None if self._snapshot is not None else 1
        for position, number in enumerate(self._segments, 1):
            try:
                header, found = self._read_segment(number, is_last=position == len(self._segments))
            except OSError as error:
                raise self._refused(segment_name(number), error) from None
            if due is None:
                self.newest = header.first - 1
                self._taken = self._taken._replace(newest=self.newest)
            elif header.first != due:
                reason = f"entry {due} was due, and it begins with entry {header.first}"
                raise Damaged(f"{self.path}/{segment_name(number)}", 0, reason)
            yield from found.entries
            self.newest += len(found.entries)
            self._byte_count += found.end - header.size
            due = self.newest + 1
            if position == len(self._segments):
                try:
                    self._go_on_behind(number, header, found)
                except OSError as error:
                    raise self._refused(segment_name(number), error) from None

    def append(self, *pieces: bytes) -> int:
        """One entry, which waits for `sync`; its number."""
        if self._file is None or self._failure is not None:
            raise self._unusable()
        number = self.newest + 1
        header = encode(number, pieces, self._seed, number - self.durable)
        self._buffer.append(header)
        self._buffer += pieces
        self.newest = number
        self._byte_count += len(header) + sum(map(len, pieces))
        return number

    def sync(self) -> int:
        """Write what waits, all at once; the number of the newest entry that is durable now."""
        file = self._usable()
        if not self._buffer:
            return self.durable
        pieces, self._buffer = self._buffer, []
        disk = self._disk
        try:
            disk.reached("before-write")
            file.write(pieces)
            disk.reached("after-write")
            if self.mode == "fsync":
                file.sync()
                self.syncs += 1
                disk.reached("after-sync")
        except OSError as error:
            raise self._failed(error) from None
        self.durable = self.newest
        return self.durable

    def begin_snapshot(self) -> int:
        """Make all entries durable; the snapshot stands for them, and what comes goes into a new segment."""
        if self._begun is not None:
            raise RuntimeError(f"snapshot {self._begun.snapshot} is still being taken")
        self.sync()
        file = self._usable()
        number = self._segments[-1] + 1
        try:
            if self.mode == "os":  # the next segment must not survive without this one
                file.sync()
                self.syncs += 1
            self._file, self._seed = begin_segment(
                self._disk, self.path, self._owner, number, self.newest + 1
            )
            file.close()
        except OSError as error:
            raise self._failed(error) from None
        self._segments.append(number)
        self._begun = _Place(number, self.newest, self._byte_count)
        self._disk.reached("snapshot-begun")
        return number

    def let_go(self) -> None:
        """In a forked process, before it writes a snapshot: it must not hold the folder when its parent has died."""
        self._lock.release()
        if self._file is not None:
            self._file.close()

    def write_snapshot(self, number: int, pieces: Iterable[bytes]) -> None:
        """The content; touches nothing but a file of its own. Raises SnapshotFailed."""
        begun = self._begun_as(number)
        try:
            write_snapshot(self._disk, self.path, self._owner, number, begun.newest + 1, pieces)
        except OSError as error:
            raise SnapshotFailed(
                f"{self.path}/{snapshot_name(number)} cannot be written: {describe(error)}"
            ) from None

    def adopt_snapshot(self, number: int) -> None:
        """It is written: from now on it stands for all in front of it, which is removed."""
        self._usable()
        begun = self._begun_as(number)
        final = f"{self.path}/{snapshot_name(number)}"
        disk = self._disk
        try:
            disk.rename(final + UNFINISHED, final)
            disk.reached("snapshot-renamed")
            disk.sync_folder(self.path)
            for name in superfluous(read_names(disk.list(self.path)), number)[:REMOVALS_MAX]:
                disk.reached("truncating")
                disk.remove(f"{self.path}/{name}")
            disk.sync_folder(self.path)
            disk.reached("truncated")
        except OSError as error:
            raise self._failed(error) from None
        self._snapshot, self._taken, self._begun = number, begun, None
        self._segments = [segment for segment in self._segments if segment >= number]

    def drop_snapshot(self, number: int) -> None:
        """It could not be written: the one before stays the newest."""
        self._usable()
        self._begun_as(number)
        name = f"{snapshot_name(number)}{UNFINISHED}"
        try:
            if name in self._disk.list(self.path):
                self._disk.remove(f"{self.path}/{name}")
        except OSError as error:
            raise self._failed(error) from None
        self._begun = None

    def close(self) -> None:
        """What waits for `sync` is given up."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.release()

    def _read_segment(self, number: int, is_last: bool) -> tuple[Header, Scan]:
        path = f"{self.path}/{segment_name(number)}"
        data = self._disk.read(path)
        header = decode_header(path, data, SEGMENT)
        check_owner(path, header, self._owner, number)
        return header, scan(path, data, header, is_last)

    def _go_on_behind(self, number: int, header: Header, found: Scan) -> None:
        """What was replayed becomes durable, and what is torn goes, before anything more is written."""
        file = self._disk.open(f"{self.path}/{segment_name(number)}")
        try:
            if found.is_torn:
                file.truncate(found.end)
            file.sync()  # a killed process may have left entries that were written and not synced
        except OSError:
            file.close()
            raise
        self._file, self._seed, self.durable = file, header.seed, self.newest

    def _begun_as(self, number: int) -> _Place:
        if self._begun is None or self._begun.snapshot != number:
            raise RuntimeError(f"snapshot {number} is not being taken")
        return self._begun

    def _usable(self) -> File:
        if self._file is None or self._failure is not None:
            raise self._unusable()
        return self._file

    def _unusable(self) -> Exception:
        if self._failure is not None:
            return JournalFailed(self._failure)
        return RuntimeError(
            f"the data folder {self.path} is closed, or its entries have not been replayed yet"
        )

    def _failed(self, error: OSError) -> JournalFailed:
        self._failure = (
            f"the journal in {self.path} has stopped behind entry {self.durable}, and nothing more is accepted:"
            f" {describe(error)}"
        )
        return JournalFailed(self._failure)

    def _refused(self, name: str, error: OSError) -> FolderRefused:
        return FolderRefused(f"{self.path}/{name} cannot be used: {describe(error)}")
