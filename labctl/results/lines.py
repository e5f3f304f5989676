"""Lines of JSON from a process that may have been killed while it wrote (`labctl.host.whole_lines` has the rule)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from labctl.host.whole_lines import rest, whole
from labctl.results.problem import ResultProblem

T = TypeVar("T")


def read(path: Path, decode: Callable[[bytes], T], meaning: str) -> Iterator[T]:
    """Of a file whose writer may have been killed; `meaning` is what a line should have been."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ResultProblem(f"{path} cannot be read: {error.strerror}") from None
    for number, text in whole(data):
        if not text:
            continue
        try:
            yield decode(text)
        except msgspec.MsgspecError as error:
            raise ResultProblem(f"{path}, line {number}, is no {meaning}: {error}") from None


def salvage(path: Path, decode: Callable[[bytes], T]) -> tuple[list[T], int]:
    """What can be read of a file whose writer has finished, and how many lines cannot. No file, no lines.

    A writer that has finished has left no line without its end: such a rest is a line that cannot be read.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        data = b""
    except OSError as error:
        raise ResultProblem(f"{path} cannot be read: {error.strerror}") from None
    found: list[T] = []
    damaged = 1 if rest(data) else 0
    for _, text in whole(data):
        if not text.strip():
            continue
        try:
            found.append(decode(text))
        except msgspec.MsgspecError:
            damaged += 1
    return found, damaged


def cannot_be_read(count: int) -> str:
    return f"{count} line{'s' if count > 1 else ''} cannot be read"
