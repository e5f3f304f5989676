"""The names of the files in a data folder.

What has its final name is complete: it was written and synced under another, which ends in `.new`. Of such a file
nobody has been told, and it is removed when the folder is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

LOCK = "lock"
IDENTITY = "identity"
QUOTA = "quota"
UNFINISHED = ".new"

_NAME = re.compile(r"(segment|snapshot)-(\d{8,})")


class Contents(NamedTuple):
    segments: list[int]
    """In order, as are the snapshots."""
    snapshots: list[int]
    unfinished: list[str]
    strange: list[str]
    """What is not ours."""


def segment_name(number: int) -> str:
    return f"segment-{number:08}"


def snapshot_name(number: int) -> str:
    """The state in front of the segment with this number."""
    return f"snapshot-{number:08}"


def read_names(names: Iterable[str]) -> Contents:
    contents = Contents([], [], [], [])
    for name in sorted(names):
        final = name.removesuffix(UNFINISHED)
        match = _NAME.fullmatch(final)
        if final != name and (match or final == IDENTITY):
            contents.unfinished.append(name)
        elif match:
            numbers = contents.segments if match[1] == "segment" else contents.snapshots
            numbers.append(int(match[2]))
        elif name not in {LOCK, IDENTITY, QUOTA}:
            contents.strange.append(name)
    contents.segments.sort()
    contents.snapshots.sort()
    return contents
