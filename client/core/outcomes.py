"""How a transaction ended, as far as its coordinator knows."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from client.core.errors import OutcomeUnknown, TransactionAborted


class Outcome(Struct, frozen=True):
    state: Literal["committed", "aborted", "unknown"]
    reason: str = ""

    def raise_unless_committed(self) -> None:
        if self.state == "aborted":
            raise TransactionAborted(self.reason)
        if self.state == "unknown":
            raise OutcomeUnknown(self.reason)


COMMITTED = Outcome("committed")


def aborted(reason: str) -> Outcome:
    return Outcome("aborted", reason)


def unknown(reason: str) -> Outcome:
    return Outcome("unknown", reason)
