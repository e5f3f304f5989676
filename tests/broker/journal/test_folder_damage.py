"""What is broken in a data folder is refused with file and offset, and nothing in it is changed."""

from __future__ import annotations

import pytest

from broker.journal.failures import Damaged, FolderRefused
from broker.journal.folder import Folder
from labctl.simulate.crashes.disk import SimDisk
from tests.support.folders import ME, filled, opened, take_snapshot


def change(disk: SimDisk, path: str, offset: int) -> None:
    """One byte of a file becomes another."""
    data = bytearray(disk.read(path))
    data[offset] ^= 1
    disk.remove(path)
    disk.create(path).write([bytes(data)])


def test_damage_in_the_middle_is_refused_with_file_and_offset_and_nothing_is_changed() -> None:
    disk = SimDisk()
    folder = filled(disk, b"first", b"second")
    offset = disk.status("d/segment-00000001").byte_count
    folder.append(b"third")
    folder.sync()
    folder.append(b"fourth")
    folder.sync()
    folder.close()
    change(disk, "d/segment-00000001", offset + 26)
    before = disk.read("d/segment-00000001")
    folder = opened(disk)
    with pytest.raises(Damaged) as caught:
        list(folder.entries())
    assert str(caught.value) == (
        f"d/segment-00000001 is damaged at byte {offset}: entry 3 is broken, and entry 4 behind it is sound; bring the"
        " data folder back from a copy, or begin anew with an empty one"
    )
    assert disk.read("d/segment-00000001") == before
    folder.close()


def test_an_earlier_segment_may_not_be_torn() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a", b"b")
    folder.drop_snapshot(folder.begin_snapshot())
    folder.close()
    disk.open("d/segment-00000001").truncate(disk.status("d/segment-00000001").byte_count - 1)
    folder = opened(disk)
    with pytest.raises(
        Damaged, match=r"segment-00000001 is damaged at byte \d+: entry 2 is broken, and there are"
    ):
        list(folder.entries())


def test_an_earlier_segment_that_ends_too_early_does_not_fit_the_next() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    size = disk.status("d/segment-00000001").byte_count
    folder.append(b"b")
    folder.drop_snapshot(folder.begin_snapshot())
    folder.close()
    disk.open("d/segment-00000001").truncate(size)
    folder = opened(disk)
    with pytest.raises(
        Damaged, match="00000002 is damaged at byte 0: entry 2 was due, and it begins with entry 3"
    ):
        list(folder.entries())


@pytest.mark.parametrize("missing", [1, 2])
def test_a_missing_segment_is_damage(missing: int) -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    for _ in range(2):
        folder.drop_snapshot(folder.begin_snapshot())
    folder.close()
    disk.remove(f"d/segment-0000000{missing}")
    with pytest.raises(Damaged, match=f"d/segment-0000000{missing} is damaged at byte 0: it is missing"):
        opened(disk)


def test_the_segment_behind_a_snapshot_must_be_there() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    take_snapshot(folder, b"state")
    folder.close()
    disk.remove("d/segment-00000002")
    with pytest.raises(Damaged, match="d/segment-00000002 is damaged at byte 0: it is missing"):
        opened(disk)


def test_a_damaged_snapshot_is_refused_and_not_skipped() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    take_snapshot(folder, b"older")
    take_snapshot(folder, b"newer")
    folder.close()
    change(disk, "d/snapshot-00000003", disk.read("d/snapshot-00000003").index(b"newer"))
    folder = opened(disk)
    with pytest.raises(Damaged) as caught:
        folder.snapshot  # noqa: B018 - it is read here
    assert caught.value.file == "d/snapshot-00000003"


def test_nothing_old_is_removed_for_a_damaged_snapshot() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    number = folder.begin_snapshot()
    folder.write_snapshot(number, [b"state"])
    disk.rename("d/snapshot-00000002.new", "d/snapshot-00000002")
    disk.kill()
    change(disk, "d/snapshot-00000002", disk.read("d/snapshot-00000002").index(b"state"))
    before = sorted(disk.list("d"))
    with pytest.raises(Damaged, match="d/snapshot-00000002 is damaged"):
        opened(disk)
    assert sorted(disk.list("d")) == before


def test_a_file_of_another_folder_is_damage() -> None:
    disk, other = SimDisk(), SimDisk()
    filled(disk, b"a").close()
    Folder.open(other, "d", ME, "fsync", 6).close()
    disk.remove("d/segment-00000001")
    disk.create("d/segment-00000001").write([other.read("d/segment-00000001")])
    folder = opened(disk)
    with pytest.raises(Damaged, match="it was written for another data folder, or under another name"):
        list(folder.entries())


def test_a_file_that_cannot_be_read_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    take_snapshot(folder, b"state")
    folder.close()
    folder = opened(disk)

    def fail(path: str) -> bytes:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(disk, "read", fail)
    for use in (lambda: folder.snapshot, lambda: list(folder.entries())):
        with pytest.raises(FolderRefused, match="00002 cannot be used: the disk reports an error"):
            use()
