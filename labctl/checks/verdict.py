"""What a check says."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Answer = Literal["valid", "invalid", "unknown"]


class Fault(Struct, frozen=True):
    """A broken promise, with the operations that show it."""

    property: str
    text: str


class Verdict(Struct, frozen=True):
    property: str
    answer: Answer
    checked: int
    """How many things were looked at: none looked at is not valid but unknown."""
    faults: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    """What happened on overlapping spaces to transactions that promise nothing there."""
