"""What a run was made with: the code, by its content; versions; the machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from labctl.host.machine import machine
from labctl.paths import PROJECT

__all__ = ["code", "git", "machine", "versions"]


RUNNER = (
    "labctl", "labctl/conduct", "labctl/experiment", "labctl/faults", "labctl/host", "labctl/overlay", "labctl/results", "labctl/run",
)  # fmt: skip
"""The rooms of labctl by which a run is carried out. A change of anything else changes no result."""
_PACKAGES = ("labctl", "msgspec", "uvloop")


def code(modules: Iterable[ModuleType] = ()) -> dict[str, str]:
    """A hash for each part whose change makes results incomparable; `modules` are somebody's own."""
    found = {
        "broker": _hash((PROJECT / "broker").rglob("*.py"), PROJECT),
        "client": _hash((PROJECT / "client").rglob("*.py"), PROJECT),
        "runner": _hash((path for room in RUNNER for path in (PROJECT / room).glob("*.py")), PROJECT),
    }
    for module in modules:
        if module.__file__ is not None:
            found[f"module {module.__name__}"] = _hash([Path(module.__file__)], Path(module.__file__).parent)
    return found


def _hash(files: Iterable[Path], root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
        digest.update(b"\0")
    return digest.hexdigest()


def git() -> dict[str, str | None]:
    """The commit, and a hash of what differs from it (None: nothing); nothing at all outside a repository."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "diff_sha256": None}
    changes = (_git("diff", "HEAD") or b"") + (_git("status", "--porcelain") or b"")
    return {
        "commit": commit.decode().strip(),
        "diff_sha256": hashlib.sha256(changes).hexdigest() if changes else None,
    }


def _git(*arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def versions() -> dict[str, str | None]:
    return {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
