"""The recordings of a repetition: per life of a broker what its core was made of and given, and what it did.

A recording is the history of a broker at the level `all` (`broker.recorded`). It must be whole: a core that has missed
one arrival says nothing about its node.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from broker.protocol.events import CLOSED, GIVEN, LOST, MADE, MESSAGES, PUT
from broker.protocol.wire import PROTOCOL_VERSION
from broker.recorded import VERSION, Given, LinkLost, Made, Put
from labctl.results import histories
from labctl.results.histories import Line, NodeHistory, Result
from labctl.results.problem import ResultProblem

HOW = 'record one with `labctl run experiment NAME --history all`, or by brokers with history_detail = "all"'


class RecordedLine(Struct, frozen=True):
    """A line of a recording."""

    line: Line
    what: Given | Put | None
    """None: something that the core had to tell."""


class Recording(Struct, frozen=True):
    """One life of a broker."""

    made: Made
    entries: tuple[RecordedLine, ...]
    lost: tuple[LinkLost, ...] = ()
    """Connections, which the core does not know."""

    @property
    def node(self) -> str:
        return self.made.broker


def load(folder: Path) -> list[Recording]:
    return of(histories.load(folder), folder)


def of(result: Result, folder: Path) -> list[Recording]:
    """Of all brokers of a repetition. Raises `ResultProblem`, with the reason and a remedy, if one is missing."""
    files = [file for file in result.files if file.role == "broker"]
    if not files:
        raise ResultProblem(f"{folder} holds no history of a broker; {HOW}")
    recordings = [recording_of(file) for file in files]
    names = {recording.node for recording in recordings}
    for recording in recordings:
        for neighbour in recording.made.neighbours:
            if neighbour not in names:
                raise ResultProblem(
                    f"{folder} lacks the history of {neighbour}, a neighbour of {recording.node}; {HOW}"
                )
    return recordings


def recording_of(file: NodeHistory) -> Recording:
    path, lines = file.path, file.lines
    if file.detail != "all":
        raise ResultProblem(
            f"{path} has the detail {file.detail!r}, without what came to the broker: it cannot be replayed; {HOW}"
        )
    if len(lines) < 2 or lines[1].name != MADE:
        raise ResultProblem(f"{path} does not say what its core was made of: an older broker wrote it; {HOW}")
    version = lines[1].fields.get("version"), lines[1].fields.get("protocol")
    if version != (VERSION, PROTOCOL_VERSION):
        raise ResultProblem(
            f"{path} is a recording of version {version[0]} of protocol {version[1]}, and this labctl replays version "
            f"{VERSION} of protocol {PROTOCOL_VERSION}: replay it with the labctl that recorded it, or {HOW}"
        )
    for number, line in enumerate(lines, 1):
        if line.number != number or line.node != file.node:
            raise ResultProblem(
                f"{path} is cut: line {number} is missing, what is there is {line.number}; {HOW}"
            )
    if lines[-1].name != CLOSED:
        raise ResultProblem(
            f"{path} is cut: it does not end as that of a broker that was stopped in peace; {HOW}"
        )
    try:
        # Messages of transactions stand in `given` and `put`, too.
        entries = [_entry(line) for line in lines[2:-1] if line.name not in MESSAGES | {LOST}]
        lost = [msgspec.convert(line.fields, LinkLost) for line in lines if line.name == LOST]
        return Recording(msgspec.convert(lines[1].fields, Made), tuple(entries), tuple(lost))
    except msgspec.ValidationError as error:
        raise ResultProblem(f"{path} is damaged: {error}; {HOW}") from None


def _entry(line: Line) -> RecordedLine:
    if line.name == GIVEN:
        return RecordedLine(line, msgspec.convert(line.fields, Given))
    return RecordedLine(line, msgspec.convert(line.fields, Put) if line.name == PUT else None)
