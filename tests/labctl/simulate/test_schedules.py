"""Thousands of schedules, small worlds whole, and the command through its real entry point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.programs.variants import PROTOCOL_CHOICES, Variant
from labctl.simulate.search.campaign import Chunk, DoneChunk, run
from labctl.simulate.search.explore import explore, small_programs
from labctl.simulate.search.soak import Soak

pytestmark = pytest.mark.slow

LABCTL = [sys.executable, "-c", "from labctl.cli import main; main()", "simulate"]
SCHEDULES = 40
"""Of each protocol and generator."""


def labctl(*arguments: str) -> tuple[int, Any]:
    command = [*LABCTL, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("protocol", PROTOCOL_CHOICES)
def test_thousands_of_schedules_have_no_violation(protocol: str) -> None:
    """Their seeds are not those of the fast tests."""
    found: list[DoneChunk] = []
    work = [Chunk(protocol, scenario, 1000, SCHEDULES) for scenario in GENERATORS]
    run(work, os.cpu_count() or 1, lambda done: not found.append(done))  # type: ignore[func-returns-value]
    assert sum(done.count for done in found) == SCHEDULES * len(GENERATORS)
    assert [(done.scenario, done.violations) for done in found if done.violations] == []


def test_schedules_with_crashes_and_slow_links_in_a_larger_overlay_have_no_violation() -> None:
    found: list[DoneChunk] = []
    variant = Variant(brokers=9, crash=0.2, away=0.1, abort=0.2, slow_links=20.0)
    work = [Chunk("mixed", scenario, 0, 30, variant) for scenario in GENERATORS]
    run(work, os.cpu_count() or 1, lambda done: not found.append(done))  # type: ignore[func-returns-value]
    assert [(done.scenario, done.violations) for done in found if done.violations] == []


@pytest.mark.parametrize("protocol", PROTOCOL_CHOICES)
def test_all_schedules_of_two_transactions_on_two_brokers_are_seen(protocol: str) -> None:
    for name, _, program in small_programs([protocol]):
        if name in ("skew", "loss"):
            explored, _ = explore(name, protocol, program)
            assert explored.complete
            assert explored.violations == []


def test_thousands_of_transactions_leave_only_what_they_committed() -> None:
    result = Soak(3).run(3000)
    assert result.faults == []
    assert result.transactions == 3000


def test_the_command_counts_and_judges_on_several_processes(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    arguments = ("--protocol", "d-tx,mixed", "--scenario", "crash,move", "--seeds", "0:40")
    code, document = labctl(*arguments, "--jobs", "2", "--record", str(record))
    assert code == 0
    assert document["schedules"] == 160
    assert document["violations"] == []
    assert len(document["parts"]) == len(record.read_text().splitlines()) == 4
    _, alone = labctl(*arguments, "--jobs", "1")
    assert alone["messages"] == document["messages"]


def test_a_seed_is_one_schedule_in_every_process() -> None:
    arguments = ("replay", "12", "--protocol", "mixed", "--scenario", "mixed")
    texts = set()
    for seed in ("1", "2", "3"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [*LABCTL, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=environment, check=True
        )
        texts.add(done.stdout)
    assert len(texts) == 1


def test_an_interrupted_campaign_says_what_it_has_and_leaves_nobody_behind(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    command = [*LABCTL, "--protocol", "d-tx", "--seeds", "0:1000000", "--jobs", "2", "--json"]
    process = subprocess.Popen(
        [*command, "--record", str(record)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (record.exists() and record.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    document = json.loads(stdout)
    assert document["interrupted"]
    assert document["schedules"] >= 500
    while _living(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _living(group: int) -> list[str]:
    """Processes of a group that run; those that only wait to be collected do not."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = status.read_text()
        except OSError:
            continue  # it has ended meanwhile
        state, _, member_of = text.rpartition(")")[2].split()[:3]
        if state != "Z" and int(member_of) == group:
            found.append(text)
    return found


def test_a_campaign_that_is_killed_takes_its_workers_with_it() -> None:
    process = subprocess.Popen(
        [*LABCTL, "--protocol", "d-tx", "--seeds", "0:100000", "--jobs", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        # Itself, two workers, and multiprocessing's own tracker of resources.
        while len(_living(process.pid)) < 4:
            assert time.monotonic() < deadline, "its workers have not started"
            time.sleep(0.05)
        time.sleep(2)
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 30
    while _living(process.pid):
        assert time.monotonic() < deadline, "they go on without it"
        time.sleep(0.05)
