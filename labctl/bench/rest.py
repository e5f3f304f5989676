"""What a broker costs before anything happens: the time to its ready line, and its CPU at rest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from labctl.overlay import node_files
from labctl.workers import BenchError, running
from playbooks import start

SETTLE_S = 1.0
"""Imports and the first vitals are not rest."""
REST_S = 4.0


class Rest(Struct, frozen=True):
    start_ms: float
    cpu_percent: float
    """Of one core."""


def measure() -> Rest:
    with tempfile.TemporaryDirectory(prefix="labctl-rest-") as folder:
        config = Path(folder) / "node.toml"
        config.write_text(node_files.emit(node_files.Node("b1", "127.0.0.1:0")))
        started = time.perf_counter()
        with running(start.broker([sys.executable], str(config)), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            if b'"ready"' not in process.stdout.readline():
                raise BenchError("a single broker did not start")
            start_ms = (time.perf_counter() - started) * 1e3
            time.sleep(SETTLE_S)
            before = _cpu_s(process.pid)
            time.sleep(REST_S)
            used = _cpu_s(process.pid) - before
    return Rest(round(start_ms), round(100 * used / REST_S, 3))


def _cpu_s(pid: int) -> float:
    """Time on a processor, to the nanosecond; the clock ticks of /proc/PID/stat are too coarse here."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
