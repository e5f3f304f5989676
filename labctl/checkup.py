"""One finding about a machine or a testbed: what was looked at, whether it is well, and what to do if not."""

from __future__ import annotations

from msgspec import Struct


class Check(Struct, frozen=True):
    name: str
    ok: bool
    detail: str
    """What was found."""
    advice: str = ""
    """What to do; empty when all is well."""
    required: bool = True
    """False: the lab works without it, with less comfort or less trust in its figures."""
