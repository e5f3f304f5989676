"""A local overlay of real processes: up, status, down, and nothing left behind, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labctl.host import processes
from labctl.overlay import launch, local, node_files
from labctl.overlay import state as states
from labctl.topology import standard
from tests.support.brokers import wait_for

pytestmark = pytest.mark.slow

DEADLINE_S = 30.0
LABCTL = [sys.executable, "-c", "from labctl.cli import main; main()"]


@pytest.fixture(autouse=True)
def clean_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has a state folder of its own, and fails when it leaves a process behind."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield
    left = brokers_below(tmp_path)
    processes.stop(left)
    assert left == []


def brokers_below(folder: Path) -> list[processes.Process]:
    return processes.find(lambda process: any(a.startswith(f"{folder}/") for a in process.arguments))


def start_labctl(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*LABCTL, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def labctl(*arguments: str) -> tuple[int, str, str]:
    with start_labctl(*arguments) as process:
        out, err = process.communicate(timeout=DEADLINE_S)
        return process.returncode, out, err


def labctl_json(*arguments: str) -> dict[str, Any]:
    code, out, err = labctl(*arguments, "--json")
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


@pytest.mark.parametrize("count", [1, 3, 9])
def test_an_overlay_comes_up_answers_and_goes(tmp_path: Path, count: int) -> None:
    started = labctl_json("overlay", "up", "--brokers", str(count))
    assert {broker["id"] for broker in started["brokers"]} == set(standard(count).brokers)
    assert len(brokers_below(tmp_path)) == count

    status = labctl_json("overlay", "status", "--dump")
    assert status["state"] == "up"
    for broker in status["brokers"]:
        neighbours = {link["name"] for link in broker["status"]["links"] if link["kind"] == "broker"}
        assert neighbours == set(standard(count).neighbours(broker["broker"]))
        assert set(broker["status"]["tables"]) == {"crt", "srt", "prt"}

    stopped = labctl_json("overlay", "down")["stopped"]
    assert [broker["how"] for broker in stopped] == ["stopped"] * count
    assert brokers_below(tmp_path) == []
    assert states.names() == []


def test_people_see_brokers_and_links_and_no_control_characters() -> None:
    local.up(standard(3))
    code, out, err = labctl("overlay", "status")
    assert code == 0, err
    assert "\x1b" not in out
    for word in ("b1", "b2", "b3", "Links", "up"):
        assert word in out
    local.down()


def test_a_second_down_finds_nothing_to_do() -> None:
    local.up(standard(1))
    assert [stopped.how for stopped in local.down()] == ["stopped"]
    assert local.down() == ()
    assert labctl_json("overlay", "down") == {"stopped": []}


def test_two_overlays_run_at_once_and_one_goes_without_the_other(tmp_path: Path) -> None:
    both = [start_labctl("overlay", "up", "--brokers", "3", "--name", name) for name in ("east", "west")]
    assert [process.wait(DEADLINE_S) for process in both] == [0, 0]
    for process in both:
        process.communicate()
    assert len(brokers_below(tmp_path)) == 6
    local.down("east")
    assert local.status("west").state == "up"
    assert len(brokers_below(tmp_path)) == 3
    assert labctl_json("overlay", "down", "--all")["stopped"][0]["name"] == "west"


def test_an_overlay_that_is_up_is_not_started_again() -> None:
    state = local.up(standard(1))
    code, out, err = labctl("overlay", "up", "--brokers", "1")
    assert (code, out) == (4, "")
    assert "labctl overlay down --name default" in err
    assert local.status().brokers[0].pid == state.brokers[0].pid
    local.down()


def test_two_labctl_do_not_work_on_one_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    local.up(standard(1))
    monkeypatch.setattr(states, "LOCK_WAIT_S", 0.2)
    with states.locked("default"):
        with pytest.raises(states.StateError, match="another labctl is working"):
            local.down()
        assert local.status().state == "up"
    local.down()


def test_a_port_in_use_ends_with_4_and_names_broker_and_port(tmp_path: Path) -> None:
    with launch.reserved_ports(1) as ports:
        port = ports[0]
    with socket.create_server(("127.0.0.1", port)):
        code, out, err = labctl("overlay", "up", "--brokers", "3", "--base-port", str(port), "--json")
    assert (code, out) == (4, "")
    assert "broker b1" in err
    assert str(port) in err
    assert brokers_below(tmp_path) == []


def test_a_setting_that_the_broker_refuses_ends_with_2_and_its_own_sentence(tmp_path: Path) -> None:
    settings = local.OverlaySettings(common=node_files.Common(limits={"payload_bytes_mx": 1}))
    with pytest.raises(launch.StartError, match="payload_bytes_max") as caught:
        local.up(standard(1), settings=settings)
    assert caught.value.exit_code == 2
    assert brokers_below(tmp_path) == []


def test_after_a_failed_start_the_logs_are_kept_and_the_next_start_replaces_them() -> None:
    bad = local.OverlaySettings(common=node_files.Common(limits={"payload_bytes_mx": 1}))
    with pytest.raises(launch.StartError) as caught:
        local.up(standard(1), settings=bad)
    log = Path(str(caught.value).rpartition("log: ")[2].rstrip(")"))
    assert "payload_bytes_mx" in log.read_text()
    assert not local.overview()[0].stale
    with local.running(standard(1), "default"):
        assert local.status().state == "up"


def test_a_broker_that_died_is_named_and_down_still_stops_the_others() -> None:
    state = local.up(standard(3))
    pid = state.brokers[2].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    code, out, err = labctl("overlay", "status", "--json")
    assert code == 4, err
    document = json.loads(out)
    assert document["state"] == "broken"
    assert [broker["alive"] for broker in document["brokers"]] == [True, True, False]
    assert "broker b3 does not answer" in document["missing"]
    assert local.overview()[0].stale
    assert {stopped.broker: stopped.how for stopped in local.down()} == {
        "b1": "stopped",
        "b2": "stopped",
        "b3": "was not running",
    }


def test_a_reused_pid_is_never_killed() -> None:
    state = local.up(standard(1))
    local.down()
    with subprocess.Popen(["sleep", "60"]) as bystander:
        states.make_folder("default")
        record = states.BrokerRecord("b1", "127.0.0.1:1", state.brokers[0].config, "", bystander.pid, 1)
        states.write(states.OverlayState("default", "up", (record,), ()))
        assert [stopped.how for stopped in local.down()] == ["was not running"]
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_up_stops_what_it_started_and_ends_with_130(tmp_path: Path, number: int) -> None:
    with start_labctl("overlay", "up", "--brokers", "5") as process:
        wait_for("two brokers", lambda: len(brokers_below(tmp_path)) >= 2, DEADLINE_S)
        process.send_signal(number)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert brokers_below(tmp_path) == []
    assert states.names() == []


def test_in_the_background_of_a_script_it_can_be_ended_too(tmp_path: Path) -> None:
    """A shell without job control lets what it starts with `&` ignore Ctrl-C."""
    command = (
        "from labctl.cli import main; import sys; sys.argv[1:] = ['overlay', 'up', '--brokers', '5']; main()"
    )
    script = f'"{sys.executable}" -c "{command}" & echo $!; wait $!; echo $?'
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        wait_for("two brokers", lambda: len(brokers_below(tmp_path)) >= 2, DEADLINE_S)
        os.kill(pid, signal.SIGTERM)
        out, _ = shell.communicate(timeout=DEADLINE_S)
    assert out.split()[-1] == "130"
    assert brokers_below(tmp_path) == []


KILLED_AT_STEP = """
import os, signal, sys
from labctl.overlay import local, state as states
from labctl.topology import standard
from tests.support.brokers import wait_for
step, before = int(sys.argv[1]), sys.argv[2] == "before"
write, calls = states.write, 0
def dying_write(state):
    global calls
    calls += 1
    if not (before and calls == step):
        write(state)
    if calls == step:
        os.kill(os.getpid(), signal.SIGKILL)
states.write = dying_write
local.up(standard(3))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_down_finds_everything_after_kill_9_at_any_step_of_up(tmp_path: Path, step: int, moment: str) -> None:
    """Steps 2 to 4 write down one process each that has just been started; 5 is the overlay being up."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AT_STEP, str(step), moment], timeout=DEADLINE_S, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    code, _, err = labctl("overlay", "down")
    assert code == 0, err
    assert brokers_below(tmp_path) == []
    assert states.names() == []


def test_down_finds_everything_after_kill_9_while_brokers_are_being_forked(tmp_path: Path) -> None:
    """At once after the kill, when a forked child may not yet show what it is."""
    for wanted in range(1, 6):
        with start_labctl("overlay", "up", "--brokers", "5") as process:
            wait_for("brokers", lambda wanted=wanted: len(brokers_below(tmp_path)) >= wanted, DEADLINE_S)  # type: ignore[misc]
            process.kill()
            stopped = local.down()
        assert sum(broker.how in {"stopped", "killed"} for broker in stopped) >= wanted
        assert brokers_below(tmp_path) == []


def test_down_works_without_a_readable_state(tmp_path: Path) -> None:
    local.up(standard(3))
    (states.folder("default") / "state.json").write_text("{")
    with pytest.raises(states.StateError, match="cannot be read"):
        local.status()
    assert len(local.down()) == 3
    assert brokers_below(tmp_path) == []


def test_a_cycle_in_a_topology_file_ends_with_2_before_anything_is_started(tmp_path: Path) -> None:
    file = tmp_path / "ring.yaml"
    file.write_text("links: [[b1, b2], [b2, b3], [b3, b1]]")
    code, out, err = labctl("overlay", "up", "--topology", str(file))
    assert (code, out) == (2, "")
    assert "cycle: b1 - b2 - b3 - b1" in err
    assert states.names() == []


def test_a_topology_file_becomes_that_tree(tmp_path: Path) -> None:
    file = tmp_path / "tree.yaml"
    file.write_text(
        "links: [[hub, east], [hub, west], [west, far]]\ndelay: {brokers: {delay_ms: 2, seed: 3}}"
    )
    labctl_json("overlay", "up", "--topology", str(file))
    status = local.status()
    known = {b.broker: set(b.status["overlay"]) - {b.broker} for b in status.brokers if b.status}
    assert known["far"] == {"hub", "east", "west"}
    local.down()


def test_only_json_is_on_stdout(tmp_path: Path) -> None:
    for command in (["up", "--brokers", "1"], ["status"], ["list"], ["down"]):
        code, out, _ = labctl("overlay", *command, "--json")
        assert code == 0
        assert isinstance(json.loads(out), dict)
    assert brokers_below(tmp_path) == []


def kill(state: states.OverlayState, *names: str) -> None:
    for broker in state.brokers:
        if broker.id in names:
            assert broker.pid is not None
            os.kill(broker.pid, signal.SIGKILL)
            os.waitpid(broker.pid, 0)


def test_a_durable_broker_that_was_killed_is_started_again_where_it_was_and_says_what_it_recovered() -> None:
    state = local.up(standard(3), settings=local.OverlaySettings(durable="fsync"))
    kill(state, "b2")
    assert labctl("overlay", "status")[0] == 4
    code, out, err = labctl("overlay", "restart", "b2")
    assert (code, out.startswith("b2 runs again: "), " entries recovered in " in out) == (0, True, True), err
    status = local.status()
    assert status.state == "up"
    assert [broker.address for broker in status.brokers] == [broker.address for broker in state.brokers]
    assert "fsync, " in labctl("overlay", "status")[1]
    local.down()
    assert not states.folder("default").exists()


def test_a_durable_overlay_that_has_ended_is_restarted_as_a_whole_and_not_overwritten() -> None:
    state = local.up(standard(3), settings=local.OverlaySettings(durable="os"))
    kill(state, "b1", "b2", "b3")
    with pytest.raises(local.OverlayError, match="labctl overlay restart --name default"):
        local.up(standard(3))
    assert {row["id"] for row in labctl_json("overlay", "restart")["brokers"]} == {"b1", "b2", "b3"}
    assert local.status().state == "up"
    assert local.restart() == {}
    local.down()


def test_a_running_broker_is_restarted_and_keeps_the_overlay_whole() -> None:
    state = local.up(standard(3), settings=local.OverlaySettings(durable="fsync"))
    local.restart(["b2", "b3"])
    after = local.status()
    assert after.state == "up"
    assert [a.pid == b.pid for a, b in zip(state.brokers, after.brokers, strict=True)] == [True, False, False]
    local.down()


def test_what_cannot_be_restarted_ends_with_2_and_a_reason() -> None:
    local.up(standard(1))
    for arguments, reason in ((["b7"], "it has b1"), ([], "keep nothing")):
        code, out, err = labctl("overlay", "restart", *arguments)
        assert (code, out) == (2, "")
        assert reason in err
    assert local.status().state == "up"
    local.down()
