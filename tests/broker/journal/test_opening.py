"""Folders that are refused, each with a sentence that says why and what to do, and nothing in them changed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from broker.journal.disk import RealDisk
from broker.journal.failures import FolderRefused
from broker.journal.folder import Folder
from broker.journal.identity import Identity
from labctl.simulate.crashes.disk import Crashed, SimDisk
from tests.support.folders import ME


def opened(disk: SimDisk, identity: Identity = ME) -> Folder:
    return Folder.open(disk, "d", identity, "fsync", 1)


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.read(f"d/{name}") for name in disk.list("d")}


def refusal(disk: SimDisk, identity: Identity = ME) -> str:
    """The sentence; the folder is as it was."""
    before, operations = contents(disk), disk.operations
    with pytest.raises(FolderRefused) as caught:
        opened(disk, identity)
    assert contents(disk) == before
    assert disk.operations == operations
    return str(caught.value)


def test_a_folder_in_use_names_the_process() -> None:
    disk = SimDisk()
    folder = opened(disk)
    assert refusal(disk) == "the data folder d is in use by process 1: stop it, or name another folder"
    folder.close()
    opened(disk).close()


@pytest.mark.parametrize(
    ("other", "whose"),
    [
        (Identity("broker", "b2", "three brokers", 1), "broker b2 of overlay three brokers"),
        (Identity("broker", "b1", "two brokers", 1), "broker b1 of overlay two brokers"),
        (Identity("manager", "b1", "three brokers", 1), "manager b1 of overlay three brokers"),
    ],
)
def test_a_folder_of_somebody_else_names_both(other: Identity, whose: str) -> None:
    disk = SimDisk()
    opened(disk, other).close()
    assert refusal(disk) == (
        f"the data folder d belongs to {whose}, not to broker b1 of overlay three brokers: name another folder"
    )


def test_a_state_of_another_version_is_refused() -> None:
    disk = SimDisk()
    opened(disk, Identity("broker", "b1", "three brokers", 2)).close()
    assert refusal(disk) == (
        "the data folder d holds a state of version 2, and this program knows version 1: start the program that has"
        " written it"
    )


def test_a_refused_folder_is_not_held() -> None:
    disk = SimDisk()
    opened(disk).close()
    disk.remove("d/segment-00000001")
    for _ in range(2):
        assert refusal(disk).startswith("d/segment-00000001 is damaged at byte 0: it is missing;")


def test_a_folder_with_something_else_in_it_is_left_alone() -> None:
    disk = SimDisk()
    disk.make_folder("d")
    disk.create("d/thesis.tex").write([b"chapter 1"])
    assert refusal(disk) == (
        "d is no data folder, and it is not empty (thesis.tex is in it): name another folder"
    )


def test_a_journal_without_an_identity_is_left_alone() -> None:
    disk = SimDisk()
    folder = opened(disk)
    folder.append(b"x")
    folder.sync()
    folder.close()
    disk.remove("d/identity")
    assert refusal(disk) == (
        "the data folder d holds a journal, but its file identity is missing: bring it back from a copy"
    )


def test_a_crash_while_the_folder_is_made_leaves_one_that_can_be_made_by_anybody() -> None:
    somebody_longer = Identity("broker", "b1 with a longer name", "three brokers", 1)
    for operation in range(1, 20):
        for seed in range(20):
            disk = SimDisk()
            disk.stop_before = operation
            try:
                opened(disk, somebody_longer)
            except Crashed:
                disk.crash(Random(seed))
            else:
                assert operation > 8
                return
            if "identity" not in disk.list("d"):
                assert opened(disk).is_new


def test_what_a_crash_has_left_unfinished_is_removed() -> None:
    disk = SimDisk()
    opened(disk).close()
    for name in ("identity.new", "segment-00000002.new", "snapshot-00000007.new", "notes.new", "notes"):
        disk.create(f"d/{name}")
    folder = opened(disk)
    assert sorted(disk.list("d")) == ["identity", "notes", "notes.new", "segment-00000001"]
    assert not folder.is_new


def test_a_folder_for_which_there_is_no_place_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, said in (
        (tmp_path / "file" / "data", "Not a directory"),
        (tmp_path / "file", "Not a directory"),
        (tmp_path / "not" / "there", "No such file or directory"),
    ):
        with pytest.raises(FolderRefused) as caught:
            Folder.open(RealDisk(), str(path), ME, "fsync", 1)
        assert str(caught.value).startswith(f"the data folder {path} cannot be used: ")
        assert said in str(caught.value)


def test_a_folder_that_may_not_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FolderRefused) as caught:
        Folder.open(RealDisk(), str(tmp_path), ME, "fsync", 1)
    assert str(caught.value) == (
        f"the data folder {tmp_path} cannot be used: it may not be written (Permission denied): see to it that it may"
        " be, and start again"
    )
    assert list(tmp_path.iterdir()) == []
