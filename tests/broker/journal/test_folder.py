"""A data folder: numbers, what is durable when, replay, snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from broker.journal.entries import RECORD_HEADER_BYTES
from broker.journal.failures import SnapshotFailed
from broker.journal.folder import REMOVALS_MAX, Mode
from labctl.simulate.crashes.disk import SimDisk
from tests.support.folders import filled, opened, replayed, take_snapshot


def test_a_new_folder_is_ready_and_empty() -> None:
    folder = opened(SimDisk(), life=77)
    assert folder.is_new
    assert folder.life == 77
    assert folder.snapshot is None
    assert list(folder.entries()) == []
    assert (folder.newest, folder.durable, folder.sync()) == (0, 0, 0)


def test_entries_come_back_in_order_and_the_life_stays() -> None:
    disk = SimDisk()
    folder = opened(disk)
    assert [folder.append(b"a", b"b"), folder.append(), folder.append(b"c")] == [1, 2, 3]
    folder.sync()
    folder.close()
    folder, entries = replayed(disk)
    assert entries == [b"ab", b"", b"c"]
    assert (folder.is_new, folder.life) == (False, 5)
    assert (folder.newest, folder.durable, folder.append(b"d")) == (3, 3, 4)


def test_only_what_was_synced_is_called_durable() -> None:
    folder = opened(SimDisk())
    folder.append(b"a")
    folder.append(b"b")
    assert (folder.newest, folder.durable) == (2, 0)
    assert folder.sync() == 2
    folder.append(b"c")
    assert (folder.newest, folder.durable) == (3, 2)


@pytest.mark.parametrize(("mode", "operations"), [("fsync", 2), ("os", 1)])
def test_many_entries_cost_one_write_and_one_sync_and_none_cost_nothing(mode: Mode, operations: int) -> None:
    disk = SimDisk()
    folder = opened(disk, mode)
    for _ in range(100):
        folder.append(b"x", b"y")
    before = disk.operations
    assert folder.sync() == 100
    assert disk.operations == before + operations
    assert folder.sync() == 100
    assert disk.operations == before + operations
    assert folder.syncs == operations - 1


def test_what_is_not_synced_is_given_up_by_closing() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    folder.append(b"b")
    folder.close()
    assert replayed(disk)[1] == [b"a"]


def test_nothing_can_be_appended_before_the_replay_or_after_closing() -> None:
    disk = SimDisk()
    filled(disk, b"a").close()
    folder = opened(disk)
    next(folder.entries())
    uses: tuple[Callable[[], int], ...] = (lambda: folder.append(b"x"), folder.sync, folder.begin_snapshot)
    for use in uses:
        with pytest.raises(RuntimeError, match="the data folder d is closed, or its entries have not been"):
            use()
    folder.close()
    folder, _ = replayed(disk)
    folder.close()
    with pytest.raises(RuntimeError, match="is closed"):
        folder.append(b"x")


def test_a_snapshot_stands_for_what_is_in_front_of_it() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a", b"b")
    number = folder.begin_snapshot()
    folder.append(b"c")
    folder.sync()
    folder.write_snapshot(number, iter([b"a and ", b"b"]))
    folder.append(b"d")
    folder.adopt_snapshot(number)
    assert folder.snapshot == b"a and b"
    folder.sync()
    folder.close()
    assert sorted(disk.list("d")) == ["identity", "segment-00000002", "snapshot-00000002"]
    folder = opened(disk)
    assert folder.snapshot == b"a and b"
    assert list(folder.entries()) == [b"c", b"d"]
    assert (folder.newest, folder.append(b"e")) == (4, 5)


def test_what_was_appended_before_a_snapshot_begins_is_durable_and_in_front_of_it() -> None:
    disk = SimDisk()
    folder = opened(disk, "os")
    folder.append(b"a")
    take_snapshot(folder, b"state")
    assert (folder.durable, folder.entries_behind_snapshot) == (1, 0)
    disk.crash(Random(1))
    folder = opened(disk)
    assert folder.snapshot == b"state"
    assert list(folder.entries()) == []
    assert folder.newest == 1


def test_how_much_there_is_to_replay_is_known_before_and_after() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a", b"bb")
    both = folder.bytes_behind_snapshot
    assert folder.entries_behind_snapshot == 2
    number = folder.begin_snapshot()
    folder.append(b"ccc")
    folder.sync()
    assert (folder.entries_behind_snapshot, folder.bytes_behind_snapshot) == (
        3,
        both + RECORD_HEADER_BYTES + 3,
    )
    folder.write_snapshot(number, [])
    folder.adopt_snapshot(number)
    assert folder.entries_behind_snapshot == 1
    one = folder.bytes_behind_snapshot
    folder.close()
    folder, _ = replayed(disk)
    assert (folder.entries_behind_snapshot, folder.bytes_behind_snapshot) == (1, one)


def test_a_dropped_snapshot_changes_nothing_and_another_can_be_taken() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    number = folder.begin_snapshot()
    with pytest.raises(RuntimeError, match=f"snapshot {number} is still being taken"):
        folder.begin_snapshot()
    folder.append(b"b")
    folder.write_snapshot(number, [b"half"])
    folder.drop_snapshot(number)
    folder.sync()
    assert folder.snapshot is None
    assert folder.entries_behind_snapshot == 2
    assert not any(name.endswith(".new") for name in disk.list("d"))
    number = folder.begin_snapshot()
    folder.drop_snapshot(number)
    folder.close()
    folder, entries = replayed(disk)
    assert entries == [b"a", b"b"]
    take_snapshot(folder, b"a, b")
    folder.close()
    folder, entries = replayed(disk)
    assert (folder.snapshot, entries) == (b"a, b", [])


def test_only_the_snapshot_that_was_begun_can_be_written_adopted_or_dropped() -> None:
    folder = opened(SimDisk())
    for use in (
        folder.adopt_snapshot,
        folder.drop_snapshot,
        lambda number: folder.write_snapshot(number, []),
    ):
        with pytest.raises(RuntimeError, match="snapshot 2 is not being taken"):
            use(2)


def test_a_failing_content_leaves_a_snapshot_that_can_be_dropped() -> None:
    def content() -> Iterator[bytes]:
        yield b"x" * (3 << 20)
        raise KeyError("the state")

    folder = filled(SimDisk(), b"a")
    number = folder.begin_snapshot()
    with pytest.raises(KeyError):
        folder.write_snapshot(number, content())
    folder.drop_snapshot(number)
    take_snapshot(folder, b"state")
    assert folder.snapshot == b"state"


def test_a_snapshot_is_larger_than_a_write_and_comes_back_whole() -> None:
    disk = SimDisk()
    folder = opened(disk)
    pieces = [bytes([i]) * 300_000 for i in range(10)]
    take_snapshot(folder, *pieces)
    assert folder.snapshot == b"".join(pieces)


def test_a_forked_process_lets_go_and_writes() -> None:
    """What it does to the lock of its parent is seen on a real disk."""
    folder = filled(SimDisk(), b"a")
    number = folder.begin_snapshot()
    folder.let_go()
    folder.write_snapshot(number, [b"state"])
    folder.adopt_snapshot(number)
    assert folder.snapshot == b"state"


def test_not_all_of_many_old_files_are_removed_at_once_but_all_in_the_end() -> None:
    disk = SimDisk()
    folder = opened(disk)
    for _ in range(REMOVALS_MAX + 10):
        folder.append(b"x")
        folder.drop_snapshot(folder.begin_snapshot())
    take_snapshot(folder, b"state")
    assert sum(name.startswith("segment") for name in disk.list("d")) == 12
    take_snapshot(folder, b"state")
    assert sorted(disk.list("d")) == [
        "identity",
        f"segment-{REMOVALS_MAX + 13:08}",
        f"snapshot-{REMOVALS_MAX + 13:08}",
    ]


def test_a_torn_tail_is_gone_before_more_is_appended() -> None:
    disk = SimDisk()
    filled(disk, b"a", b"b").close()
    size = disk.status("d/segment-00000001").byte_count
    disk.open("d/segment-00000001").write([b"torn" * 100])
    folder, entries = replayed(disk)
    assert entries == [b"a", b"b"]
    assert disk.status("d/segment-00000001").byte_count == size
    folder.append(b"c")
    folder.sync()
    disk.crash(Random(3))
    assert replayed(disk)[1] == [b"a", b"b", b"c"]


def test_what_a_killed_process_had_written_is_durable_once_it_was_replayed() -> None:
    disk = SimDisk()
    folder = opened(disk, "os")
    folder.append(b"a")
    folder.sync()
    disk.kill()
    folder, entries = replayed(disk)
    assert entries == [b"a"]
    assert folder.durable == 1
    disk.crash(Random(1))
    assert replayed(disk)[1] == [b"a"]


def test_a_snapshot_that_cannot_be_written_is_no_end_of_the_journal() -> None:
    disk = SimDisk()
    folder = filled(disk, b"a")
    number = folder.begin_snapshot()
    disk.fail(disk.operations + 2, 28)
    with pytest.raises(SnapshotFailed) as caught:
        folder.write_snapshot(number, [b"state"])
    assert str(caught.value) == (
        "d/snapshot-00000002 cannot be written: the disk is full (No space left on device): make room, and start again"
    )
    folder.drop_snapshot(number)
    folder.append(b"b")
    assert folder.sync() == 2
    take_snapshot(folder, b"state")
    assert folder.snapshot == b"state"
