"""What all tests share."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test is judged by the clock. The rest is as Hypothesis has it, which knows when it is in CI.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure() -> None:
    """What a shell runs in the background ignores Ctrl-C, and so would all that tests start and interrupt."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


@pytest.fixture(scope="session")
def require() -> Callable[[str], str]:
    """`require("mosquitto")` gives the program's path; without it the test is skipped, or fails in CI.

    A machine that is there to test everything must not turn green by testing less.
    """
    return find_program


def find_program(program: str) -> str:
    beside_python = shutil.which(str(Path(sys.executable).with_name(program)))
    path = beside_python or shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if path is not None:
        return path
    reason = f"{program} is not installed; make installs it, or tests/system-packages.sh says how"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
