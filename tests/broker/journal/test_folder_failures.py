"""A disk that fails ends the journal: with the reason, at once, for good, and without a lie about what is durable."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from broker.journal.failures import JournalFailed
from broker.journal.folder import Folder, Mode
from labctl.simulate.crashes.disk import SimDisk
from tests.support.folders import ME


def ready(mode: Mode = "fsync") -> tuple[SimDisk, Folder]:
    """With one entry that is durable, and one that waits."""
    disk = SimDisk()
    folder = Folder.open(disk, "d", ME, mode, 1)
    folder.append(b"durable")
    folder.sync()
    folder.append(b"waiting" * 100)
    return disk, folder


def recovered(disk: SimDisk) -> list[bytes]:
    folder = Folder.open(disk, "d", ME, "fsync", 2)
    return list(folder.entries())


def assert_dead(disk: SimDisk, folder: Folder, sentence: str) -> None:
    """Every use says the same, and nothing is tried again."""
    before = disk.operations
    uses: tuple[Callable[[], object], ...] = (
        lambda: folder.append(b"x"),
        folder.sync,
        folder.begin_snapshot,
        lambda: folder.adopt_snapshot(2),
        lambda: folder.drop_snapshot(2),
        folder.sync,
    )
    for use in uses:
        with pytest.raises(JournalFailed) as caught:
            use()
        assert str(caught.value) == sentence
    assert disk.operations == before
    assert folder.durable == 1
    folder.close()


def test_a_full_disk_stops_the_journal_and_what_was_acknowledged_is_there_afterwards() -> None:
    disk, folder = ready()
    disk.fail(disk.operations + 1, errno.ENOSPC)
    with pytest.raises(JournalFailed) as caught:
        folder.sync()
    sentence = (
        "the journal in d has stopped behind entry 1, and nothing more is accepted: the disk is full (No space left on"
        " device): make room, and start again"
    )
    assert str(caught.value) == sentence
    assert_dead(disk, folder, sentence)
    assert disk.status("d/segment-00000001").byte_count > 300, "half of it was written"
    assert recovered(disk) == [b"durable"]


def test_a_failed_sync_is_not_tried_again() -> None:
    """A second one would report success, and the entry would not be there."""
    disk, folder = ready()
    disk.fail(disk.operations + 2, errno.EIO)
    with pytest.raises(JournalFailed) as caught:
        folder.sync()
    sentence = (
        "the journal in d has stopped behind entry 1, and nothing more is accepted: the disk reports an error"
        " (Input/output error): find out what is wrong with it, and start again"
    )
    assert str(caught.value) == sentence
    assert_dead(disk, folder, sentence)
    disk.crash(Random(1))
    assert recovered(disk) == [b"durable"]


def fail_in_snapshot(step: int, mode: Mode, is_adopted: bool) -> bool:
    """That operation of beginning or adopting a snapshot fails, and then the power; False if there is no such step."""
    disk, folder = ready(mode)
    folder.sync()
    number = 0
    if is_adopted:
        number = folder.begin_snapshot()
        folder.write_snapshot(number, [b"state"])
    disk.fail(disk.operations + step, errno.EIO)
    try:
        if is_adopted:
            folder.adopt_snapshot(number)
        else:
            folder.begin_snapshot()
    except JournalFailed:
        with pytest.raises(JournalFailed, match="behind entry 2"):
            folder.append(b"x")
        folder.close()
        if mode == "fsync" or is_adopted:
            disk.crash(Random(step))
        else:
            disk.kill()
        folder = Folder.open(disk, "d", ME, "fsync", 2)
        recovered = folder.snapshot, list(folder.entries())
        assert recovered in [(None, [b"durable", b"waiting" * 100]), (b"state", [])]
        return True
    return False


@pytest.mark.parametrize(("mode", "steps"), [("fsync", 5), ("os", 6)])
def test_a_failure_while_a_snapshot_is_begun_loses_nothing(mode: Mode, steps: int) -> None:
    assert [fail_in_snapshot(step, mode, is_adopted=False) for step in range(1, steps + 2)] == [
        *[True] * steps,
        False,
    ]


@pytest.mark.parametrize("mode", ["fsync", "os"])
def test_a_failure_while_a_snapshot_is_adopted_loses_nothing(mode: Mode) -> None:
    assert [fail_in_snapshot(step, mode, is_adopted=True) for step in range(1, 6)] == [*[True] * 4, False]


def test_what_may_not_be_written_says_so() -> None:
    disk, folder = ready()
    disk.fail(disk.operations + 1, errno.EROFS)
    with pytest.raises(JournalFailed, match=r"it may not be written \(Read-only file system\): see to it"):
        folder.sync()
