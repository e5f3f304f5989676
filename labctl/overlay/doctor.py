"""Is this machine fit for a local lab? Each check says what it found and what to do about it.

A check judges a fact that it is given, so that it can be tested; `examine` gathers the facts.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import resource
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from labctl.checkup import Check
from labctl.output import byte_size
from labctl.overlay import local
from labctl.paths import state_root

PYTHON_MIN = (3, 11)
OPEN_FILES_MIN = 1024
DISK_BYTES_MIN = 500_000_000
MEMORY_BYTES_MIN = 500_000_000
CORES_MIN = 2
LOOPBACK_TIMEOUT_S = 2.0
TIMERFD_NONBLOCK = os.O_NONBLOCK


def examine() -> list[Check]:
    """Every check, on this machine."""
    folder = state_root()
    cores = len(os.sched_getaffinity(0))
    return [
        python_version(sys.version_info[:3]),
        package("msgspec"),
        package("uvloop"),
        loopback(),
        open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        precise_timer(),
        process_handles(hasattr(os, "pidfd_open") and os.path.exists("/proc/self/stat")),
        state_folder(folder),
        disk(shutil.disk_usage(_existing_parent(folder)).free, folder),
        memory(available_memory(Path("/proc/meminfo").read_text())),
        core_count(cores),
        load(os.getloadavg()[0], cores),
        mosquitto(find_mosquitto()),
        overlays(local.overview()),
    ]


def all_required_ok(checks: Sequence[Check]) -> bool:
    return all(check.ok for check in checks if check.required)


def python_version(version: Sequence[int]) -> Check:
    wanted = ".".join(map(str, PYTHON_MIN))
    ok = tuple(version[:2]) >= PYTHON_MIN
    return _check("python", ok, ".".join(map(str, version)), f"install Python {wanted} or later")


def package(name: str) -> Check:
    try:
        importlib.import_module(name)
        return _check(name, True, importlib.metadata.version(name))
    except ImportError as error:
        return _check(name, False, str(error), f"install it: pip install {name}")


def loopback() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(LOOPBACK_TIMEOUT_S)
            with socket.create_connection(server.getsockname(), LOOPBACK_TIMEOUT_S) as there:
                here, _ = server.accept()
                with here:
                    there.sendall(b"?")
                    ok = here.recv(1) == b"?"
    except OSError as error:
        return _check("loopback", False, str(error), "bring the loopback interface up: ip link set lo up")
    return _check("loopback", ok, "a byte sent to 127.0.0.1 arrives", "look for a firewall on loopback")


def open_files(limit: int) -> Check:
    unlimited = limit == resource.RLIM_INFINITY
    ok = unlimited or limit >= OPEN_FILES_MIN
    detail = "no limit" if unlimited else f"{limit} per process"
    return _check("open files", ok, detail, f"raise the limit: ulimit -n {4 * OPEN_FILES_MIN}")


def precise_timer() -> Check:
    """Link delays are emulated with timerfd: the event loop's own timers are too coarse."""
    advice = "link delays need Linux's timerfd; run the lab on Linux"
    create = getattr(ctypes.CDLL(None, use_errno=True), "timerfd_create", None)
    if create is None:
        return _check("timerfd", False, "the C library has none", advice)
    handle = create(1, TIMERFD_NONBLOCK)
    if handle < 0:
        return _check("timerfd", False, os.strerror(ctypes.get_errno()), advice)
    os.close(handle)
    return _check("timerfd", True, "present")


def process_handles(present: bool) -> Check:
    detail = "pidfd and /proc are there" if present else "pidfd or /proc is missing"
    return _check("process handles", present, detail, "run the lab on Linux 5.3 or later, with /proc mounted")


def state_folder(folder: Path) -> Check:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"?")
    except OSError as error:
        detail = f"{folder}: {error.strerror}"
        return _check("state folder", False, detail, "make it writable, or set XDG_STATE_HOME to one that is")
    return _check("state folder", True, f"{folder} is writable")


def disk(free_bytes: int, folder: Path) -> Check:
    advice = f"free some, or set XDG_STATE_HOME to a disk with more than {byte_size(DISK_BYTES_MIN)}"
    return _check("disk", free_bytes >= DISK_BYTES_MIN, f"{byte_size(free_bytes)} free for {folder}", advice)


def memory(available_bytes: int) -> Check:
    advice = f"end other programs until {byte_size(MEMORY_BYTES_MIN)} are free"
    return _check(
        "memory", available_bytes >= MEMORY_BYTES_MIN, f"{byte_size(available_bytes)} available", advice
    )


def core_count(cores: int) -> Check:
    advice = "on one core brokers and clients wait for each other; do not trust its latencies"
    return _check("cores", cores >= CORES_MIN, f"{cores} usable", advice, required=False)


def load(load_1min: float, cores: int) -> Check:
    advice = "other programs are busy; measure when they are done"
    detail = f"load average {load_1min:.2f} on {cores} cores"
    return _check("load", load_1min < cores, detail, advice, required=False)


def mosquitto(path: str | None) -> Check:
    advice = "only for `labctl bench --peer mosquitto`: apt-get install mosquitto"
    return _check("mosquitto", path is not None, path or "not installed", advice, required=False)


def overlays(found: Sequence[local.Overview]) -> Check:
    stale = [seen for seen in found if seen.stale]
    detail = "none left behind"
    if stale:
        detail = "; ".join(f"{seen.name}: {seen.alive} of {seen.brokers} brokers run" for seen in stale)
    advice = "; ".join(f"labctl overlay down --name {seen.name}" for seen in stale)
    return _check("stale overlays", not stale, detail, advice, required=False)


def available_memory(meminfo: str) -> int:
    """Bytes, from the text of /proc/meminfo."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def find_mosquitto() -> str | None:
    """Debian puts it where only root's PATH looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def _existing_parent(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _check(name: str, ok: bool, detail: str, advice: str = "", required: bool = True) -> Check:
    return Check(name, ok, detail, "" if ok else advice, required)
