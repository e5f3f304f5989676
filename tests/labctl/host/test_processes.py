"""Processes are told apart by more than their pid, and end within a bound."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labctl.host import processes
from labctl.host.processes import Process

pytestmark = pytest.mark.slow

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(60)"


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def seen(pid: int) -> Process:
    process = processes.look(pid)
    assert process is not None
    return process


def test_a_process_is_seen_with_its_arguments_and_its_start() -> None:
    with running("sleep", "60") as child:
        deadline = time.monotonic() + 5
        while seen(child.pid).arguments != ("sleep", "60"):
            assert time.monotonic() < deadline
        assert seen(child.pid).started >= seen(os.getpid()).started


def test_a_name_with_brackets_and_spaces_does_not_shift_the_start_time() -> None:
    plain = "import time; print('x', flush=True); time.sleep(60)"
    renamed = "open('/proc/self/comm', 'w').write(') 1 2 (');" + plain
    with running(sys.executable, "-c", renamed) as child:
        assert child.stdout is not None
        child.stdout.readline()
        uptime_ticks = float(Path("/proc/uptime").read_text().split()[0]) * os.sysconf("SC_CLK_TCK")
        assert 0 <= uptime_ticks - seen(child.pid).started < 30 * os.sysconf("SC_CLK_TCK")


def test_nobody_is_seen_where_there_is_no_process() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert processes.look(child.pid) is None


def test_a_later_process_with_the_same_pid_is_left_alone() -> None:
    with running("sleep", "60") as child:
        stranger = seen(child.pid)._replace(started=seen(child.pid).started - 1)
        assert processes.stop([stranger]) == {child.pid: "was not running"}
        assert child.poll() is None


def test_a_process_that_heeds_sigterm_is_stopped_and_collected() -> None:
    with running("sleep", "60") as child:
        assert processes.stop([seen(child.pid)]) == {child.pid: "stopped"}
        assert processes.look(child.pid) is None


def test_a_process_that_ignores_sigterm_is_killed_after_the_bound() -> None:
    with running(sys.executable, "-c", STUBBORN) as child:
        assert child.stdout is not None
        child.stdout.readline()
        began = time.monotonic()
        assert processes.stop([seen(child.pid)], term_s=0.2) == {child.pid: "killed"}
        assert 0.2 <= time.monotonic() - began < 5


def test_many_are_stopped_in_the_time_of_one() -> None:
    with running(sys.executable, "-c", STUBBORN) as first, running(sys.executable, "-c", STUBBORN) as second:
        for child in (first, second):
            assert child.stdout is not None
            child.stdout.readline()
        began = time.monotonic()
        processes.stop([seen(first.pid), seen(second.pid)], term_s=2)
        assert time.monotonic() - began < 3.9


def test_finding_leaves_ourselves_out() -> None:
    with running("sleep", "60") as child:
        found = {process.pid for process in processes.find(lambda process: True)}
        assert child.pid in found
        assert os.getpid() not in found
        os.kill(child.pid, signal.SIGKILL)
