"""The histories of a repetition, of its brokers and clients, and the tables at its end, read into memory.

Histories are `*.jsonl`, below `history/` or, where there is no such folder, anywhere in it: what
`broker.node.history` writes. Tables are `tables/*.json`: a broker's status with its tables, as
`labctl overlay status --dump --json` prints it.
Within a file lines are in order; nothing is concluded from clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, field

from broker.protocol import events
from broker.protocol.events import FIRST, Detail, is_kept
from labctl.results import layout, lines
from labctl.results.documents import read_json
from labctl.results.problem import ResultProblem

DETAILS: tuple[Detail, ...] = get_args(Detail)
"""From most to least."""


class Line(Struct, frozen=True):
    """As `labctl.checks.history.Moment`."""

    node: str
    number: int
    time: float
    name: str
    fields: dict[str, Any]


class NodeHistory(Struct):
    """The history of one life of a node."""

    path: str
    node: str
    role: Literal["broker", "client"]
    incarnation: int
    detail: Detail
    lines: list[Line]


class Result(Struct):
    files: list[NodeHistory]
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By broker, where they were kept."""
    gaps: list[str] = field(default_factory=list)
    """What is missing, as sentences: then nothing can be said to be valid."""

    @property
    def brokers(self) -> list[str]:
        return sorted({file.node for file in self.files if file.role == "broker"})

    @property
    def detail(self) -> Detail:
        """The least that every node has told: what only some have told would mislead."""
        return max((file.detail for file in self.files), key=DETAILS.index)

    def lines(self) -> Iterator[Line]:
        """Node by node, each in its order."""
        detail = self.detail
        for file in self.files:
            yield from (line for line in file.lines if is_kept(detail, line.name, line.fields))


class _First(Struct, frozen=True):
    """Fields of the first line."""

    role: Literal["broker", "client"]
    incarnation: int
    detail: Detail


_decode = msgspec.json.Decoder(Line).decode


def load(folder: Path) -> Result:
    if not folder.is_dir():
        raise ResultProblem(f"{folder} is no folder; a result is a folder with histories (*.jsonl)")
    gaps: list[str] = []
    histories = folder / layout.HISTORY if (folder / layout.HISTORY).is_dir() else folder
    found = [_read(path, gaps) for path in sorted(histories.rglob("*.jsonl"))]
    files = [file for file in found if file is not None]
    if not files:
        raise ResultProblem(f"{folder} holds no history; brokers and clients write one if they are told to")
    result = Result(files, _tables(folder), gaps)
    arrange(result)
    gaps += _missing(result)
    return result


def salvage(folder: Path) -> Result:
    """Of a repetition that has finished: what can be read. What cannot, or is no history, is a gap."""
    result = Result([])
    for path in sorted((folder / layout.HISTORY).glob("*.jsonl")):
        found, damaged = lines.salvage(path, _decode)
        take(result, path.name, found, damaged)
    for path in sorted((folder / layout.TABLES).glob("*.json")):
        take_tables(result, path.name, path.read_bytes())
    arrange(result)
    return result


def arrange(result: Result) -> None:
    """The lives of each node in their order."""
    result.files.sort(key=lambda file: (file.node, file.incarnation))


def take(result: Result, name: str, found: list[Line], damaged: int) -> None:
    """A file of a repetition: its lines, and how many more could not be read."""
    if damaged:
        result.gaps.append(f"{name}: {lines.cannot_be_read(damaged)}")
    found.sort(key=lambda line: line.number)
    if not found:
        return
    if (gap := _gap(name, found)) is not None:
        result.gaps.append(gap)
    try:
        result.files.append(_file(name, found))
    except msgspec.ValidationError:
        result.gaps.append(f"{name} does not begin like a history")


def take_tables(result: Result, name: str, text: str | bytes) -> None:
    """A broker's tables at the end of a repetition."""
    try:
        for status in _statuses(msgspec.json.decode(text)):
            result.tables[str(status["broker"])] = tables_of(status)
    except (KeyError, TypeError, msgspec.MsgspecError):
        result.gaps.append(f"{name} holds no tables of a broker")


def _read(path: Path, gaps: list[str]) -> NodeHistory | None:
    """None if it has no lines at all: its writer was killed before the first was written."""
    found = list(lines.read(path, _decode, "line of a history"))
    if not found:
        return None
    try:
        file = _file(str(path), found)
    except msgspec.ValidationError:
        raise ResultProblem(f"{path} does not begin like a history") from None
    if (gap := _gap(str(path), found)) is not None:
        gaps.append(gap)
    return file


def _file(path: str, found: list[Line]) -> NodeHistory:
    """Raises `msgspec.ValidationError` if its first line is not that of a history."""
    first = found[0]
    if first.name != FIRST or first.number != 1:
        raise msgspec.ValidationError("not the first line")
    beginning = msgspec.convert(first.fields, _First)
    return NodeHistory(path, first.node, beginning.role, beginning.incarnation, beginning.detail, found)


def _gap(path: str, found: list[Line]) -> str | None:
    """The first line that is not the one that was due."""
    node = found[0].node
    for expected, line in enumerate(found, 1):
        if line.number != expected or line.node != node:
            return f"{path}: line {line.number} of {line.node} where {expected} of {node} was due"
    return None


def _tables(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted((folder / layout.TABLES).glob("*.json")):
        document = read_json(path)
        try:
            for status in _statuses(document):
                found[str(status["broker"])] = tables_of(status)
        except (KeyError, TypeError) as error:
            raise ResultProblem(f"{path} holds no tables of a broker: {error!r}") from None
    return found


def tables_of(status: dict[str, Any]) -> dict[str, Any]:
    """What the checks look at."""
    return {"open": status["open"], **status["tables"]}


def _statuses(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Of one broker, or of all of an overlay."""
    return [row["status"] for row in document["brokers"]] if "brokers" in document else [document]


def _missing(result: Result) -> list[str]:
    """Brokers that somebody names and that have told nothing."""
    named = set(result.tables)
    for line in result.lines():
        if line.name == events.CONNECTED:
            named.add(str(line.fields["home"]))
        elif line.name in (events.SENT, events.ARRIVED) and str(line.fields["link"]).startswith("broker:"):
            named.add(str(line.fields["link"]).partition(":")[2])
    return [f"there is no history of broker {name}" for name in sorted(named - {*result.brokers})]
