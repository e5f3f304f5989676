"""What happened at a node, one JSON object a line: the material of the checks.

A line has `node`, `number` (counts at the node, without gaps), `time` (this host's monotonic clock in
seconds, for latencies only), `name` and `fields`. A message of a transaction stands there with its link
and its number on that link, at both ends: what came before what needs no clock. Lines are gathered and
written once a second, or when many wait; nothing is written, and no timer runs, where nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from broker.node.log import to_json
from broker.protocol.events import FIRST, Detail, MessageEvent, is_kept

FLUSH_S = 1.0
FLUSH_BYTES = 256 << 10

_STDERR = 2
_encode = msgspec.json.Encoder().encode


class HistoryFile:
    """Appends to a file of its own."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        node: str,
        role: str,
        incarnation: int,
        detail: Detail,
        goes_on: bool = False,
    ) -> None:
        """In the running loop. A process that goes on where it was goes on with its lines.

        Raises `OSError` if there can be no such file.
        """
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._loop = asyncio.get_running_loop()
        self._node = node
        self.detail = detail
        self.has_messages = detail == "all"
        self.number = _whole_lines(self._fd) if goes_on else 0
        """Of the newest line."""
        self.passed_over = 0
        """So many lines will be told that are there."""
        self._lines: list[bytes] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lost = 0
        self._is_open = True
        if not self.number:
            self.note(FIRST, {"role": role, "incarnation": incarnation, "detail": detail})

    def note(self, name: str, fields: Mapping[str, Any]) -> None:
        if is_kept(self.detail, name, fields):
            self.record(name, fields)

    def record(self, name: str, fields: Mapping[str, Any] | Struct) -> None:
        """At whatever level of detail; a struct is written faster than a mapping."""
        if not self._is_open:
            return
        if self.passed_over:
            self.passed_over -= 1
            return
        self.number += 1
        line = {
            "node": self._node,
            "number": self.number,
            "time": time.monotonic(),
            "name": name,
            "fields": fields,
        }
        try:
            encoded = _encode(line)
        except (TypeError, ValueError):
            encoded = to_json(line)  # whatever it takes
        self._lines.append(encoded)
        self._bytes += len(encoded)
        if self._bytes > FLUSH_BYTES:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_S, self.flush)

    def message(self, name: MessageEvent, link: str, number: int, message: Any) -> None:
        """A message of a transaction, on the link to or from a peer."""
        what = {"tx": message.tx, "link": link, "seq": number, "message": type(message).__name__}
        if hasattr(message, "op"):
            what["op"] = message.op
        self.note(name, what)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lines:
            return
        lines, self._lines, self._bytes = self._lines, [], 0
        lines.append(b"")
        view = memoryview(b"\n".join(lines))
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            # The numbers have a gap now, by which the checks know.
            self._lost += len(lines) - 1
            with contextlib.suppress(OSError):
                os.write(_STDERR, f"history of {self._node}: {self._lost} lines lost\n".encode())

    def close(self) -> None:
        """Idempotent."""
        if self._is_open:
            self._is_open = False
            self.flush()
            os.close(self._fd)


def _whole_lines(fd: int) -> int:
    """How many the file has; the end of one that was not finished is cut off."""
    count = end = offset = 0
    while part := os.pread(fd, FLUSH_BYTES, offset):
        count += part.count(b"\n")
        if (last := part.rfind(b"\n")) >= 0:
            end = offset + last + 1
        offset += len(part)
    os.ftruncate(fd, end)
    return count
