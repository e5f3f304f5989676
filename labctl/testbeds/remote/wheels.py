"""The compiled packages that a host needs, for its Python, processor and C library.

Where the host is like this machine, they are the files that are installed here, each compared with the hash
in its package's own record. For any other, wheels are downloaded here, not there, and compared with the
hashes of `requirements.lock` where that is at hand. A bundle that was made once is kept.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import msgspec
from msgspec import Struct

from labctl.exits import LabError
from labctl.paths import PROJECT
from labctl.testbeds.remote.bundles import Bundle, cache, pack

NEEDED = ("msgspec", "uvloop")
KIND = "packages"
DOWNLOAD_S = 300.0
_LEAVE_OUT = (".c", ".pxd", ".pyx", ".pyi", ".pyc")
"""Sources and types: nothing that runs."""
_TAGS = {
    "glibc": ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34"),
    "musl": ("musllinux_1_1", "musllinux_1_2"),
}


class WheelError(LabError):
    """A package cannot be had for a host."""


class HostKind(Struct, frozen=True):
    """What compiled packages depend on."""

    python: tuple[int, int]
    machine: str
    libc: str

    def __str__(self) -> str:
        return f"Python {self.python[0]}.{self.python[1]} on {self.machine} with {self.libc}"


class _Kept(Struct):
    digest: str
    unpacked_bytes: int


def own() -> HostKind:
    return HostKind(sys.version_info[:2], platform.machine(), platform.libc_ver()[0] or "musl")


def packages(kind: HostKind) -> Bundle:
    """Made now, or found where it is kept."""
    versions = {name: importlib.metadata.version(name) for name in NEEDED}
    label = "-".join(
        [*(f"{n}-{v}" for n, v in versions.items()), *map(str, kind.python), kind.machine, kind.libc]
    )
    kept = _kept(label)
    if kept is not None:
        return kept
    files = _installed() if kind == own() else _downloaded(kind, versions)
    bundle = pack(KIND, files, [name for name in files if name.endswith(".so")])
    _keep(label, bundle)
    return bundle


def _folder() -> Path:
    return cache() / "bundles"


def _kept(label: str) -> Bundle | None:
    """None when there is none, or it is not what it was."""
    note = _folder() / f"{label}.json"
    try:
        known = msgspec.json.decode(note.read_bytes(), type=_Kept)
        content = (_folder() / f"{known.digest}.tar.gz").read_bytes()
    except (OSError, msgspec.MsgspecError):
        return None
    if hashlib.sha256(content).hexdigest() != known.digest:
        return None
    return Bundle(KIND, known.digest, content, known.unpacked_bytes)


def _keep(label: str, bundle: Bundle) -> None:
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (
            (f"{bundle.digest}.tar.gz", bundle.content),
            (f"{label}.json", msgspec.json.encode(_Kept(bundle.digest, bundle.unpacked_bytes))),
        ):
            fresh = folder / f".{name}.new"
            fresh.write_bytes(content)
            fresh.replace(folder / name)
    except OSError:
        # Then it is made again the next time.
        return


def _wanted(name: str) -> bool:
    top = name.partition("/")[0]
    return not name.endswith(_LEAVE_OUT) and not name.startswith("..") and top != "__pycache__"


def _installed() -> dict[str, bytes]:
    files = {}
    for package in NEEDED:
        for entry in importlib.metadata.files(package) or []:
            name = str(entry)
            if not _wanted(name) or "__pycache__" in name or entry.hash is None:
                continue
            content = Path(str(entry.locate())).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.new(entry.hash.mode, content).digest()).decode()
            if digest.rstrip("=") != entry.hash.value:
                raise WheelError(
                    f"{name} of the installed {package} is not what was installed; install it again: "
                    f"pip install --force-reinstall {package}"
                )
            files[name] = content
    return files


def _downloaded(kind: HostKind, versions: dict[str, str]) -> dict[str, bytes]:
    if kind.libc not in _TAGS:
        raise WheelError(f"no packages are known for hosts with the C library {kind.libc!r}")
    with tempfile.TemporaryDirectory(prefix="labctl-wheels-") as folder:
        platforms = [f"--platform={tag}_{kind.machine}" for tag in _TAGS[kind.libc]]
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--only-binary=:all:", "--implementation=cp", f"--dest={folder}"),
            f"--python-version={kind.python[0]}.{kind.python[1]}",
            *platforms,
            *(f"{name}=={version}" for name, version in versions.items()),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DOWNLOAD_S)
        except subprocess.TimeoutExpired:
            raise WheelError(f"packages for {kind} did not arrive within {DOWNLOAD_S:g} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise WheelError(
                f"packages for {kind} cannot be downloaded: {said[-1] if said else 'pip said nothing'}"
            )
        locked = _locked()
        files: dict[str, bytes] = {}
        for wheel in sorted(Path(folder).glob("*.whl")):
            _compare(wheel, locked)
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if _wanted(name) and not name.endswith("/")]
                files |= {name: archive.read(name) for name in names}
        return files


def _locked() -> frozenset[str]:
    try:
        text = (PROJECT / "requirements.lock").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    return frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", text))


def _compare(wheel: Path, locked: frozenset[str]) -> None:
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if locked and found not in locked:
        raise WheelError(f"{wheel.name} has the hash {found}, which requirements.lock does not know")
