"""What hosts are brought, in two bundles: compiled packages, which hardly ever change, and our code.

A bundle is a compressed archive that is the same, byte for byte, whenever it is made of the same files, and
its name is its hash. What was made once is kept in `$XDG_CACHE_HOME/labctl/bundles`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from msgspec import Struct

from labctl.paths import PROJECT

PARTS = (
    "broker/**/*.py",
    "client/**/*.py",
    "labctl/__init__.py",
    "labctl/exits.py",
    "labctl/locks.py",
    "labctl/host/*.py",
)
"""Brokers, clients, and what of labctl runs on hosts."""


class Bundle(Struct, frozen=True):
    kind: str
    digest: str
    content: bytes
    unpacked_bytes: int


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "labctl"


def code(modules: Iterable[ModuleType] = ()) -> Bundle:
    """Brokers, clients and the agent; and scenarios of the user's own."""
    files = {
        str(path.relative_to(PROJECT)): path.read_bytes()
        for part in PARTS
        for path in sorted(PROJECT.glob(part))
    }
    for module in modules:
        files |= _own(module)
    return pack("code", files)


def _own(module: ModuleType) -> dict[str, bytes]:
    """A module under its dotted name, with the packages around it."""
    if module.__file__ is None:
        return {}
    parts = module.__name__.split(".")
    path = Path(module.__file__)
    files = {}
    if path.name == "__init__.py":
        files["/".join([*parts, "__init__.py"])] = path.read_bytes()
    else:
        files["/".join(parts) + ".py"] = path.read_bytes()
    for depth in range(1, len(parts)):
        around = path.parents[len(parts) - 1 - depth] / "__init__.py"
        files["/".join([*parts[:depth], "__init__.py"])] = around.read_bytes() if around.exists() else b""
    return files


def pack(kind: str, files: Mapping[str, bytes], executable: Iterable[str] = ()) -> Bundle:
    """Neither times nor owners nor the order of a folder are in it: only names and contents."""
    runs = frozenset(executable)
    raw = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o755 if name in runs else 0o644
            archive.addfile(member, io.BytesIO(content))
    content = raw.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    return Bundle(kind, digest, content, sum(len(each) for each in files.values()))
