"""The simulated disk: what was synced is certain, and everything that was not can be lost in every way."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from broker.journal.files import LockedError
from labctl.simulate.crashes.disk import PAGE_BYTES, Crashed, SimDisk

SEEDS = range(300)


def disk_with(path: str, *synced: bytes) -> SimDisk:
    disk = SimDisk()
    disk.make_folder("d")
    file = disk.create(path)
    file.write(synced)
    file.sync()
    disk.sync_folder("d")
    return disk


def after_crashes(prepare: Callable[[], SimDisk], path: str) -> set[bytes]:
    """What the file can hold after a crash."""
    found = set()
    for seed in SEEDS:
        disk = prepare()
        disk.crash(Random(seed))
        found.add(disk.read(path))
    return found


def test_what_is_written_can_be_read_whether_it_was_synced_or_not() -> None:
    disk = disk_with("d/f", b"a", b"b")
    disk.open("d/f").write([b"c"])
    assert disk.read("d/f") == b"abc"
    assert disk.status("d/f").byte_count == 3
    assert disk.list("d") == ["f"]


def test_what_was_synced_survives_a_crash() -> None:
    assert after_crashes(lambda: disk_with("d/f", b"a", b"b"), "d/f") == {b"ab"}


def test_of_unsynced_writes_any_beginning_survives_cut_at_any_byte_or_with_a_hole() -> None:
    def prepare() -> SimDisk:
        disk = disk_with("d/f", b"ab")
        file = disk.open("d/f")
        file.write([b"c", b"d"])
        file.write([b"ef"])
        return disk

    found = after_crashes(prepare, "d/f")
    assert {b"ab", b"abc", b"abcd", b"abcde", b"abcdef"} <= found
    holes = {data for data in found if b"\0" in data}
    assert holes
    assert all(data[:2] == b"ab" and data.rstrip(b"\0") in b"abcdef" for data in holes)


def test_a_hole_ends_with_its_page_and_later_pages_survive() -> None:
    def prepare() -> SimDisk:
        disk = disk_with("d/f", b"s" * 10)
        disk.open("d/f").write([b"w" * (3 * PAGE_BYTES)])
        return disk

    found = after_crashes(prepare, "d/f")
    assert all(data.startswith(b"s" * 10) for data in found)
    assert any(b"\0" in data and data.endswith(b"w") for data in found)


def test_an_unsynced_truncation_is_done_or_undone() -> None:
    def prepare() -> SimDisk:
        disk = disk_with("d/f", b"abcd")
        disk.open("d/f").truncate(2)
        return disk

    assert after_crashes(prepare, "d/f") == {b"ab", b"abcd"}


def test_unsynced_names_are_there_or_not_whatever_their_order() -> None:
    found = set()
    for seed in SEEDS:
        disk = disk_with("d/old", b"x")
        disk.rename("d/old", "d/new")
        disk.create("d/made")
        disk.crash(Random(seed))
        found.add(tuple(sorted(disk.list("d"))))
    assert found == {("old",), ("new",), ("made", "old"), ("made", "new")}


def test_a_removal_can_come_before_the_renaming_that_came_before_it() -> None:
    found = set()
    for seed in SEEDS:
        disk = disk_with("d/a", b"x")
        disk.create("d/b")
        disk.sync_folder("d")
        disk.rename("d/a", "d/c")
        disk.remove("d/b")
        disk.crash(Random(seed))
        found.add(tuple(sorted(disk.list("d"))))
    assert found == {("a", "b"), ("a",), ("b", "c"), ("c",)}


def test_names_that_were_synced_survive_and_so_does_what_a_file_is() -> None:
    disk = disk_with("d/a", b"x")
    inode = disk.status("d/a").inode
    disk.rename("d/a", "d/b")
    disk.sync_folder("d")
    disk.crash(Random(1))
    assert disk.list("d") == ["b"]
    assert disk.status("d/b").inode == inode


def test_a_file_that_replaces_another_is_that_file_or_the_other_after_a_crash() -> None:
    def prepare() -> SimDisk:
        disk = disk_with("d/f", b"old")
        file = disk.create("d/f.new")
        file.write([b"new"])
        file.sync()
        disk.rename("d/f.new", "d/f")
        return disk

    assert after_crashes(prepare, "d/f") == {b"old", b"new"}


def test_a_killed_process_loses_its_locks_and_nothing_else() -> None:
    disk = disk_with("d/f", b"a")
    disk.open("d/f").write([b"b"])
    disk.create("d/g")
    disk.lock("d/lock")
    with pytest.raises(LockedError):
        disk.lock("d/lock")
    disk.kill()
    assert disk.read("d/f") == b"ab"
    assert disk.list("d") == ["f", "g"]
    disk.lock("d/lock").release()
    disk.lock("d/lock")


def test_files_of_a_dead_process_are_of_no_use() -> None:
    disk = disk_with("d/f", b"a")
    file = disk.open("d/f")
    disk.kill()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write([b"b"])


def test_a_failing_write_is_carried_out_to_half() -> None:
    disk = disk_with("d/f", b"a")
    disk.fail(disk.operations + 1, errno.ENOSPC)
    file = disk.open("d/f")
    with pytest.raises(OSError, match="No space left on device") as caught:
        file.write([b"bc", b"de"])
    assert caught.value.filename == "d/f"
    assert disk.read("d/f") == b"abc"
    file.write([b"f"])
    assert disk.read("d/f") == b"abcf"


def test_what_a_failed_sync_has_lost_is_not_saved_by_the_next() -> None:
    disk = disk_with("d/f", b"a")
    file = disk.open("d/f")
    file.write([b"bc"])
    disk.fail(disk.operations + 1, errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write([b"d"])
    file.sync()
    assert disk.read("d/f") == b"abcd"
    disk.crash(Random(1))
    assert disk.read("d/f") == b"a\0\0d"


def test_everything_stops_before_the_chosen_operation() -> None:
    disk = disk_with("d/f", b"a")
    disk.stop_before = disk.operations + 2
    file = disk.open("d/f")
    file.write([b"b"])
    for change in (file.sync, lambda: disk.remove("d/f"), lambda: disk.sync_folder("d")):
        with pytest.raises(Crashed):
            change()
    assert disk.read("d/f") == b"ab"
    disk.kill()
    disk.remove("d/f")


def test_what_is_not_there_is_not_found() -> None:
    disk = disk_with("d/f", b"a")
    for action in (disk.read, disk.status, disk.open, disk.remove):
        with pytest.raises(FileNotFoundError):
            action("d/g")
    with pytest.raises(FileNotFoundError):
        disk.list("e")
    with pytest.raises(FileExistsError):
        disk.create("d/f")


def test_the_same_seed_loses_the_same() -> None:
    def run(seed: int) -> list[tuple[str, bytes]]:
        disk = disk_with("d/a", b"x")
        for name in "bcde":
            disk.create(f"d/{name}").write([name.encode() * 9])
        disk.crash(Random(seed))
        return [(name, disk.read(f"d/{name}")) for name in disk.list("d")]

    assert all(run(seed) == run(seed) for seed in range(20))
    assert len({str(run(seed)) for seed in range(20)}) > 10
