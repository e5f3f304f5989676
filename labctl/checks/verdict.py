"""What a check says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from textwrap import wrap
from typing import Literal

from msgspec import Struct

Answer = Literal["valid", "invalid", "unknown"]
WIDTH = 80
"""Of what people read, in columns."""


class BrokenPromise(Struct, frozen=True):
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
    note: str = ""
    """What was found, where that needs words though nothing is broken."""


_SEVERITY: Mapping[Answer, int] = {"valid": 0, "unknown": 1, "invalid": 2}


def worst(answers: Collection[Answer]) -> Answer:
    """Over repetitions: all of them are valid only if each is."""
    return max(answers, key=lambda answer: _SEVERITY[answer], default="unknown")


def strongest(answers: Collection[Answer]) -> Answer:
    """Over properties: one broken promise is enough; where nothing is promised, nothing is broken."""
    return "invalid" if "invalid" in answers else "valid" if "valid" in answers else "unknown"


def lines_of(property_: str, text: str) -> list[str]:
    """A fault or an anomaly for people: what comes after its first line, and what does not fit, is indented."""
    first, *others = text.split("\n")
    found = wrap(f"{property_}: {first}", WIDTH, subsequent_indent="  ")
    for line in others:
        found += wrap(line, WIDTH, subsequent_indent="      ")
    return found
