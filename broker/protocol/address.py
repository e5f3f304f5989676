"""`host:port`, as configurations and callers write it; pure."""

from __future__ import annotations


class AddressError(ValueError):
    """Not an address; the text shows what was given."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port; an IPv6 host stands in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65535
    if not colon or not is_port or not _is_host(host):
        shown = repr(text) if len(text) <= 100 else f"{text[:100]!r}..."
        raise AddressError(f"{shown} is not an address of the form host:port")
    return host, int(port)


def _is_host(text: str) -> bool:
    try:
        text.encode("idna")
    except UnicodeError:  # an empty part, or one that is too long for any name server
        return False
    return bool(text) and text.isprintable() and " " not in text
