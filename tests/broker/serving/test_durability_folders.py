"""Data folders that cannot be used: one sentence, exit code 2, and nothing in them is changed."""

from __future__ import annotations

import asyncio
import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from client import connect
from labctl.paths import PROJECT
from tests.support.brokers import COMMAND, Overlay, Process, brokers, data_folder, free_addresses, node_file

pytestmark = pytest.mark.slow

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
REFUSED_S = 15.0

Settings = dict[str, Any]
Change = Callable[[Path], None]


@pytest.fixture
def top(tmp_path: Path) -> Settings:
    """Of a broker that can be killed."""
    (address,) = free_addresses(1)
    return {
        "id": "b1",
        "listen": address,
        "data": str(tmp_path / "data"),
        "durable": "fsync",
        "overlay": "east",
    }


NEAR: list[Settings] = []


@pytest.fixture
def folder(tmp_path: Path, top: Settings) -> Iterator[Path]:
    """Its data folder, when it has worked and was killed."""
    process = started(tmp_path, top)
    process.child.kill()
    process.wait()
    yield Path(top["data"])
    process.end()


def started(where: Path, top: Settings) -> Process:
    """With something in its journal."""
    (where / "b1.toml").write_text(node_file(top, NEAR, {}, {}))
    process = Process(where / "b1.toml")
    process.wait_until_ready()

    async def work() -> None:
        async with connect(top["listen"], client_id="E") as session:
            for n in range(20):
                await session.subscribe({"n": n})

    try:
        asyncio.run(work())
    except BaseException:
        process.end()
        raise
    return process


def refused(where: Path, text: str, *arguments: str) -> str:
    """The sentence with which a broker ends at once."""
    (where / "bad.toml").write_text(text)
    command = [*COMMAND, str(where / "bad.toml"), *arguments]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=REFUSED_S,
        preexec_fn=obey_permissions,
        check=False,
    )
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1, done.stderr
    reason = done.stderr.strip()
    logged = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"] for line in logged] in ([], ["fatal"])
    assert {line["reason"] for line in logged} <= {reason}
    return reason


def obey_permissions() -> None:
    """Root too."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def contents(folder: Path) -> dict[str, bytes]:
    """Without the lock, which says who has tried last."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "lock"}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"id": "b9"}, ("belongs to broker b1 of overlay east, not to broker b9 of overlay east",)),
        ({"overlay": "west"}, ("overlay east", "overlay west", "name another folder")),
        ({"overlap": "any"}, ("other overlap: all, not any", "begin with an empty folder")),
    ],
    ids=["another broker", "another overlay", "another overlap"],
)
def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, top: Settings, folder: Path, other: Settings, words: tuple[str, ...]
) -> None:
    before = contents(folder)
    reason = refused(tmp_path, node_file(top | other, NEAR, {}, {}))
    assert str(folder) in reason
    for word in words:
        assert word in reason
    assert contents(folder) == before


def test_a_broker_with_other_neighbours_or_limits_is_refused(
    tmp_path: Path, top: Settings, folder: Path
) -> None:
    before = contents(folder)
    near = [{"id": "b2"}]
    assert "other neighbours: none, not b2" in refused(tmp_path, node_file(top, near, {}, {}))
    assert "other limits" in refused(tmp_path, node_file(top, NEAR, {}, {"attributes_max": 3}))
    assert contents(folder) == before


def identity_of_another_version(folder: Path) -> None:
    file = folder / "identity"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 99}))


def a_broken_byte(folder: Path) -> None:
    """In the middle of what was acknowledged."""
    (segment,) = folder.glob("segment-*")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


def no_identity(folder: Path) -> None:
    (folder / "identity").unlink()


def not_writable(folder: Path) -> None:
    """As root would be stopped only by a file system that is read-only, the broker is told to obey permissions."""
    folder.chmod(0o500)
    (folder / "lock").chmod(0o400)


def a_strange_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "letters.txt").write_text("dear")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (identity_of_another_version, ("version 99", "start the program that has written it")),
        (a_broken_byte, ("segment-00000001 is damaged at byte ", "bring the data folder back from a copy")),
        (no_identity, ("its file identity is missing",)),
        (not_writable, ("it may not be written", "see to it that it may be")),
        (a_strange_file, ("is no data folder", "letters.txt", "name another folder")),
    ],
)
def test_a_folder_that_is_not_as_it_was_left_is_refused(
    tmp_path: Path, top: Settings, folder: Path, change: Change, words: tuple[str, ...]
) -> None:
    change(folder)
    before = contents(folder)
    reason = refused(tmp_path, node_file(top, NEAR, {}, {}))
    assert str(folder) in reason
    for word in words:
        assert word in reason
    assert contents(folder) == before


def test_a_folder_in_use_is_refused_and_so_is_a_copy_of_it(tmp_path: Path, top: Settings) -> None:
    process = started(tmp_path, top)
    try:
        elsewhere = top | {"listen": "127.0.0.1:0"}
        reason = refused(tmp_path, node_file(elsewhere, NEAR, {}, {}))
        assert reason == (
            f"the data folder {top['data']} is in use by process {process.child.pid}: stop it, or name another folder"
        )
        copy = tmp_path / "copy"
        shutil.copytree(top["data"], copy)
        before = contents(copy)
        reason = refused(tmp_path, node_file(elsewhere, NEAR, {}, {}), "--data", str(copy))
        assert f"the data folder {copy} is a copy" in reason
        assert 'take the line "inode" out' in reason
        assert contents(copy) == before
        assert process.child.poll() is None
    finally:
        process.end()
    assert process.errors() == ""


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, top: Settings) -> None:
    nowhere = tmp_path / "there" / "is" / "none"
    reason = refused(tmp_path, node_file(top | {"data": str(nowhere)}, NEAR, {}, {}))
    assert f"the data folder {nowhere} cannot be used" in reason
    (tmp_path / "file").write_text("not a folder")
    reason = refused(tmp_path, node_file(top | {"data": str(tmp_path / "file")}, NEAR, {}, {}))
    assert str(tmp_path / "file") in reason


def test_durability_without_a_folder_is_refused(tmp_path: Path, top: Settings) -> None:
    del top["data"]
    assert "needs a folder" in refused(tmp_path, node_file(top, NEAR, {}, {}))


@pytest.mark.parametrize("links", [[("b1", "b2")], [("b2", "b1")]], ids=["is dialled", "dials"])
def test_a_broker_that_goes_back_to_an_older_state_ends_with_4_and_its_neighbour_lives(
    tmp_path: Path, links: list[tuple[str, str]]
) -> None:
    """As when a machine has lost what was not synced, or somebody brings the folder back from a copy."""

    async def work(overlay: Overlay) -> None:
        async with connect(overlay.address("b1"), client_id="E") as session:
            for n in range(20):
                await session.subscribe({"n": n})
            await session.settled()

    with brokers(tmp_path, links, durable="fsync") as overlay:
        data = data_folder(tmp_path, "b2")
        overlay.kill("b2")
        before = {file.name: file.read_bytes() for file in data.iterdir()}
        overlay.start("b2")
        overlay.wait_until_linked()
        asyncio.run(work(overlay))
        overlay.kill("b2")
        for file in data.iterdir():
            if file.name in before:
                file.write_bytes(before[file.name])
            else:
                file.unlink()
        overlay.start("b2")
        assert overlay.wait("b2") == 4
        assert overlay.errors("b2") == (
            "Broker b2 has gone back to an older state than b1 knows, and its data folder is of no use any more;"
            " restart the whole overlay.\n"
        )
        assert overlay.is_alive("b1")
