"""What one sees of a run: plain lines in a log, a picture on a terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from labctl.checks.repetition import Judged
from labctl.checks.verdict import Answer, Verdict
from labctl.commands.views.run import duration, outcome, watching
from labctl.experiment.cell import Cell
from labctl.experiment.client_processes import TransactionLine
from labctl.experiment.schedule import unit
from labctl.output import Output
from labctl.run.runner import Progress, Ran

UNIT = unit(Cell("dispatching", "s-tx"), 1, 1)


def record(
    number: int, latency_s: float, correct: bool = True, outcome: str = "committed"
) -> TransactionLine:
    return TransactionLine(
        0, number, "", number == 1, "A1", 1.0, 1.1, 1.0 + latency_s, outcome, "", correct, ""
    )


RAN = Ran((record(1, 9.0), record(2, 0.04), record(3, 0.05), record(4, 0.06, correct=False)), 7.0)


def watched(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with watching(Output(), 3, 1) as view:
        view.calibrating("dispatching-bl-wait-b3-k1-c1", 1, 2)
        view.started(UNIT, 120.0)
        view.progress(Progress("running", 20, 55, 16.4, 60.8))
        view.finished(UNIT, RAN, 65.0)
        view.failed(UNIT, "E has gone", Path("there"))
    return stream.getvalue()


def test_the_warm_up_is_not_part_of_what_is_told() -> None:
    assert outcome(RAN) == "3 transactions, median 50.0 ms, 1 wrong"


def test_what_is_not_committed_is_told() -> None:
    assert "1 not committed" in outcome(Ran((record(2, 0.1, outcome="unknown"),), 1.0))


@pytest.mark.parametrize("answer", ["invalid", "unknown"])
def test_of_a_repetition_that_does_not_count_it_is_told_why_instead(answer: Answer) -> None:
    verdict = Verdict("commits", answer, 3, ("0 of 3 transactions committed (3 aborted: late)",))
    told = outcome(replace(RAN, judged=Judged(answer, (verdict,), 3, 0)))
    assert told == f"{answer.upper()}: commits: 0 of 3 transactions committed (3 aborted: late)"
    assert outcome(replace(RAN, judged=Judged("valid", (), 3, 3))) == outcome(RAN)


def test_a_log_gets_plain_lines_with_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = watched(False, monkeypatch)
    assert "\x1b" not in text
    assert (
        "[2/3] dispatching-s-tx-b3-k1-c1 #1: 3 transactions, median 50.0 ms, 1 wrong; took 7 s, 65 s left"
        in text
    )
    assert "[2/3, 1 failed] dispatching-s-tx-b3-k1-c1 #1 failed: E has gone (kept in there)" in text


def test_a_terminal_gets_a_picture_of_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = watched(True, monkeypatch)
    assert "\x1b" in text
    assert "2 of 3 done" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (3900, "1 h 05 min")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text
