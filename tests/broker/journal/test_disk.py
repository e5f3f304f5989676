"""The disk of this machine: whole writes, modes, syncs, locks, and points at which a process is killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.journal.disk import KILL_POINT, RealDisk
from broker.journal.failures import FolderRefused
from broker.journal.files import POINTS, LockedError
from broker.journal.folder import Folder
from labctl.paths import PROJECT
from tests.support.folders import ME

PROGRAM = """
import sys

from broker.journal.disk import RealDisk, reached
from broker.journal.folder import Folder
from broker.journal.identity import Identity

folder = Folder.open(RealDisk(), sys.argv[1], Identity("broker", "b1", "three brokers", 1), "fsync", 1)
state = (folder.snapshot or b"").split()
state += folder.entries()
while len(state) < 12:
    for _ in range(2):
        state.append(b"%d" % len(state))
        folder.append(state[-1])
    folder.sync()
    reached("before-send")
    print(len(state), flush=True)
    if len(state) % 4 == 0:
        number = folder.begin_snapshot()
        folder.write_snapshot(number, [b" ".join(state)])
        folder.adopt_snapshot(number)
"""
HOLD = """
import sys, time
from broker.journal.disk import RealDisk

lock = RealDisk().lock(sys.argv[1])
print("locked", flush=True)
time.sleep(60)
"""


def run(program: str, path: Path, kill_point: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        cwd=PROJECT,
        env={**os.environ, KILL_POINT: kill_point},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def recovered(path: Path) -> list[bytes]:
    folder = Folder.open(RealDisk(), str(path), ME, "fsync", 2)
    state = (folder.snapshot or b"").split()
    state += folder.entries()
    folder.close()
    return state


@pytest.mark.parametrize(
    "point",
    [*(p for p in POINTS if p != "recovering"), "after-write:3", "truncating:3", "snapshot-renamed:2"],
)
def test_a_process_that_is_killed_at_a_point_loses_nothing_that_it_had_acknowledged(
    tmp_path: Path, point: str
) -> None:
    path = tmp_path / "data"
    with run(PROGRAM, path, point) as killed:
        output, _ = killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    acknowledged = int((output.split() or ["0"])[-1])
    found = recovered(path)
    assert found == [b"%d" % i for i in range(len(found))]
    assert acknowledged <= len(found) <= acknowledged + 2
    folder = Folder.open(RealDisk(), str(path), ME, "fsync", 3)
    assert not [name for name in os.listdir(path) if name.endswith(".new")]
    list(folder.entries())
    assert folder.append(b"%d" % len(found)) == folder.sync() == len(found) + 1
    folder.close()
    assert recovered(path) == [*found, b"%d" % len(found)]


@pytest.mark.parametrize("wanted", ["before-lunch", "after-write:soon"])
def test_a_point_that_does_not_exist_ends_the_program_with_a_sentence(tmp_path: Path, wanted: str) -> None:
    with run(PROGRAM, tmp_path / "data", wanted) as ended:
        _, errors = ended.communicate()
    assert f"{KILL_POINT}={wanted} names no point at which the journal can be killed" in errors
    assert ended.returncode == 1


def test_a_lock_names_the_process_that_holds_it_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with run(HOLD, path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(LockedError) as caught:
            RealDisk().lock(str(path))
        assert caught.value.holder == str(holder.pid)
        holder.kill()
    lock = RealDisk().lock(str(path))
    assert path.read_text() == f"{os.getpid()}\n"
    lock.release()
    RealDisk().lock(str(path)).release()


def test_a_folder_in_use_is_refused_in_the_same_process_too(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    folder = Folder.open(RealDisk(), path, ME, "fsync", 1)
    with pytest.raises(FolderRefused) as caught:
        Folder.open(RealDisk(), path, ME, "fsync", 1)
    assert str(caught.value) == (
        f"the data folder {path} is in use by process {os.getpid()}: stop it, or name another folder"
    )
    folder.close()


def test_a_forked_process_that_has_let_go_does_not_hold_the_folder(tmp_path: Path) -> None:
    """It outlives its parent here; the folder must be free by then."""
    path = tmp_path / "data"
    program = f"""
import os, sys, time
from broker.journal.disk import RealDisk
from broker.journal.folder import Folder
from broker.journal.identity import Identity

folder = Folder.open(RealDisk(), sys.argv[1], Identity("broker", "b1", "three brokers", 1), "fsync", 1)
number = folder.begin_snapshot()
reading, writing = os.pipe()
if not os.fork():
    folder.let_go()
    folder.write_snapshot(number, [b"state"])
    os.write(writing, b"x")
    sys.stdin.read()
    os._exit(0)
os.read(reading, 1)
os.kill(os.getpid(), {int(signal.SIGKILL)})
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=PROJECT, stdin=subprocess.PIPE
    ) as parent:
        assert parent.wait() == -signal.SIGKILL
        assert recovered(path) == []
        assert parent.stdin is not None
        parent.stdin.close()


def test_folders_and_files_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "data"
    folder = Folder.open(RealDisk(), str(path), ME, "fsync", 1)
    number = folder.begin_snapshot()
    folder.write_snapshot(number, [b"state"])
    folder.adopt_snapshot(number)
    folder.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}


def test_more_pieces_than_the_system_takes_at_once_are_all_written(tmp_path: Path) -> None:
    file = RealDisk().create(str(tmp_path / "f"))
    pieces = [b"%d " % i for i in range(5000)]
    file.write(pieces)
    file.close()
    assert (tmp_path / "f").read_bytes() == b"".join(pieces)


def test_what_the_system_does_not_take_at_once_is_written_with_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_some(descriptor: int, pieces: Sequence[bytes]) -> int:
        return os.write(descriptor, b"".join(pieces)[:7])

    monkeypatch.setattr(os, "writev", write_some)
    file = RealDisk().create(str(tmp_path / "f"))
    file.write([b"", b"0123456", b"789", b"", b"abcdefghijk", b"l"])
    file.write([b"", b""])
    file.close()
    assert (tmp_path / "f").read_bytes() == b"0123456789abcdefghijkl"


def test_a_system_that_takes_nothing_is_an_error_and_no_endless_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "writev", lambda *_: 0)
    file = RealDisk().create(str(tmp_path / "f"))
    with pytest.raises(OSError, match="Input/output error"):
        file.write([b"x"])
    file.close()


def test_files_and_folders_are_synced_and_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def note(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    folder = Folder.open(RealDisk(), str(tmp_path / "data"), ME, "fsync", 1)
    assert synced[:1] == [tmp_path.name], "the folder's own name"
    assert {"segment-00000001.new", "identity.new", "data"} <= set(synced)
    synced.clear()
    folder.append(b"x")
    assert not synced
    folder.sync()
    assert synced == ["segment-00000001"]
    folder.close()


def test_a_truncated_file_goes_on_at_its_new_end(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "f")
    file = disk.create(path)
    file.write([b"0123456789"])
    file.close()
    file = disk.open(path)
    file.truncate(4)
    file.write([b"x"])
    file.close()
    assert disk.read(path) == b"0123x"
    assert disk.status(path).byte_count == 5


def test_what_is_there_is_not_created_and_what_is_not_is_not_opened(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    disk.create(path).close()
    with pytest.raises(FileExistsError):
        disk.create(path)
