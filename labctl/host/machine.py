"""What a machine is, and what was taken from it meanwhile. Standard library only: it also runs on hosts."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_STEAL = 8
"""Column of `steal` in the line `cpu` of /proc/stat."""


def machine() -> dict[str, Any]:
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "model": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def host_facts() -> dict[str, Any]:
    """Of a host: what it is, and which one. Two names with the same id are one machine."""
    return {
        **machine(),
        "id": _first_line("/etc/machine-id") or _first_line("/proc/sys/kernel/random/boot_id"),
        "boot": _first_line("/proc/sys/kernel/random/boot_id"),
        "hostname": platform.node(),
        "architecture": platform.machine(),
    }


def cpu_time() -> dict[str, float]:
    """Seconds since boot, of all processors: in all, and stolen by other guests of the hypervisor."""
    ticks = os.sysconf("SC_CLK_TCK")
    columns = [int(word) for word in _first_line("/proc/stat").split()[1:]]
    stolen = columns[_STEAL - 1] if len(columns) >= _STEAL else 0
    # Guest time, behind steal, is part of user time already.
    return {"total_s": sum(columns[:_STEAL]) / ticks, "steal_s": stolen / ticks}


def stolen_share(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Of the time between two answers of `cpu_time`."""
    total_s = after["total_s"] - before["total_s"]
    return (after["steal_s"] - before["steal_s"]) / total_s if total_s > 0 else 0.0


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").partition("\n")[0].strip()
    except OSError:
        return ""


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
