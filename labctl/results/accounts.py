"""What a repetition tells of itself: what it was to do, what came of its transactions, and its histories.

A repetition counts when it has finished, so nothing in it may be missing: what cannot be read, or is not
there, is a gap, and the rest is told all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from labctl import topology
from labctl.results import histories, layout, lines
from labctl.results.documents import read_text
from labctl.results.histories import Result
from labctl.results.problem import ResultProblem


class Due(Struct, frozen=True):
    """What a repetition was to do: of its `cell.json`, what it is judged by."""

    approach: str
    brokers: Annotated[int, Meta(ge=1)]
    clients: tuple[str, ...]
    copies: int
    """So many coordinators."""
    transactions: int
    """Counted, of each coordinator."""
    warm_up: int
    """Before them."""
    measured: dict[str, int] = {}
    """So many lines each file of measurements was finished with."""

    @property
    def nodes(self) -> list[str]:
        """All of them tell a history."""
        return sorted({*topology.standard(self.brokers).brokers, *self.clients})

    @property
    def lines(self) -> int:
        """Of `transactions.jsonl`; where time is what is given, so many as it was finished with."""
        return self.measured.get(layout.TRANSACTIONS) or self.copies * (self.transactions + self.warm_up)

    @property
    def counted(self) -> int:
        """Transactions of all coordinators that count."""
        return self.lines - self.copies * self.warm_up


class Attempted(Struct, frozen=True):
    """A line of `transactions.jsonl`, as far as it is judged."""

    number: int
    start_s: float
    outcome: str
    copy: int = 0
    warm_up: bool = False
    reason: str = ""
    correct: bool | None = None
    fault: str = ""


class Account(Struct):
    due: Due | None
    """None: it does not say."""
    attempts: list[Attempted]
    result: Result
    """Its histories and tables."""
    measured: dict[str, int] = field(default_factory=dict)
    """Lines of files of measurements that can be read."""
    gaps: list[str] = field(default_factory=list)
    """What is missing beside those of the histories."""


def due_of(document: Mapping[str, Any]) -> Due | None:
    """Of a decoded `cell.json`; None if it does not say what was to be done."""
    parameters = document.get("parameters")
    try:
        return msgspec.convert(
            {
                "clients": sorted(document["placement"]),
                "transactions": document["transactions"],
                "warm_up": document["warm_up"],
                "approach": parameters["approach"],  # type: ignore[index]
                "brokers": parameters["brokers"],  # type: ignore[index]
                "copies": parameters["copies"],  # type: ignore[index]
                "measured": document.get("measured") or {},
            },
            Due,
        )
    except (KeyError, TypeError, msgspec.ValidationError):
        return None


_attempted = msgspec.json.Decoder(Attempted).decode


def attempted(text: str | bytes) -> Attempted:
    """A line; raises `msgspec.MsgspecError` for what is none."""
    return _attempted(text)


def load(folder: Path) -> Account:
    """All that a folder holds; nothing that is wrong with a file of it is an error."""
    found, damaged = lines.salvage(folder / layout.TRANSACTIONS, attempted)
    gaps = [f"{layout.TRANSACTIONS}: {lines.cannot_be_read(damaged)}"] if damaged else []
    return Account(_due(folder), found, histories.salvage(folder), measured(folder), gaps)


def measured(folder: Path) -> dict[str, int]:
    """Of each file of measurements that is there, how many lines can be read."""
    return {
        name: len(lines.salvage(folder / name, msgspec.json.decode)[0])
        for name in layout.MEASURED
        if (folder / name).exists()
    }


def _due(folder: Path) -> Due | None:
    try:
        document = msgspec.json.decode(read_text(str(folder / layout.CELL)) or "null")
    except (ResultProblem, msgspec.MsgspecError):
        return None
    return due_of(document) if isinstance(document, dict) else None
