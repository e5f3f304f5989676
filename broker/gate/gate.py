"""The one door through which effects leave: entries durable, then sends, then `processed`; pure.

Whatever a node is given is entered into its journal; what handling it leads to is submitted. That is carried out when
all that was entered before it is durable and everything submitted before it has been carried out, so that nobody hears
of what a crash could undo, and links stay first in first out. Carrying out ends with counting the message as
processed: its sender forgets it only then. Without a journal everything is durable at once.

Greetings pass through the gate as well. Who greets says how much it has processed; behind the gate that is
all that it has handled, and nothing is asked for twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

Append = Callable[..., int]
"""Hands an entry, in pieces, to the journal, which numbers it; some time later `Gate.durable` is called."""


class Gate:
    def __init__(self, append: Append | None = None) -> None:
        self._append = append
        self._newest: float = 0
        """Number of the newest entry that anything submitted from now on stands on."""
        self._durable = 0
        self._waiting: deque[tuple[float, Callable[..., None], tuple[Any, ...]]] = deque()

    def __len__(self) -> int:
        """How many effects wait."""
        return len(self._waiting)

    def enter(self, *pieces: bytes) -> None:
        """Whatever is submitted from now on stands on this entry."""
        if self._append is not None:
            self._newest = max(self._newest, self._append(*pieces))

    def seal(self) -> None:
        """Nothing more becomes durable: what waits, and whatever is submitted from now on, is never carried out."""
        self._append = None
        self._newest = inf

    def submit(self, carry_out: Callable[..., None], *arguments: Any) -> None:
        """`carry_out(*arguments)`, in its turn."""
        if self._waiting or self._newest > self._durable:
            self._waiting.append((self._newest, carry_out, arguments))
        else:
            carry_out(*arguments)

    def durable(self, number: int) -> None:
        """All entries up to this one are."""
        self._durable = max(self._durable, number)
        while self._waiting and self._waiting[0][0] <= self._durable:
            _, carry_out, arguments = self._waiting[0]
            try:
                carry_out(*arguments)
            finally:  # until then whatever it submits stands behind those that wait already
                self._waiting.popleft()
