"""Journals for tests of what waits for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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


class Hand:
    """Time that a test moves, and what was to be done meanwhile."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, Callable[[], object], _Cancelled]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> _Cancelled:
        timer = _Cancelled()
        self._due.append((self.now + delay, partial(callback, *args), timer))
        return timer

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> object:
        return self.call_later(0.0, callback, *args)

    def advance(self, milliseconds: float) -> None:
        self.now += milliseconds / 1e3
        while due := [entry for entry in self._due if entry[0] <= self.now]:
            first = min(due, key=lambda entry: entry[0])
            self._due.remove(first)
            if not first[2].is_cancelled:
                first[1]()


class _Cancelled:
    """A timer, if it is."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
