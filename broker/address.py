"""`host:port`, as configurations and callers write it; pure."""

from __future__ import annotations


class AddressError(ValueError):
    """Not an address; the text shows what was given."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port; an IPv6 host stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise AddressError(f"{text!r} is not an address of the form host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
