"""Playbooks: what they would do, what they make of the answers, and the programs that they run on hosts."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from labctl.testbeds.remote import bundles
from labctl.testbeds.remote.bundles import Bundle, pack
from labctl.testbeds.ssh.play import words
from playbooks import collect, start, stop
from playbooks.deploy import RECEIVE, Deployed, deploy
from playbooks.prepare import Found, prepare, read, wait_for_start
from playbooks.steps import Attach, CommandResult, PlaybookError, Run, Target

TARGET = Target("broker-1", ".labctl/0123/broker-1")
BUNDLE = pack("code", {"broker/x.py": b"x = 1\n", "labctl/host/agent.py": b"\n"})


def answer(**changes: object) -> CommandResult:
    seen = {
        "root": "/there/.labctl",
        "python": [3, 12, 1],
        "machine": "aarch64",
        "libc": "glibc",
        "free_bytes": 1 << 30,
        "kernel": "6.1.0",
        "timerfd": True,
        "pidfd": False,
        "clock_s": 1.5,
        "starting": False,
        "present": [],
        "parts": {},
    }
    return CommandResult(0, "a login script says hello\n" + json.dumps(seen | changes))


def test_the_look_at_a_host_is_understood_whatever_it_prints_before(tmp_path: Path) -> None:
    found = read(TARGET, answer(present=["ab"], parts={"cd": 7}))
    assert found.kind == ((3, 12), "aarch64", "glibc")
    assert found.lacks == ("pidfd",)
    assert found.present == {"ab"}
    assert found.parts == (("cd", 7),)
    assert not found.is_starting
    assert tmp_path.exists()


def test_a_host_whose_start_goes_on_is_waited_for_as_long_as_a_start_may_take() -> None:
    assert read(TARGET, answer(starting=True)).is_starting
    [step] = wait_for_start()
    assert isinstance(step, Run)
    assert step.command == "cloud-init status --wait"
    assert step.takes == "boot"
    assert step.may_fail


def test_the_look_itself_runs_and_makes_the_folder(tmp_path: Path) -> None:
    step = next(prepare(TARGET))
    assert isinstance(step, Run)
    done = subprocess.run(
        step.command,
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    found = read(TARGET, CommandResult(0, done.stdout))
    assert found.root == str(tmp_path / TARGET.folder)
    assert (tmp_path / TARGET.folder / "bundles").is_dir()


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (answer(python=[3, 9, 2]), "broker-1 has Python 3.9.2; it needs 3.11 or later"),
        (CommandResult(127, "", "bash: python3: command not found"), "broker-1 has no python3"),
        (CommandResult(1, "", "Traceback\nOSError: Read-only file system"), "Read-only file system"),
        (CommandResult(0, "", ""), "answered what nobody asked"),
    ],
)
def test_a_host_that_will_not_do_is_told_in_a_sentence(result: CommandResult, sentence: str) -> None:
    playbook = prepare(TARGET)
    next(playbook)
    with pytest.raises(PlaybookError, match=sentence):
        playbook.send(result)


def found(**changes: object) -> Found:
    return read(TARGET, answer(**changes))


def test_only_what_is_missing_is_brought_and_from_where_it_was_cut_off() -> None:
    assert words(deploy(TARGET, found(present=[BUNDLE.digest]), [BUNDLE]))[0] == []
    playbook = deploy(TARGET, found(parts={BUNDLE.digest: 5}), [BUNDLE])
    step = next(playbook)
    assert isinstance(step, Run)
    assert f"{BUNDLE.digest}:5:{len(BUNDLE.content)}" in step.command
    assert b"".join(step.sends) == BUNDLE.content[5:]


def test_a_disk_without_room_is_told_before_anything_is_sent() -> None:
    with pytest.raises(PlaybookError, match=r"the disk of broker-1 is full: .* and 0\.0 MB are free"):
        next(deploy(TARGET, found(free_bytes=10), [BUNDLE]))


def receive(folder: Path, bundle: Bundle, offset: int, data: bytes) -> subprocess.CompletedProcess[str]:
    word = f"{bundle.digest}:{offset}:{len(bundle.content)}"
    command = [sys.executable, "-ISc", RECEIVE, str(folder), word]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_bundle_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    half = len(BUNDLE.content) // 2
    cut = receive(tmp_path, BUNDLE, 0, BUNDLE.content[:half])
    assert cut.returncode
    assert "goes on" in cut.stderr
    part = tmp_path / f"{BUNDLE.digest}.part"
    assert part.stat().st_size == half
    assert receive(tmp_path, BUNDLE, half, BUNDLE.content[half:]).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == [BUNDLE.digest]
    assert (tmp_path / BUNDLE.digest / "broker" / "x.py").read_bytes() == b"x = 1\n"


def test_what_has_another_hash_is_thrown_away(tmp_path: Path) -> None:
    damaged = bytes([BUNDLE.content[0] ^ 1]) + BUNDLE.content[1:]
    done = receive(tmp_path, BUNDLE, 0, damaged)
    assert done.returncode
    assert "thrown away" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_depends_on_its_files_and_on_nothing_else() -> None:
    again = pack("code", {"labctl/host/agent.py": b"\n", "broker/x.py": b"x = 1\n"})
    assert again == BUNDLE
    assert hashlib.sha256(BUNDLE.content).hexdigest() == BUNDLE.digest
    assert pack("code", {"labctl/host/agent.py": b"#\n", "broker/x.py": b"x = 1\n"}).digest != BUNDLE.digest


def test_our_code_runs_on_a_host_that_has_nothing_else(tmp_path: Path) -> None:
    """The agent, from the bundle, under a Python without any installed package."""
    bundle = bundles.code()
    assert receive(tmp_path, bundle, 0, bundle.content).returncode == 0
    done = subprocess.run(
        [sys.executable, "-S", "-m", "labctl.host.agent", "stop", str(tmp_path / "state")],
        env={"PYTHONPATH": str(tmp_path / bundle.digest), "PYTHONSAFEPATH": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    there = tmp_path / bundle.digest
    assert {str(path.relative_to(there)) for path in (there / "labctl").rglob("*.py")} == {
        "labctl/__init__.py",
        "labctl/exits.py",
        "labctl/locks.py",
        *(
            f"labctl/host/{name}.py"
            for name in (
                "__init__",
                "agent",
                "disturbances",
                "launcher",
                "machine",
                "ports",
                "processes",
                "whole_lines",
            )
        ),
    }


def test_a_scenario_of_ones_own_goes_along_under_its_dotted_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    folder = tmp_path / "mine_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "stream.py").write_text('"""Mine."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("mine_of_a_test.stream")
    bundle = bundles.code([module])
    assert receive(tmp_path, bundle, 0, bundle.content).returncode == 0
    assert (tmp_path / bundle.digest / "mine_of_a_test" / "stream.py").exists()
    assert (tmp_path / bundle.digest / "mine_of_a_test" / "__init__.py").exists()
    assert bundle.digest != bundles.code().digest


def test_every_command_can_be_shown_without_doing_it(tmp_path: Path) -> None:
    [look], there = words(prepare(TARGET))
    assert look.endswith("# Python, disk, and what is there already")
    lines, deployed = words(deploy(TARGET, there, [BUNDLE]))
    assert lines[0].endswith("< bundles    # bring code, 0.0 MB")
    assert deployed == Deployed(there.root, (f"{there.root}/bundles/{BUNDLE.digest}",), ("code",))
    [agent] = words(start.agent(TARGET, deployed, 30.0))[0]
    assert "python3 -m labctl.host.agent serve" in agent
    assert BUNDLE.digest in agent
    fetched, cleared = words(collect.collect(TARGET, deployed, "/runs/1", tmp_path, clear=True))[0]
    assert "pack /runs/1" in fetched
    assert cleared.startswith("rm -rf -- /runs/1")
    assert len(words(collect.collect(TARGET, deployed, "/runs/1", tmp_path, clear=False))[0]) == 1
    assert isinstance(next(start.agent(TARGET, deployed, 30.0)), Attach)
    assert words(stop.stop_any(TARGET, there))[0]


def test_clearing_takes_our_folder_and_leaves_what_others_have_beside_it(tmp_path: Path) -> None:
    mine = tmp_path / TARGET.folder
    mine.mkdir(parents=True)
    other = tmp_path / ".labctl" / "4567"
    other.mkdir()
    step = next(stop.clear(TARGET, found(root=str(mine))))
    environment = {"HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    subprocess.run(step.command, shell=True, check=True, env=environment)
    assert not mine.parent.exists()
    assert other.exists()
    other.rmdir()
    subprocess.run(step.command, shell=True, check=True, env=environment)
    assert not (tmp_path / ".labctl").exists()


def test_the_end_of_a_log_is_told_whichever_files_it_is_in(tmp_path: Path) -> None:
    nodes = tmp_path / TARGET.folder / "runs" / "r" / "nodes"
    nodes.mkdir(parents=True)
    for name, first in (("b1.jsonl.2", 0), ("b1.jsonl.1", 3), ("b1.jsonl", 6)):
        (nodes / name).write_text("".join(f"line {number}\n" for number in range(first, first + 3)))
    (nodes / "b1.err").write_text("it said\n")

    def told(name: str, lines: int) -> list[str]:
        playbook = collect.logs(TARGET, name, lines)
        step = next(playbook)
        assert isinstance(step, Run)
        done = subprocess.run(
            ["sh", "-c", step.command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        with pytest.raises(StopIteration) as end:
            playbook.send(CommandResult(done.returncode, done.stdout, done.stderr))
        return str(end.value.value).splitlines()

    assert told("b1", 5) == [*(f"line {number}" for number in range(4, 9)), "it said"]
    assert told("b1", 100) == [*(f"line {number}" for number in range(9)), "it said"]
    assert told("b1", 1) == ["line 8", "it said"]
    assert "No such file" in told("b9", 5)[0]
    assert {"b1.jsonl", "b1.jsonl.2"} <= {line.split()[-1] for line in told("", 5)}
