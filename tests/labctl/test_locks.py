"""One lock: held by one at a time, who is named; its file goes with it, and a kill leaves nothing that blocks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from labctl.exits import LabError
from labctl.locks import LockError, exclusive

KILLED = """
import os, signal, sys
from pathlib import Path
from labctl.locks import exclusive
with exclusive(Path(sys.argv[1]), 0, RuntimeError):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def busy(holder: str) -> LabError:
    return LabError(f"held by {holder}")


def test_the_second_one_hears_who_holds_it_and_the_file_goes_with_the_first(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with exclusive(path, 0.0, busy):
        with pytest.raises(LabError, match=f"^held by {os.getpid()}$"), exclusive(path, 0.0, busy):
            pass
        assert path.exists()
    assert not path.exists()


def test_who_waits_gets_it_when_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    free = threading.Event()

    def hold(held: threading.Event) -> None:
        with exclusive(path, 0.0, busy):
            held.set()
            free.wait(10)

    held = threading.Event()
    holder = threading.Thread(target=hold, args=(held,))
    holder.start()
    assert held.wait(10)
    threading.Timer(0.05, free.set).start()
    with exclusive(path, 10.0, busy):
        assert free.is_set()
    holder.join()


def test_many_at_once_never_hold_it_together(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "lock", [0], [0]

    def work() -> None:
        for _ in range(20):
            with exclusive(path, 30.0, busy):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.001)
                inside[0] -= 1

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert most == [1]


def test_a_holder_that_was_killed_holds_nothing_any_more(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.exists()
    with exclusive(path, 0.0, busy):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_place_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "lock"
    with pytest.raises(LockError, match=f"the lock {path} cannot be made"), exclusive(path, 0.0, busy):
        pass
