"""Frames that were received and not handled, because a destination of their source is full; pure."""

from __future__ import annotations

from collections import deque

from broker.protocol.link import WINDOW_BYTES
from broker.protocol.wire import BODY_BYTES_MAX, AnyMessage, WireError

HELD_BYTES_MAX = 4 * WINDOW_BYTES + BODY_BYTES_MAX
"""A window of messages, each in a frame of its own, and the frame that overfills it."""


class Held:
    def __init__(self) -> None:
        self.frames: deque[tuple[list[AnyMessage], bytes]] = deque()
        self._bytes = 0

    def append(self, messages: list[AnyMessage], body: bytes) -> None:
        """Only so much: a peer that does not heed its window could fill our memory."""
        self._bytes += len(body)
        if self._bytes > HELD_BYTES_MAX:
            raise WireError(f"{self._bytes} bytes under way; the window is {WINDOW_BYTES}")
        self.frames.append((messages, body))

    def popleft(self) -> tuple[list[AnyMessage], bytes]:
        messages, body = self.frames.popleft()
        self._bytes -= len(body)
        return messages, body

    def clear(self) -> None:
        self.frames.clear()
        self._bytes = 0
