"""Coroutines without an event loop: futures, and tasks that run until they await one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any


class SimFuture:
    """As much of `asyncio.Future` as `client.core.port` asks for."""

    __slots__ = ("_callbacks", "_error", "_is_done", "_result")

    def __init__(self) -> None:
        self._is_done = False
        self._result: Any = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: Any, /) -> None:
        self._result = result
        self._finish()

    def set_exception(self, exception: Any, /) -> None:
        self._error = exception
        self._finish()

    def exception(self) -> BaseException | None:
        return self._error

    def when_done(self, callback: Callable[[], None]) -> None:
        if self._is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._is_done:
            yield self
        if self._error is not None:
            raise self._error
        return self._result

    def _finish(self) -> None:
        assert not self._is_done
        self._is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Task:
    """Runs a coroutine as far as it goes, and again whenever what it awaits is done."""

    def __init__(self, work: Coroutine[Any, Any, Any], soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls its argument when the present step is over, so that steps do not nest."""
        self._work = work
        self._soon = soon
        self.is_done = False
        self.error: BaseException | None = None
        self.result: Any = None
        soon(self._step)

    def cancel(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._work.close()

    def _step(self) -> None:
        if self.is_done:
            return
        try:
            future: SimFuture = self._work.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value
        except BaseException as error:  # noqa: BLE001 kept for whoever looks at the task
            self.is_done, self.error = True, error
        else:
            future.when_done(lambda: self._soon(self._step))
