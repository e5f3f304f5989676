"""The one error of whoever reads a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from labctl.exits import OUTCOME_UNKNOWN, LabError


class ResultProblem(LabError):
    """This is no result, or a damaged one, though a good one may have been meant; the text names the file."""

    exit_code = OUTCOME_UNKNOWN


@contextmanager
def ending_with(exit_code: int) -> Iterator[None]:
    """For a command by which such a problem means something else to programs."""
    try:
        yield
    except ResultProblem as problem:
        problem.exit_code = exit_code
        raise
