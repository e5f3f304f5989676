"""A moved data folder is the same, a copied one is not, until somebody says that it takes the other's place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from broker.journal.disk import RealDisk
from broker.journal.failures import FolderRefused
from broker.journal.folder import Folder
from broker.journal.identity import Identity

ME = Identity("broker", 'b1 "the first"', "drei Bröker", 1)


def opened(path: Path) -> Folder:
    return Folder.open(RealDisk(), str(path), ME, "os", 1234)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = opened(tmp_path / "data")
    made.append(b"entry")
    made.sync()
    made.close()
    return tmp_path / "data"


def entries(path: Path) -> list[bytes]:
    folder = opened(path)
    try:
        return list(folder.entries())
    finally:
        folder.close()


def test_the_identity_can_be_read_by_people(folder: Path) -> None:
    text = (folder / "identity").read_text("utf-8")
    assert json.loads(text) == {
        "inode": (folder / "identity").stat().st_ino,
        "kind": "broker",
        "name": 'b1 "the first"',
        "overlay": "drei Bröker",
        "version": 1,
        "life": 1234,
    }
    assert '\n  "inode": ' in text


def test_a_moved_folder_is_the_same(folder: Path) -> None:
    moved = folder.rename(folder.with_name("moved"))
    assert entries(moved) == [b"entry"]


def test_a_copy_is_refused_until_the_line_with_the_inode_is_taken_out(folder: Path) -> None:
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    with pytest.raises(FolderRefused) as caught:
        opened(copy)
    assert str(caught.value) == (
        f"the data folder {copy} is a copy, and it and the original must not both go on from the same state: if the"
        f' original will never be used again, take the line "inode" out of {copy}/identity and start again'
    )
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    lines = (copy / "identity").read_text().splitlines(keepends=True)
    (copy / "identity").write_text("".join(line for line in lines if '"inode"' not in line))
    assert entries(copy) == [b"entry"]
    assert json.loads((copy / "identity").read_text())["inode"] == (copy / "identity").stat().st_ino
    shutil.copytree(copy, folder.with_name("copy of the copy"))
    with pytest.raises(FolderRefused, match="is a copy"):
        opened(folder.with_name("copy of the copy"))
    assert entries(folder) == [b"entry"]


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"kind": 3}', b'{"inode": 1, "colour": "red"}'])
def test_an_identity_that_cannot_be_read_is_refused(folder: Path, text: bytes) -> None:
    (folder / "identity").write_bytes(text)
    with pytest.raises(FolderRefused, match="identity does not say whose data folder this is"):
        opened(folder)


def test_the_files_must_be_of_the_life_that_the_identity_names(folder: Path) -> None:
    text = (folder / "identity").read_text()
    (folder / "identity").write_text(text.replace("1234", "1235"))
    with pytest.raises(
        FolderRefused, match="segment-00000001 is damaged at byte 0: it was written for another"
    ):
        entries(folder)
