"""A result's folder: the histories of its brokers and clients, and the tables at its end, read into memory.

Histories are `*.jsonl`, below `history/` or, where there is no such folder, anywhere in it: what
`broker.transport.history` writes. Tables are `tables/*.json`: a broker's status with its tables, as
`labctl overlay status --dump --json` prints it.
Within a file lines are in order; nothing is concluded from clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, field

from broker.transport.history import FIRST, Detail, is_kept
from labctl.exits import UsageProblem

DETAILS: tuple[Detail, ...] = get_args(Detail)
"""From most to least."""


class ResultProblem(UsageProblem):
    """A folder that holds no result, or a file in it that is no history; the text names it."""


class Line(Struct, frozen=True):
    """As `labctl.checks.history.Moment`."""

    node: str
    number: int
    time: float
    name: str
    fields: dict[str, Any]


class File(Struct):
    """The history of one life of a node."""

    path: str
    node: str
    role: Literal["broker", "client"]
    incarnation: int
    detail: Detail
    lines: list[Line]


class Result(Struct):
    files: list[File]
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


def repetitions(folder: Path) -> list[Path]:
    """Of the result of an experiment, each with histories of its own; empty for any other folder."""
    return [path.parent for path in sorted(folder.glob("cells/*/*/cell.json"))]


def load(folder: Path) -> Result:
    if not folder.is_dir():
        raise ResultProblem(f"{folder} is no folder; a result is a folder with histories (*.jsonl)")
    gaps: list[str] = []
    histories = folder / "history" if (folder / "history").is_dir() else folder
    found = [_read(path, gaps) for path in sorted(histories.rglob("*.jsonl"))]
    files = [file for file in found if file is not None]
    if not files:
        raise ResultProblem(f"{folder} holds no history; brokers and clients write one if they are told to")
    files.sort(key=lambda file: (file.node, file.incarnation))
    result = Result(files, _tables(folder), gaps)
    gaps += _missing(result)
    return result


def _read(path: Path, gaps: list[str]) -> File | None:
    """None if it has no lines at all: its writer was killed before the first was written."""
    lines: list[Line] = []
    texts = path.read_bytes().split(b"\n")
    for place, text in enumerate(texts, 1):
        if not text:
            continue
        try:
            lines.append(msgspec.json.decode(text, type=Line))
        except msgspec.MsgspecError as error:
            if place == len(texts):
                break  # its writer was killed while it wrote
            raise ResultProblem(f"{path}, line {place}, is no line of a history: {error}") from None
    if not lines:
        return None
    first = lines[0]
    if first.name != FIRST or first.number != 1:
        raise ResultProblem(f"{path} does not begin like a history")
    for expected, line in enumerate(lines, 1):
        if line.number != expected or line.node != first.node:
            gaps.append(f"{path}: line {line.number} of {line.node} where {expected} of {first.node} was due")
            break
    return File(str(path), first.node, lines=lines, **first.fields)


def _tables(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted((folder / "tables").glob("*.json")):
        try:
            document = msgspec.json.decode(path.read_bytes())
            for status in _statuses(document):
                found[str(status["broker"])] = {"open": status["open"], **status["tables"]}
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise ResultProblem(f"{path} holds no tables of a broker: {error!r}") from None
    return found


def _statuses(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Of one broker, or of all of an overlay."""
    return [row["status"] for row in document["brokers"]] if "brokers" in document else [document]


def _missing(result: Result) -> list[str]:
    """Brokers that somebody names and that have told nothing."""
    named = set(result.tables)
    for line in result.lines():
        if line.name == "connected":
            named.add(str(line.fields["home"]))
        elif line.name in ("sent", "arrived") and str(line.fields["link"]).startswith("broker:"):
            named.add(str(line.fields["link"]).partition(":")[2])
    return [f"there is no history of broker {name}" for name in sorted(named - {*result.brokers})]
