"""Looking again, and trying again, for a limited time. What time it is and when to stop is known here alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

Answer = TypeVar("Answer")


def look_until(
    done: Callable[[Answer], bool], look: Callable[[], Answer], limit_s: float, pause_s: float
) -> Answer:
    """What was seen last: something with which it is done or, when the time is over, whatever there is."""
    for _ in _turns(limit_s, pause_s):
        seen = look()
        if done(seen):
            break
    return seen


def try_again(
    passes: Callable[[Exception], bool], attempt: Callable[[], Answer], limit_s: float, pause_s: float
) -> Answer:
    """Its answer; an error that may pass is raised only when the time is over, any other at once."""
    for _ in _turns(limit_s, pause_s):
        try:
            return attempt()
        except Exception as error:
            if not passes(error):
                raise
            last = error
    raise last


def _turns(limit_s: float, pause_s: float) -> Iterator[None]:
    """One at once, and one after each pause; the last when the time is over, not later."""
    deadline = time.monotonic() + limit_s
    yield
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(pause_s, left_s))
        yield
