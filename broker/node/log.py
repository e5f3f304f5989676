"""The log of a node: one JSON object per line.

Every line has `t`, nanoseconds of this host's monotonic clock, by which latencies are measured, and
`node`. The first line of a file also has `wall`, nanoseconds since 1970 at the moment of its `t`, for people who
want to know the date; order across hosts never comes from it.

A log that is a file is bounded: `broker.node.rotation` says how.

Logging never raises into the caller: a broker does not stop because nobody reads what it says. Lines
that could not be written are counted, and the count is told when writing works again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from broker.node.rotation import Rotation

RESERVED = frozenset({"t", "wall", "node", "event"})
"""A field of one of these names gets an underscore behind it."""

_encode = msgspec.json.Encoder(enc_hook=repr).encode


class JsonLog:
    """Writes to a file descriptor that it does not own, each line in one call: no line is held back,
    and lines of several processes appending to one file stay whole."""

    def __init__(self, fd: int, node: str, bytes_max: int | None = None) -> None:
        """`bytes_max`: of its file; what is older is kept in a few files beside it. None: it may grow."""
        self._fd = fd
        self._rotation = Rotation(fd, bytes_max)
        self._node = node
        self._is_first = True
        self._is_torn = False
        self.lines_lost = 0

    def log(self, event: str, /, **fields: Any) -> None:
        self._write(event, fields)

    def emit(self, record: Mapping[str, Any]) -> None:
        """A record that names its own event, such as those of `Vitals`."""
        fields = dict(record)
        self._write(str(fields.pop("event", "unnamed")), fields)

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        data = self._line(event, fields)
        if not self._rotation.has_room(len(data)) and self._rotation.begin_anew():
            self._is_first, self._is_torn = True, False
            data = self._line(event, fields)
        if self._write_bytes(data):
            self._rotation.add(len(data))
            self._is_first = False
            self.lines_lost = 0
        else:
            self.lines_lost += 1

    def _line(self, event: str, fields: dict[str, Any]) -> bytes:
        line: dict[str, Any] = {"t": time.monotonic_ns()}
        if self._is_first:
            line["wall"] = time.time_ns()
        line["node"] = self._node
        line["event"] = event
        if self.lines_lost:
            line["lines_lost"] = self.lines_lost
        for name, value in fields.items():
            line[f"{name}_" if name in RESERVED else name] = value
        return to_json(line) + b"\n"

    def _write_bytes(self, data: bytes) -> bool:
        """Whether the whole line is out. A closed pipe, a full disk and a full non-blocking pipe are all
        the same to us: this line is lost, a later one may not be."""
        if self._is_torn:
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
                self._is_torn = bool(view)
        except OSError:
            return False
        return True


def to_json(line: dict[str, Any]) -> bytes:
    """A line, whatever its fields are."""
    try:
        return _encode(line)
    except Exception:  # noqa: BLE001 - a field's own code runs in there, and may raise anything
        return _encode({_name(name): _value(value) for name, value in line.items()})


def _name(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def _value(value: object) -> msgspec.Raw | str:
    """What JSON cannot carry is told as text, what cannot be told by the name of its type."""
    for tell in (_encode, _encode_text):
        try:
            return msgspec.Raw(tell(value))
        except Exception:  # noqa: BLE001 - as above
            continue
    return type(value).__name__


def _encode_text(value: object) -> bytes:
    return _encode(ascii(value))
