"""What a run took: seconds of each stage, and the memory of machines and services."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MACHINE = "qemu-system"


class Stages:
    def __init__(self) -> None:
        self.lines: list[str] = []
        """For whoever reads the test's output."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.note(name, f"{time.monotonic() - began:.0f} s")

    def note(self, name: str, value: str) -> None:
        self.lines.append(f"{name:<46}{value:>12}")


def machines() -> dict[int, float]:
    """Those that run, by the pid of their emulator: the most memory, in MB, that they have used."""
    return {pid: memory_mb(pid, "VmHWM") for pid in _processes() if _name(pid).startswith(MACHINE)}


def services_mb() -> float:
    """Of everything else; what processes share counts in each."""
    return sum(memory_mb(pid, "VmRSS") for pid in _processes() if not _name(pid).startswith(MACHINE))


def memory_mb(pid: int, what: str) -> float:
    for line in _read(pid, "status").splitlines():
        name, _, value = line.partition(":")
        if name == what:
            return int(value.split()[0]) / 1024
    return 0.0


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _name(pid: int) -> str:
    return _read(pid, "comm").strip()


def _read(pid: int, what: str) -> str:
    """Empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text()
    except OSError:
        return ""
