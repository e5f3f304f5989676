"""Which lines of a file count whose writer may have been killed while it wrote: those whose end is there.

What follows the last end is no line, however much of it can be read. Who goes on writing begins there; who reads
what a finished writer has left takes it for damage.
"""

from __future__ import annotations

from collections.abc import Iterator


def end(data: bytes) -> int:
    """Of the last whole line: where the next one is written."""
    return data.rfind(b"\n") + 1


def whole(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Every line that counts, with its number."""
    return enumerate(data.split(b"\n")[:-1], start=1)


def rest(data: bytes) -> bytes:
    """What follows the last end, without blanks."""
    return data[end(data) :].strip()
