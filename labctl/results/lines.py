"""Lines of JSON from a process that may have been killed while it wrote.

A line counts when its end is there. What follows the last end was being written when the writer was killed:
it is not there, however much of it can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from labctl.results.problem import ResultProblem

T = TypeVar("T")


def end(data: bytes) -> int:
    """Of the last whole line: where the next one is written."""
    return data.rfind(b"\n") + 1


def whole(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every line that counts, with its number."""
    return enumerate(data.split(b"\n")[:-1], start=1)


def read(path: Path, decode: Callable[[bytes], T], meaning: str) -> Iterator[T]:
    """Of a file of a result; `meaning` is what a line should have been."""
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
    """What can be read of a file whose writer has finished, and how many lines cannot.

    Here a last line counts with or without its end, as for Spark, which reads the same files: a writer that has
    finished has left none that is torn. No file, no lines.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        data = b""
    except OSError as error:
        raise ResultProblem(f"{path} cannot be read: {error.strerror}") from None
    found: list[T] = []
    damaged = 0
    for text in data.split(b"\n"):
        if not text.strip():
            continue
        try:
            found.append(decode(text))
        except msgspec.MsgspecError:
            damaged += 1
    return found, damaged


def cannot_be_read(count: int) -> str:
    return f"{count} line{'s' if count > 1 else ''} cannot be read"
