"""Journals for tests of what waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Disk:
    """A journal whose entries become durable when a test says so, some at a time."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.durable = 0

    def append(self, *pieces: bytes) -> int:
        self.entries.append(b"".join(pieces))
        return len(self.entries)

    def sync(self) -> int:
        return len(self.entries)

    def sync_soon(self, sync: Callable[[], None]) -> None:
        """A test says when."""

    def journal_failed(self, error: Exception) -> None:
        raise error

    def rested(self) -> None:
        """Nobody looks."""


class NoClock:
    """Time that a test moves; nothing happens by itself."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_later(self, _delay: float, _callback: Callable[..., object], *_args: Any) -> NoTimer:
        return NoTimer()

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        return callback(*args)


class NoTimer:
    def cancel(self) -> None:
        """It does not run."""
