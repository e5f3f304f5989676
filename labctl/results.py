"""The folder of a result: what is in it, what is finished, and whether a run may go on in it.

    results/<experiment>/<time>-<id>/      and beside it `latest`, a link to the newest
      run.json                             what was meant to be run, with what
      calibrations/<configuration>.json    the waits that BL-WAIT was run with
      cells/<cell>/<repetition>/           appears by a rename when it has finished
      failed/<cell>/<repetition>-<n>/      what is left of one that has not
      .running/                            what is being run, or was when labctl was killed

The one who writes holds a lock (`labctl.crew.locked`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from labctl.exits import LabError, UsageProblem

FORMAT = 1
LATEST = "latest"
_MEANT = ("experiment", "profile", "seed", "resolved", "cells", "testbed")
_PARTS = {"experiment": "experiment", "resolved": "experiment", "cells": "experiment", "testbed": "testbed"}


class ResultError(LabError):
    """A folder that cannot be written, or is not what it should be."""


class ResumeRefused(UsageProblem):
    """What the folder was begun with is not what would now be added to it."""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def write_json(path: Path, value: object) -> None:
    """As a whole or not at all."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise ResultError(f"{path} cannot be written: {error.strerror}") from None


def read_json(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ResultError(f"{path} is damaged: {error}") from None


class Folder:
    """An existing result."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run(self) -> dict[str, Any]:
        run = read_json(self.path / "run.json")
        if not isinstance(run, dict) or run.get("format") != FORMAT:
            found = run.get("format") if isinstance(run, dict) else None
            raise ResultError(f"{self.path} has the format {found!r}; this labctl knows {FORMAT}")
        return run

    def finished(self) -> set[tuple[str, int]]:
        """Cells and repetitions."""
        return {
            (path.parent.parent.name, int(path.parent.name))
            for path in self.path.glob("cells/*/*/cell.json")
            if path.parent.name.isdecimal()
        }

    # A repetition

    def staged(self, cell: str, repetition: int) -> Path:
        """Where it is while it is run."""
        return self.path / ".running" / f"{cell}-{repetition:02}"

    def start(self, cell: str, repetition: int) -> Path:
        """An empty folder to run it in."""
        path = self.staged(cell, repetition)
        shutil.rmtree(path, ignore_errors=True)
        self._make(path)
        return path

    def finish(self, staged: Path, cell: str, repetition: int) -> Path:
        """From now on it counts. What it needs to be believed must be in it."""
        if not (staged / "cell.json").exists():
            raise ResultError(f"{staged} has no cell.json: it is not finished")
        target = self.path / "cells" / cell / f"{repetition:02}"
        self._make(target.parent)
        _sync(staged)
        try:
            staged.rename(target)
        except OSError as error:
            raise ResultError(f"{target} cannot be made: {error.strerror}") from None
        _sync(target.parent)
        return target

    def keep_failed(self, staged: Path, cell: str, repetition: int, reason: str) -> Path:
        """Out of the way, but there to find out why."""
        parent = self.path / "failed" / cell
        self._make(parent)
        attempt = 1 + sum(1 for _ in parent.glob(f"{repetition:02}-*"))
        target = parent / f"{repetition:02}-{attempt}"
        write_json(staged / "failure.json", {"reason": reason, "time": now()})
        staged.rename(target)
        return target

    def clear_unfinished(self) -> None:
        shutil.rmtree(self.path / ".running", ignore_errors=True)

    # Calibrations

    def add_calibration(self, name: str, artefact: Mapping[str, Any]) -> None:
        path = self.path / "calibrations" / f"{name}.json"
        self._make(path.parent)
        write_json(path, artefact)
        run = self.run
        hashes = {**run.get("calibration_sha256", {}), f"calibrations/{name}.json": sha256(path)}
        write_json(
            self.path / "run.json", {**run, "calibrations": sorted(hashes), "calibration_sha256": hashes}
        )

    def calibration(self, name: str) -> dict[str, Any] | None:
        path = self.path / "calibrations" / f"{name}.json"
        if not path.exists():
            return None
        found: dict[str, Any] = read_json(path)
        return found

    def _make(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultError(f"{path} cannot be made: {error.strerror}") from None


def create(root: Path, run: Mapping[str, Any]) -> Folder:
    """A new result; `latest` points to it at once, so that `--resume` finds it."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parent = root / str(run["experiment"])
    path = parent / f"{moment}-{secrets.token_hex(3)}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise ResultError(f"{path} cannot be made: {error.strerror}") from None
    write_json(path / "run.json", {"format": FORMAT, **run, "started": now(), "calibrations": []})
    point_latest(path)
    return Folder(path)


def point_latest(path: Path) -> None:
    fresh = path.parent / f".{LATEST}.{secrets.token_hex(3)}"
    fresh.symlink_to(path.name)
    fresh.replace(path.parent / LATEST)


def latest(root: Path, experiment: str) -> Folder:
    path = root / experiment / LATEST
    if not (path / "run.json").exists():
        raise ResumeRefused(
            f"there is no result of {experiment!r} in {root} to go on with; start one without --resume"
        )
    return Folder(path.parent / os.readlink(path) if path.is_symlink() else path)


def refuse_changes(folder: Folder, run: Mapping[str, Any]) -> None:
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


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
