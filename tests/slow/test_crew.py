"""The processes of a run: talking to coordinators, one run at a time, and what a killed run leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from labctl import crew, processes
from labctl.crew import Busy, Crew, CrewError
from labctl.drivers import Client

pytestmark = pytest.mark.slow

COORDINATOR = Client("E", "E", 0, True)
MEMBER = Client("D", "D", 0, False)
ECHO = """
import sys
print('{"event": "ready"}', flush=True)
for line in sys.stdin:
    print('{"event": "%s"}' % line.strip(), flush=True)
"""


def python(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", text, *arguments]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run" / "nodes").mkdir(parents=True)
    return tmp_path / "run"


@pytest.fixture
def started(folder: Path) -> Iterator[Crew]:
    with crew.locked():
        found = Crew(folder)
        yield found
        found.stop()


def words(started: Crew, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        found += [line.event for _, lines in started.news(1.0) for line in lines]
    return found


def alive(pid: int) -> bool:
    seen = processes.look(pid)
    return seen is not None and bool(seen.arguments)


def test_a_coordinator_hears_and_is_heard(started: Crew) -> None:
    started.add(COORDINATOR, python(ECHO))
    assert words(started, 1) == ["ready"]
    started.coordinators[0].tell("go")
    started.coordinators[0].tell("stop")
    assert words(started, 2) == ["go", "stop"]


def test_a_client_that_ends_badly_is_told_with_its_last_words(started: Crew) -> None:
    started.add(MEMBER, python("import sys; sys.exit('no broker there')"))
    started.members[0].process.wait(10)
    with pytest.raises(CrewError, match="client D ended with 1: no broker there"):
        started.check()


def test_a_coordinator_that_has_gone_cannot_be_told_anything(started: Crew) -> None:
    started.add(COORDINATOR, python("import sys; sys.exit('lost')"))
    started.members[0].process.wait(10)
    with pytest.raises(CrewError, match="lost"):
        started.coordinators[0].tell("go")


def test_a_client_that_does_not_end_is_stopped_after_the_limit(started: Crew) -> None:
    started.add(MEMBER, python("import time; time.sleep(600)"))
    with pytest.raises(CrewError, match="client D did not end within"):
        started.wait(0.2)
    pid = started.members[0].process.pid
    started.stop()
    assert not alive(pid)


def test_one_run_at_a_time_has_the_machine(folder: Path) -> None:
    script = "from labctl import crew\nwith crew.locked():\n    print('locked', flush=True)\n    input()"
    with subprocess.Popen(python(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(Busy, match=f"pid {holder.pid}"), crew.locked():
            pass
        holder.communicate(b"\n", timeout=10)
    with crew.locked() as leftovers:
        assert leftovers == []
    assert folder.exists()


KILLED = """
import sys, time
from pathlib import Path
from labctl import crew
from labctl.drivers import Client
with crew.locked():
    found = crew.Crew(Path(sys.argv[1]))
    found.add(Client("D", "D", 0, False), [sys.executable, "-c", "import time; time.sleep(600)"])
    print(found.members[0].process.pid, flush=True)
    time.sleep(600)
"""


def killed_run(folder: Path) -> int:
    """The pid of a client whose labctl was killed."""
    with subprocess.Popen(python(KILLED, str(folder)), stdout=subprocess.PIPE) as lab:
        assert lab.stdout is not None
        pid = int(lab.stdout.readline())
        os.kill(lab.pid, signal.SIGKILL)
        lab.wait(10)
    return pid


def test_the_client_of_a_killed_run_is_found_by_its_recorded_pid_and_stopped(folder: Path) -> None:
    pid = killed_run(folder)
    assert alive(pid)
    with crew.locked() as leftovers:
        assert leftovers == [f"client of an earlier run (pid {pid}) stopped"]
    assert not alive(pid)
    with crew.locked() as leftovers:
        assert leftovers == []


def test_a_client_that_was_not_yet_written_down_is_found_by_its_folder(folder: Path) -> None:
    with crew.locked():
        Crew(folder)  # writes its folder down, and is killed before it can write down the client
        unrecorded = subprocess.Popen(
            python("import time; time.sleep(600)", "--scenario=x", f"--log={folder}/nodes/D.jsonl")
        )
        stranger = subprocess.Popen(
            python("import time; time.sleep(600)", "--scenario=x", f"--log={folder}2/nodes/D.jsonl")
        )
    try:
        while not alive(unrecorded.pid) or not alive(stranger.pid):
            time.sleep(0.01)
        with crew.locked() as leftovers:
            assert leftovers == [f"client of an earlier run (pid {unrecorded.pid}) stopped"]
        assert alive(stranger.pid)
    finally:
        stranger.kill()
        stranger.wait(10)
        unrecorded.wait(10)
