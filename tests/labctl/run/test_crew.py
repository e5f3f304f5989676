"""The processes of a run: an agent that starts and stops them, talking to coordinators, what a killed run leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labctl.experiment.cell import Cell
from labctl.experiment.client_processes import Client, Instructions
from labctl.host import processes
from labctl.run import crew, places
from labctl.run.crew import Busy, Crew, CrewError
from labctl.run.places import LocalSite
from labctl.run.station import HostLost
from tests.support.brokers import wait_for

pytestmark = pytest.mark.slow

GIVEN = Instructions(Cell("dispatching", "s-tx"), 1)
COORDINATOR = Client("E", "E", 0, True)
MEMBER = Client("D", "D", 0, False)
ECHO = """
import sys
print('{"event": "ready"}', flush=True)
for line in sys.stdin:
    print('{"event": "%s"}' % line.strip(), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "run").mkdir(parents=True)
    return tmp_path / "run"


@pytest.fixture
def here(folder: Path) -> Iterator[LocalSite]:
    assert folder.is_dir()
    with places.local() as found:
        yield found


@pytest.fixture
def started(here: LocalSite, folder: Path) -> Crew:
    found = Crew(here, folder, ["b1"], [COORDINATOR, MEMBER])
    found.begin()
    return found


def add(crew: Crew, here: LocalSite, client: Client, program: str) -> None:
    """A program in the place of a client's: it gets the same words behind it."""
    here.posts[0].python = (sys.executable, "-c", program)
    crew.start_client(client, GIVEN, "127.0.0.1:1")


def words(crew: Crew, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        found += [line.event for _, line in crew.news(1.0)]
    return found


def pids() -> list[int]:
    """What runs for us."""
    state = Path(os.environ["XDG_STATE_HOME"])
    records = (state / "labctl" / "run" / "agent" / "processes.jsonl").read_text()
    return [line["pid"] for line in map(json.loads, records.splitlines()) if "pid" in line]


def alive(pid: int) -> bool:
    seen = processes.look(pid)
    return seen is not None and bool(seen.arguments)


def test_a_coordinator_hears_and_is_heard(started: Crew, here: LocalSite) -> None:
    add(started, here, COORDINATOR, ECHO)
    assert words(started, 1) == ["ready"]
    started.coordinators[0].tell("go")
    started.coordinators[0].tell("stop")
    assert words(started, 2) == ["go", "stop"]


def test_a_client_that_ends_badly_is_told_with_its_last_words(started: Crew, here: LocalSite) -> None:
    add(started, here, MEMBER, "import sys; sys.exit('no broker there')")
    with pytest.raises(CrewError, match="client D ended with 1: no broker there"):
        started.wait(20)


def test_a_client_that_does_not_end_is_stopped_after_the_limit(started: Crew, here: LocalSite) -> None:
    add(started, here, MEMBER, "import time; time.sleep(600)")
    with pytest.raises(CrewError, match="client D did not end within"):
        started.wait(0.2)
    [pid] = pids()
    assert started.stop() == []
    assert not alive(pid)


def test_a_broker_that_does_not_start_says_why(started: Crew, here: LocalSite) -> None:
    from labctl.topology import standard

    here.posts[0].address = "127.0.0.1"
    here.posts[0].python = (
        sys.executable,
        "-c",
        "import sys, time; sys.argv[2] == 'broker' and sys.exit('my disk is full'); time.sleep(600)",
    )
    with pytest.raises(CrewError, match="broker b1 ended with 1: my disk is full"):
        started.start_brokers(standard(1), "outcomes")
    assert started.stop() == []


def test_one_run_at_a_time_has_the_machine(folder: Path) -> None:
    script = "from labctl.run import crew\nwith crew.locked():\n    print('locked', flush=True)\n    input()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(Busy, match=f"pid {holder.pid}"), crew.locked():
            pass
        holder.communicate(b"\n", timeout=10)
    with crew.locked():
        pass
    assert folder.exists()


@pytest.mark.usefixtures("here")
def test_an_agent_lets_no_second_one_start_processes() -> None:
    with pytest.raises(places.SiteError, match="another labctl runs processes on this host"):
        LocalSite()


KILLED = """
import sys, time
from pathlib import Path
from labctl.run.crew import Crew
from labctl.run.places import LocalSite
from labctl.experiment.client_processes import Client, Instructions
from labctl.experiment.cell import Cell
place = LocalSite()
crew = Crew(place, Path(sys.argv[1]), ["b1"], [Client("D", "D", 0, False)])
crew.begin()
place.posts[0].python = (sys.executable, "-c", "import time; time.sleep(600)")
crew.start_client(Client("D", "D", 0, False), Instructions(Cell("dispatching", "s-tx"), 1), "127.0.0.1:1")
agent = place.posts[0].station._pipe._process.pid
print(agent, flush=True)
time.sleep(600)
"""


def killed_run(folder: Path, here_too: bool) -> list[int]:
    """The pids of agent and client of a labctl that was killed, and its agent first if that is wanted."""
    command = [sys.executable, "-c", KILLED, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as lab:
        assert lab.stdout is not None
        agent = int(lab.stdout.readline())
        found = [agent, *pids()]
        if here_too:
            os.kill(agent, signal.SIGKILL)
        lab.kill()
        lab.wait(10)
    return found


def test_when_labctl_is_killed_its_agent_stops_everything_and_ends(folder: Path) -> None:
    agent, client = killed_run(folder, here_too=False)
    wait_for("their end", lambda: not alive(client) and not alive(agent))
    with places.local() as there:
        assert there.posts[0].station.left == []


def test_what_a_killed_agent_leaves_is_stopped_by_the_next_one_and_nothing_else_is(folder: Path) -> None:
    _, client = killed_run(folder, here_too=True)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(folder)]) as stranger:
        assert alive(client)
        with places.local() as there:
            assert there.posts[0].station.left == [f"D of an earlier run (pid {client}) stopped"]
        assert not alive(client)
        assert alive(stranger.pid)
        stranger.kill()


def test_a_killed_agent_is_told_as_a_lost_host_and_replaced_for_the_next_repetition(
    started: Crew, here: LocalSite, folder: Path
) -> None:
    add(started, here, MEMBER, "import time; time.sleep(600)")
    [client] = pids()
    agent = processes.find(
        lambda p: "labctl.host.agent" in p.arguments and str(folder.parent) in p.arguments[-1]
    )
    os.kill(agent[0].pid, signal.SIGKILL)
    with pytest.raises(HostLost, match="this machine is lost"):
        started.wait(20)
    here.recover()
    assert here.posts[0].station.left == [f"D of an earlier run (pid {client}) stopped"]


def test_what_is_left_for_somebody_to_look_at_runs_until_the_next_run(started: Crew, here: LocalSite) -> None:
    add(started, here, MEMBER, "import time; time.sleep(600)")
    [client] = pids()
    assert started.leave() == []
    assert alive(client)
    here.recover()
    assert not alive(client)


def test_hosts_tell_what_they_are_and_how_far_they_are_from_each_other(here: LocalSite) -> None:
    station = here.posts[0].station
    facts = station.ask("facts").get()["facts"]
    assert facts["cpus"] >= 1
    assert {"id", "kernel", "model", "python"} <= facts.keys()
    cpu = station.ask("cpu").get()["cpu"]
    assert cpu["total_s"] > cpu["steal_s"] >= 0
    port = station.ask("echo", address="127.0.0.1").get()["port"]
    targets = {"self": ["127.0.0.1", port], "nobody": ["127.0.0.1", 1]}
    found = station.ask("round_trips", targets=targets, rounds=5).get()["ms"]
    assert found["self"] > 0
    assert found["nobody"] is None
