"""What the transactions of a client need from whatever runs them: asyncio, or a simulator."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol

from broker.protocol.wire import AnyMessage


class Future(Protocol):
    """As much of `asyncio.Future` as is needed."""

    def done(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: Any, /) -> None: ...

    def exception(self) -> BaseException | None: ...

    def __await__(self) -> Generator[Any, None, Any]: ...


class DelayedCall(Protocol):
    def cancel(self) -> None: ...


class Port(Protocol):
    def send(self, *messages: AnyMessage) -> None:
        """At once, and together."""

    def future(self) -> Future: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside everything else; it raises nothing."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> DelayedCall: ...


def resolve(future: Future | None, result: Any = None) -> None:
    if future is not None and not future.done():
        future.set_result(result)


def fail(future: Future | None, error: Exception) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()  # seen, even if nobody awaits it
