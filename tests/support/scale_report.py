"""How the report grows with the history: `python -m tests.support.scale_report 1000000 10000000`.

Not a test, because it takes minutes: its last figures stand in docs/report.md. For each number of history
events a synthetic result is made and reported by the command itself; time, processor time and the memory of
all its processes together (each shared page counted once) are printed.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labctl.report.judgement import claims
from tests.support import synthetic

TRANSACTIONS = 250
EVENTS_PER_REPETITION = 3051
APPROACHES = ("d-tx", "d-tx-ni", "s-tx")
SAMPLE_S = 1.0


def main(arguments: list[str]) -> None:
    for events in map(int, arguments or ["1000000", "10000000"]):
        with tempfile.TemporaryDirectory(prefix="labctl-scale-") as folder:
            began = time.monotonic()
            made = make(Path(folder), events)
            making_s = time.monotonic() - began
            sys.stdout.write(
                json.dumps({"events": made, "making_s": round(making_s)} | measure(folder)) + "\n"
            )
            sys.stdout.flush()


def make(root: Path, events: int) -> int:
    each = max(1, round(events / EVENTS_PER_REPETITION / len(APPROACHES)))
    cells = tuple(claims.cell(approach) for approach in APPROACHES)
    synthetic.write(root, synthetic.Spec(cells, each, TRANSACTIONS, warm_up=2))
    return each * len(APPROACHES) * EVENTS_PER_REPETITION


def measure(folder: str) -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began, peak = time.monotonic(), 0
    command = [
        sys.executable,
        "-c",
        "from labctl.cli import main; main()",
        "report",
        folder,
        "--master",
        "local[2]",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(proportional_bytes(pid) for pid in family(process.pid)))
            time.sleep(SAMPLE_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "exit": process.returncode,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_s": round(cpu_s, 1),
        "memory_gb": round(peak / 1e9, 2),
    }


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
            parents.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += parents.get(each, [])
    return found


def proportional_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


if __name__ == "__main__":
    os.environ.setdefault("TERM", "dumb")
    main(sys.argv[1:])
