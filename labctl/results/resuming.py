"""Whether a run may go on in a result: only with what the result was begun with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from labctl.exits import UsageProblem
from labctl.results.layout import LATEST, RUN
from labctl.results.writing import ResultFolder, sha256

_MEANT = ("experiment", "profile", "seed", "resolved", "cells", "testbed")
_PARTS = {"experiment": "experiment", "resolved": "experiment", "cells": "experiment", "testbed": "testbed"}


class ResumeRefused(UsageProblem):
    """What the folder was begun with is not what would now be added to it."""


def latest(root: Path, experiment: str) -> ResultFolder:
    path = root / experiment / LATEST
    if not (path / RUN).exists():
        raise ResumeRefused(
            f"there is no result of {experiment!r} in {root} to go on with; start one without --resume"
        )
    return ResultFolder(path.parent / os.readlink(path) if path.is_symlink() else path)


def refuse_changes(folder: ResultFolder, run: Mapping[str, Any]) -> None:
    """Raises if what has been run so far and what would be run now do not belong together."""
    before = folder.run
    for name in _MEANT:
        if _plain(before.get(name)) != _plain(run.get(name)):
            what = _PARTS.get(name, name)
            raise ResumeRefused(
                f"the {what} has changed since {folder.path} was begun{_difference(before.get(name), run.get(name))}; "
                "start a new result without --resume"
            )
    for part, digest in run["code"].items():
        if before["code"].get(part) != digest:
            raise ResumeRefused(
                f"the code of the {part} has changed since {folder.path} was begun; results of two versions "
                "do not belong in one folder: start a new one without --resume"
            )
    for name, digest in before.get("calibration_sha256", {}).items():
        path = folder.path / name
        if not path.exists() or sha256(path) != digest:
            raise ResumeRefused(
                f"the calibration {path} has changed since cells were run with it; start a new result"
            )


def _plain(value: object) -> object:
    """As it looks after a way through JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _difference(before: object, after: object) -> str:
    before, after = _plain(before), _plain(after)
    if isinstance(before, dict) and isinstance(after, dict):
        changed = sorted(k for k in {*before, *after} if before.get(k) != after.get(k))
        return f" ({', '.join(map(str, changed[:3]))})"
    if isinstance(before, list) and isinstance(after, list):
        return f" ({len(before)} cells then, {len(after)} now)" if len(before) != len(after) else ""
    return f" ({before!r} then, {after!r} now)"
