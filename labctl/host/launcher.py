"""Starts a process that does not end with whoever starts it, and says why one has ended.

Standard library only: it also runs on hosts. Processes are found and stopped by `labctl.host.processes`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAST_WORDS_BYTES = 4096


@dataclass(frozen=True)
class Launch:
    """What is to be started, and where."""

    command: Sequence[str]
    folder: Path
    """In which it works."""
    errors: Path
    """The file for its standard error; whatever is in it stays."""
    output: Path | None = None
    """The file for its standard output; None: a pipe."""
    listens: bool = False
    """Its standard input is a pipe, else nothing."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """In its environment, beside ours."""

    @contextmanager
    def surroundings(self) -> Iterator[dict[str, Any]]:
        """What `subprocess` and `asyncio` have to be told; to be started within the block."""
        with ExitStack() as files:
            yield {
                "cwd": self.folder,
                "env": {**os.environ, **self.variables},
                "stdin": subprocess.PIPE if self.listens else subprocess.DEVNULL,
                "stdout": files.enter_context(self.output.open("ab")) if self.output else subprocess.PIPE,
                "stderr": files.enter_context(self.errors.open("ab")),
                # Neither Ctrl-C nor the end of a terminal is for it.
                "start_new_session": True,
            }


def start(program: Launch) -> int:
    """The pid of a process that is meant to outlive us."""
    with program.surroundings() as surroundings:
        process = subprocess.Popen(program.command, **surroundings)
    # Without this, Python would complain that nobody waits for it.
    process.returncode = 0
    return process.pid


def exit_code(pid: int) -> int | None:
    """Of a process that we have started; None while it runs. Tells it once."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def last_words(log: Path) -> str:
    """The last line that was meant for people: a program may write its events, as JSON, to the same file."""
    try:
        with log.open("rb") as file:
            cut = file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_WORDS_BYTES))
            lines = file.read().decode(errors="replace").splitlines()[1 if cut else 0 :]
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("{")), "")


def ended(name: str, code: int, words: str) -> str:
    """The sentence about a process that has ended, and should not have."""
    return f"{name} ended with {code}: {words.rstrip('.') or 'it said nothing'}"
