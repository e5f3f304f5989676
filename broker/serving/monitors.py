"""Who asks a broker about itself, and the answers: counts, open work, links and, on request, tables."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from broker import status
from broker.protocol.messages import StatusRequest
from broker.protocol.wire import WireError
from broker.transport.stream import Stream

BACKLOG_BYTES_MAX = 1 << 20


class Monitors:
    def __init__(self, describe: Callable[[bool], dict[str, Any]]) -> None:
        """`describe` says everything; with its tables if it is asked for them."""
        self._describe = describe
        self._loop = asyncio.get_running_loop()
        self._asking: set[Stream] = set()
        """Those that wait for an answer."""

    def asked(self, stream: Stream, request: StatusRequest) -> None:
        """In a turn of its own: a hundred requests in one frame must not keep everybody else waiting."""
        if stream in self._asking or stream.unwritten_bytes > BACKLOG_BYTES_MAX:
            raise WireError("a status request before the answer to the one before it was read")
        self._asking.add(stream)
        self._loop.call_soon(self._answer, stream, request.dump)

    def _answer(self, stream: Stream, dump: bool) -> None:
        self._asking.discard(stream)
        for answer in status.answers(self._describe(dump)) if stream.is_open else ():
            stream.say(answer)
