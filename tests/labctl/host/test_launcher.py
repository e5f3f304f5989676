"""Why a process has ended: the last thing that it said to people, in one sentence."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from labctl.host import launcher
from labctl.host.launcher import LAST_WORDS_BYTES, Launch
from playbooks import start


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Traceback:\n  where\nOSError: the disk is full\n", "OSError: the disk is full"),
        ('{"event": "fatal", "reason": "x"}\nBroker b1 cannot listen.\n', "Broker b1 cannot listen."),
        ('no neighbour\n{"event": "closed"}\n\n', "no neighbour"),
        ('{"event": "ready"}\n', ""),
        ("", ""),
    ],
)
def test_last_words_are_the_last_line_that_is_no_event(tmp_path: Path, log: str, words: str) -> None:
    (tmp_path / "log").write_text(log)
    assert launcher.last_words(tmp_path / "log") == words


def test_the_rest_of_an_event_that_is_cut_off_is_no_last_word(tmp_path: Path) -> None:
    line = json.dumps({"event": "vitals", "text": "x" * 60}) + "\n"
    (tmp_path / "log").write_text(line * (2 * LAST_WORDS_BYTES // len(line)))
    assert launcher.last_words(tmp_path / "log") == ""


def test_without_a_log_there_are_no_last_words(tmp_path: Path) -> None:
    assert launcher.last_words(tmp_path / "none") == ""


def test_the_sentence_names_who_how_and_why() -> None:
    assert launcher.ended("broker b1", 4, "It cannot listen.") == "broker b1 ended with 4: It cannot listen"
    assert launcher.ended("client D", -9, "") == "client D ended with -9: it said nothing"


def test_what_is_started_has_a_session_of_its_own_and_its_end_is_told(tmp_path: Path) -> None:
    script = "import os, time; print(os.getsid(0), os.environ['WHOSE'], flush=True); time.sleep(60)"
    log = tmp_path / "log"
    program = Launch(
        [sys.executable, "-c", script], tmp_path, errors=log, output=log, variables={"WHOSE": "ours"}
    )
    pid = launcher.start(program)
    deadline = time.monotonic() + 20
    while not log.read_text():
        assert time.monotonic() < deadline
    assert log.read_text() == f"{pid} ours\n"
    assert launcher.exit_code(pid) is None
    os.kill(pid, signal.SIGKILL)
    while (code := launcher.exit_code(pid)) is None:
        assert time.monotonic() < deadline
    assert code == -signal.SIGKILL


def test_a_broker_is_known_by_the_command_that_starts_one() -> None:
    assert start.config_of(start.broker(["python3", "-X", "dev"], "/a/b1.toml")) == "/a/b1.toml"
    assert start.config_of(start.observer(["python3"])) is None
    assert start.config_of([]) is None
