"""The vocabulary of playbooks: a host, what can be done on it, and what comes back."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

Made = TypeVar("Made")
Duration = Literal["command", "transfer", "boot"]


class PlaybookError(Exception):
    """A host that is not as it has to be; the sentence says what to do about it."""


@dataclass(frozen=True)
class Target:
    """A host as playbooks know it."""

    name: str
    folder: str
    """Ours alone, below the home of the user who logs in; made by `prepare`."""
    python: str = "python3"


@dataclass(frozen=True)
class Run:
    """A command that ends by itself."""

    command: str
    why: str
    sends: tuple[memoryview, ...] = ()
    """Its standard input, in pieces; not copied for each host."""
    shows: str = ""
    """For a dry run, when the command itself is too long to read."""
    answers: str = ""
    """For a dry run: what a host that was never used would print."""
    may_fail: bool = False
    """The playbook looks at the exit code itself; otherwise a failure ends it."""
    takes: Duration = "command"
    """How long it may last: the time-out of a command, of a transfer, or of a machine's start."""


@dataclass(frozen=True)
class Fetch:
    """A command that writes a compressed archive, which is unpacked here."""

    command: str
    into: Path
    why: str


@dataclass(frozen=True)
class Attach:
    """A command that stays; its standard input and output become a line to it."""

    command: str
    why: str


Step = Run | Fetch | Attach


@dataclass(frozen=True)
class CommandResult:
    code: int = 0
    out: str = ""
    err: str = ""

    @property
    def last_words(self) -> str:
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1] if lines else f"it ended with {self.code}"


Playbook = Generator[Step, CommandResult, Made]


def shell(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)
