"""A one-shot timer finer than the event loop's own.

uvloop rounds its timers to a millisecond and asyncio adds up to one, which is too coarse for a link
delay of 2.2 ms. A Linux timerfd is an ordinary readable file descriptor to either loop, and the kernel
makes it readable within some tens of microseconds of the asked time.

Times are those of `time.monotonic()`. `loop.time()` has the same origin but is no substitute: uvloop
caches it and cuts it to milliseconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol

TICK_S_MIN = 0.001
"""Shortest wait of the fallback: uvloop turns a shorter one into 0, and a caller that then waits for
the rest would spin."""

_NANOSECONDS = 1_000_000_000
_EXPIRATIONS_BYTES = 8
_ABSOLUTE = 1
"""TFD_TIMER_ABSTIME, the same on every Linux."""


class ResettableTimer(Protocol):
    """What `DelayedSender` and `Vitals` need of a timer."""

    def set(self, when: float) -> None: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class PreciseTimer:
    """Calls `callback` once, at `when` or shortly after; `set` again replaces what was set.

    Where there is no timerfd it uses the loop's timer and is up to about 1 ms late; `is_precise` tells.
    """

    def __init__(self, callback: Callable[[], None], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._callback = callback
        self._loop = loop or asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._fd = _open_timerfd()
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._expired)

    @property
    def is_precise(self) -> bool:
        return self._fd is not None

    def set(self, when: float) -> None:
        if self._fd is not None:
            # Zero would disarm the timer; a nanosecond after boot is long past and fires at once.
            _set_timerfd(self._fd, max(1, int(when * _NANOSECONDS)))
            return
        self.cancel()
        delay_s = max(TICK_S_MIN, when - time.monotonic())
        self._handle = self._loop.call_later(delay_s, self._callback)

    def cancel(self) -> None:
        if self._fd is not None:
            _set_timerfd(self._fd, 0)
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        """Idempotent; the callback is not called any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None

    def _expired(self) -> None:
        if self._fd is None:
            return
        try:
            os.read(self._fd, _EXPIRATIONS_BYTES)
        except BlockingIOError:
            # Cancelled or set anew between the kernel's report and this call.
            return
        self._callback()


if sys.version_info >= (3, 13) and sys.platform == "linux":

    def _open_timerfd() -> int | None:
        return os.timerfd_create(time.CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)

    def _set_timerfd(fd: int, when_ns: int) -> None:
        os.timerfd_settime_ns(fd, flags=os.TFD_TIMER_ABSTIME, initial=when_ns)

else:

    class _Timespec(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    class _Itimerspec(ctypes.Structure):
        _fields_ = (("interval", _Timespec), ("value", _Timespec))

    _libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    _settime = getattr(_libc, "timerfd_settime", None)
    # One structure for all timers: the call copies it, and making one costs more than filling it.
    _spec = _Itimerspec()
    _value = _spec.value
    _spec_address = ctypes.byref(_spec)

    def _open_timerfd() -> int | None:
        create = getattr(_libc, "timerfd_create", None)
        if create is None or _settime is None:
            return None
        # TFD_NONBLOCK and TFD_CLOEXEC are defined as the flags of open(2).
        fd: int = create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:
            raise _last_error("timerfd_create")
        return fd

    def _set_timerfd(fd: int, when_ns: int) -> None:
        _value.seconds, _value.nanoseconds = divmod(when_ns, _NANOSECONDS)
        assert _settime is not None, "a timerfd was opened without timerfd_settime"
        if _settime(fd, _ABSOLUTE, _spec_address, None) < 0:
            raise _last_error("timerfd_settime")

    def _last_error(call: str) -> OSError:
        number = ctypes.get_errno()
        return OSError(number, f"{call}: {os.strerror(number)}")
