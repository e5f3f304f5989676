"""The JSON log of a node: its lines, and that it never harms whoever logs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.node.log import JsonLog


class Written:
    """A log on a file, and what stands in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.log = JsonLog(self.fd, "b1")

    def lines(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.path.read_bytes().splitlines()]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    made = Written(tmp_path / "node.log")
    yield made
    os.close(made.fd)


def test_every_line_has_time_node_and_event_and_the_first_one_the_date(written: Written) -> None:
    before, wall_before = time.monotonic_ns(), time.time_ns()
    written.log.log("ready", port=7000)
    written.log.log("link-up", peer="b2")
    first, second = written.lines()
    assert list(first) == ["t", "wall", "node", "event", "port"]
    assert list(second) == ["t", "node", "event", "peer"]
    assert (first["node"], first["event"], first["port"]) == ("b1", "ready", 7000)
    assert before <= first["t"] <= second["t"] <= time.monotonic_ns()
    assert wall_before <= first["wall"] <= time.time_ns()


def test_each_line_is_one_write(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    real = os.write

    def spy(fd: int, data: bytes | memoryview) -> int:
        writes.append(bytes(data))
        return real(fd, data)

    monkeypatch.setattr(os, "write", spy)
    written.log.log("a", text="x" * 10_000)
    written.log.log("b")
    assert [data.count(b"\n") for data in writes] == [1, 1]
    assert all(data.endswith(b"}\n") for data in writes)


def test_a_line_break_in_a_field_does_not_break_the_line(written: Written) -> None:
    written.log.log("refused", reason="first\nsecond")
    assert [line["reason"] for line in written.lines()] == ["first\nsecond"]


def test_a_record_with_its_own_event_is_logged_under_it(written: Written) -> None:
    written.log.emit({"event": "vitals", "cpu_percent": 1.5})
    assert (written.lines()[0]["event"], written.lines()[0]["cpu_percent"]) == ("vitals", 1.5)


def test_a_field_cannot_replace_what_every_line_has(written: Written) -> None:
    written.log.log("seen", t=1, node="b9", event="other")
    line = written.lines()[0]
    assert (line["node"], line["event"]) == ("b1", "seen")
    assert (line["t_"], line["node_"], line["event_"]) == (1, "b9", "other")


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


class Mute:
    def __repr__(self) -> str:
        raise ValueError("no")


RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Opaque(), "<opaque>"),
        ([Opaque()], ["<opaque>"]),
        (float("nan"), None),
        ({1j: 2}, {"1j": 2}),
        (RECURSIVE, "[[...]]"),
        ("\ud800", "'\\ud800'"),
    ],
    ids=["object", "object in a list", "nan", "odd key", "recursive", "surrogate"],
)
def test_what_json_cannot_carry_is_told_as_text(written: Written, value: object, expected: object) -> None:
    written.log.log("odd", value=value, other=1)
    line = written.lines()[0]
    assert (line["event"], line["value"], line["other"]) == ("odd", expected, 1)


def test_an_object_that_cannot_even_be_shown_is_told_by_its_type(written: Written) -> None:
    written.log.log("odd", value=Mute(), other=1)
    assert (written.lines()[0]["value"], written.lines()[0]["other"]) == ("Mute", 1)


def test_a_reader_that_went_away_does_not_disturb_the_caller() -> None:
    reading, writing = os.pipe()
    log = JsonLog(writing, "b1")
    os.close(reading)
    log.log("unheard")
    log.log("unheard")
    assert log.lines_lost == 2
    os.close(writing)
    log.log("not even a descriptor")
    assert log.lines_lost == 3


def test_a_full_pipe_loses_lines_and_says_how_many_once_it_flows_again() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    log = JsonLog(writing, "b1")
    while not log.lines_lost:
        log.log("flood", text="x" * 5000)
    log.log("lost too")
    whole = os.read(reading, 1 << 20)
    log.log("after")
    tail = os.read(reading, 1 << 20)
    os.close(reading)
    os.close(writing)
    complete = [line for line in (whole + tail).split(b"\n") if line.endswith(b"}")]
    last = msgspec.json.decode(complete[-1])
    assert (last["event"], last["lines_lost"], log.lines_lost) == ("after", 2, 0)
    assert all(msgspec.json.decode(line) for line in complete), "a torn line does not spoil the next one"
