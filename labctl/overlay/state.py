"""What is written down about a local overlay, where, and the lock that guards it.

`$XDG_STATE_HOME/labctl/overlays/NAME/` holds `state.json` and, per broker, its configuration, its log and, where it is
durable, its data folder. The state is replaced as a whole, before and after each step, so that a killed labctl leaves
either the one or the other. Starting and stopping are in `labctl.overlay.local`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from labctl import locks
from labctl.exits import LabError, UsageProblem
from labctl.paths import state_root

LOCK_WAIT_S = 2.0
"""A labctl that is killed while it starts a broker leaves the lock for a moment with the child."""
Durable = Literal["fsync", "os"]
"""What a crash does not undo: of the machine, or of a broker only."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class StateError(LabError):
    """The state of an overlay cannot be read, written or locked."""


class BrokerRecord(Struct, frozen=True):
    id: str
    address: str
    config: str
    log: str
    pid: int | None = None
    """None: about to be started, or killed before we could write it down."""
    started: int | None = None
    """Tells the process from a later one with the same pid; see `labctl.host.processes`."""


class OverlayState(Struct, frozen=True):
    name: str
    phase: Literal["starting", "up", "failed"]
    brokers: tuple[BrokerRecord, ...]
    links: tuple[tuple[str, str], ...]
    durable: Durable | None = None


def overlays() -> Path:
    return state_root() / "overlays"


def folder(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise UsageProblem(
            f"{name!r} cannot be an overlay's name: letters, digits, '.', '_' and '-', at most 64"
        )
    return overlays() / name


def names() -> list[str]:
    try:
        return sorted(entry.name for entry in overlays().iterdir() if _NAME.fullmatch(entry.name))
    except FileNotFoundError:
        return []


def read(name: str) -> OverlayState | None:
    """None when there is no such overlay."""
    path = folder(name) / "state.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=OverlayState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StateError(
            f"{path} cannot be read ({error}); `labctl overlay down --name {name}` clears it"
        ) from None


def write(state: OverlayState) -> None:
    path = folder(state.name) / "state.json"
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(state), indent=2))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def make_folder(name: str) -> Path:
    path = folder(name)
    try:
        path.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise StateError(f"{path} cannot be made: {error.strerror}; `labctl doctor` says more") from None
    return path


def remove(name: str) -> None:
    """The state goes first: a folder without it is rubbish, one with it is an overlay."""
    path = folder(name)
    (path / "state.json").unlink(missing_ok=True)
    if path.exists():
        shutil.rmtree(path)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One labctl at a time works on an overlay; the next one waits a little and then gives up."""
    folder(name)
    path = state_root() / "locks" / f"overlay-{name}"

    def busy(holder: str) -> StateError:
        return StateError(
            f"another labctl is working on overlay {name!r} (pid {holder}); try again when it is done"
        )

    with locks.exclusive(path, LOCK_WAIT_S, busy):
        yield
