"""Exit codes, and the error that carries one.

Programs rely on these numbers: a code keeps its meaning for good.
"""

from __future__ import annotations

DONE = 0
CHECK_FAILED = 1
USAGE = 2
OUTCOME_UNKNOWN = 3
INFRASTRUCTURE = 4
LEFT_IN_CLOUD = 5
INTERRUPTED = 130


class LabError(Exception):
    """What a user can understand and act on: one sentence, and the exit code for programs."""

    exit_code = INFRASTRUCTURE


class UsageProblem(LabError):
    """The request itself is wrong: an option, a name or a file that the user wrote."""

    exit_code = USAGE
