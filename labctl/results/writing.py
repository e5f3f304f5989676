"""Writing a result: a new folder, its repetitions, which count when they are finished, and its calibrations.

The one who writes holds a lock (`labctl.run.crew.locked`).
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

from labctl.results import layout
from labctl.results.documents import NotWritten, read_json, write_json
from labctl.results.layout import CELL, FORMAT, LATEST, RUN, RUNNING
from labctl.results.reading import read_run


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class ResultFolder:
    """An existing result."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def run(self) -> dict[str, Any]:
        return read_run(str(self.path))

    def finished(self) -> set[tuple[str, int]]:
        """Cells and repetitions."""
        return {(found.cell, found.number) for found in layout.finished(self.path)}

    # A repetition

    def staged(self, cell: str, repetition: int) -> Path:
        """Where it is while it is run."""
        return self.path / RUNNING / f"{cell}-{repetition:02}"

    def start(self, cell: str, repetition: int) -> Path:
        """An empty folder to run it in."""
        path = self.staged(cell, repetition)
        shutil.rmtree(path, ignore_errors=True)
        self._make(path)
        return path

    def finish(self, staged: Path, cell: str, repetition: int) -> Path:
        """From now on it counts. What it needs to be believed must be in it."""
        if not (staged / CELL).exists():
            raise NotWritten(f"{staged} has no {CELL}: it is not finished")
        target = self.path / layout.repetition(cell, repetition)
        self._make(target.parent)
        _sync(staged)
        try:
            staged.rename(target)
        except OSError as error:
            raise NotWritten(f"{target} cannot be made: {error.strerror}") from None
        _sync(target.parent)
        return target

    def keep_failed(self, staged: Path, cell: str, repetition: int, reason: str) -> Path:
        """Out of the way, but there to find out why."""
        parent = self.path / layout.FAILED / cell
        self._make(parent)
        attempt = 1 + sum(1 for _ in parent.glob(f"{repetition:02}-*"))
        target = parent / f"{repetition:02}-{attempt}"
        write_json(staged / layout.FAILURE, {"reason": reason, "time": now()})
        staged.rename(target)
        return target

    def clear_unfinished(self) -> None:
        shutil.rmtree(self.path / RUNNING, ignore_errors=True)

    # Calibrations

    def add_calibration(self, name: str, artefact: Mapping[str, Any]) -> None:
        path = self.path / layout.calibration(name)
        self._make(path.parent)
        write_json(path, artefact)
        run = self.run
        hashes = {**run.get("calibration_sha256", {}), layout.calibration(name): sha256(path)}
        write_json(self.path / RUN, {**run, "calibrations": sorted(hashes), "calibration_sha256": hashes})

    def calibration(self, name: str) -> dict[str, Any] | None:
        path = self.path / layout.calibration(name)
        if not path.exists():
            return None
        found: dict[str, Any] = read_json(path)
        return found

    def _make(self, path: Path) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotWritten(f"{path} cannot be made: {error.strerror}") from None


def create(root: Path, run: Mapping[str, Any]) -> ResultFolder:
    """A new result; `latest` points to it at once, so that `--resume` finds it."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    parent = root / str(run["experiment"])
    path = parent / f"{moment}-{secrets.token_hex(3)}"
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise NotWritten(f"{path} cannot be made: {error.strerror}") from None
    write_json(path / RUN, {"format": FORMAT, **run, "started": now(), "calibrations": []})
    point_latest(path)
    return ResultFolder(path)


def point_latest(path: Path) -> None:
    fresh = path.parent / f".{LATEST}.{secrets.token_hex(3)}"
    fresh.symlink_to(path.name)
    fresh.replace(path.parent / LATEST)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
