"""Looking again, and trying again, for a limited time. What time it is and when to stop is known here alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def look_until(
    done: Callable[[Answer], bool], look: Callable[[], Answer], limit_s: float, pause_s: float
) -> Answer:
    """What was seen last: something with which it is done or, when the time is over, whatever there is."""
    deadline = time.monotonic() + limit_s
    while True:
        seen = look()
        if done(seen) or time.monotonic() > deadline:
            return seen
        time.sleep(pause_s)


def try_again(
    passes: Callable[[Exception], bool], attempt: Callable[[], Answer], limit_s: float, pause_s: float
) -> Answer:
    """Its answer; an error that may pass is raised only when the time is over, any other at once."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return attempt()
        except Exception as error:
            if not passes(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause_s)
