"""Time as what is pure gets it from whoever runs it: an event loop, or a simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> Timer: ...

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> object:
        """When the present step is over."""
