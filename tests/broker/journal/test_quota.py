"""A disk that is full sooner than it is behaves as a full one does, and can be emptied again."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.journal.disk import RealDisk
from broker.journal.failures import JournalFailed, SnapshotFailed
from broker.journal.files import Disk, File
from broker.journal.folder import Folder
from broker.journal.quota import Quota
from labctl.simulate.crashes.disk import SimDisk
from tests.support.folders import ME


def small_disk() -> tuple[Quota, File]:
    disk: Disk = SimDisk()
    quota = Quota(disk)
    quota.make_folder("d")
    return quota, quota.create("d/f")


def test_without_a_limit_everything_fits() -> None:
    quota, file = small_disk()
    file.write([b"x" * 1_000_000])
    assert quota.room("d") is None


def test_a_write_that_does_not_fit_is_carried_out_as_far_as_it_does() -> None:
    quota, file = small_disk()
    quota.byte_count_max = 10
    file.write([b"1234"])
    with pytest.raises(OSError, match="No space left on device") as caught:
        file.write([b"56", b"7890", b"ab"])
    assert (caught.value.errno, caught.value.filename) == (28, "d/f")
    assert quota.read("d/f") == b"1234567890"
    with pytest.raises(OSError, match="No space left on device"):
        file.write([b"x"])
    file.sync()


def test_the_limit_is_for_all_files_together_and_may_change_while_it_runs() -> None:
    quota, file = small_disk()
    file.write([b"1234"])
    quota.create("d/g").write([b"12"])
    quota.byte_count_max = 8
    file.write([b"56"])
    with pytest.raises(OSError, match="No space"):
        file.write([b"7"])
    quota.remove("d/g")
    file.write([b"7"])
    quota.byte_count_max = 100
    file.write([b"8" * 50])


def test_the_limit_may_stand_in_a_file_in_the_folder(tmp_path: Path) -> None:
    quota = Quota(RealDisk())
    file = quota.create(f"{tmp_path}/f")
    file.write([b"12"])
    limit = tmp_path / "quota"
    limit.write_text("4\n")
    file.write([b"34"])
    with pytest.raises(OSError, match="No space"):
        file.write([b"5"])
    limit.write_text("more than a number")
    file.write([b"5"])
    limit.write_text("0")
    with pytest.raises(OSError, match="No space"):
        file.write([b"6"])
    limit.unlink()
    file.write([b"6"])
    assert (tmp_path / "f").read_bytes() == b"123456"
    file.close()


def test_the_smaller_of_two_limits_counts() -> None:
    quota, _ = small_disk()
    quota.create("d/quota").write([b"7"])
    quota.byte_count_max = 10
    assert quota.room("d") == 7
    quota.byte_count_max = 5
    assert quota.room("d") == 5


def test_a_journal_on_a_full_disk_stops_and_goes_on_where_it_was_when_there_is_room(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    folder = Folder.open(Quota(RealDisk()), path, ME, "fsync", 1)
    assert folder.append(b"before") == folder.sync()
    (tmp_path / "data" / "quota").write_text("0")
    folder.append(b"too much")
    with pytest.raises(JournalFailed, match=r"the disk is full \(No space left on device\)"):
        folder.sync()
    folder.close()
    (tmp_path / "data" / "quota").unlink()
    folder = Folder.open(Quota(RealDisk()), path, ME, "fsync", 1)
    assert list(folder.entries()) == [b"before"]
    assert folder.append(b"after") == folder.sync() == 2
    folder.close()


def test_a_snapshot_that_finds_no_room_does_not_stop_the_journal() -> None:
    quota = Quota(SimDisk())
    folder = Folder.open(quota, "d", ME, "fsync", 1)
    number = folder.begin_snapshot()
    quota.byte_count_max = 5000
    with pytest.raises(SnapshotFailed, match="the disk is full"):
        folder.write_snapshot(number, [b"x" * 10_000])
    folder.drop_snapshot(number)
    folder.append(b"x" * 1000)
    assert folder.sync() == 1
