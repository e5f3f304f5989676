"""Words that all messages share: the base of them, kinds of operations, places in the order."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["adv", "uadv", "sub", "usub"]
Key = tuple[int, str]
"""Place of a transaction in the commit order: (epoch, transaction id); `NO_KEY` before the first."""
NO_KEY: Key = (0, "")
Stamp = tuple[Key, int, int, int]
"""(key, class, incarnation, number): orders the records of one client, and only those."""
NO_STAMP: Stamp = (NO_KEY, 0, 0, 0)


class Message(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base of all messages: one array, tag first."""
