"""The layout of a result: names of files and folders, where a repetition lies, and which are finished.

results/<experiment>/<time>-<id>/      and beside it `latest`, a link to the newest
  run.json                             what was meant to be run, with what
  hosts.json                           what the hosts of a lab are like
  calibrations/<configuration>.json    the waits that BL-WAIT was run with
  cells/<cell>/<repetition>/           appears by a rename when it has finished
    cell.json                          what was run; its last file
    transactions.jsonl  messages.json  rates.jsonl  latencies.jsonl  faults.jsonl
    history/<node>.jsonl  nodes/<node>.jsonl  tables/<broker>.json
  failed/<cell>/<repetition>-<n>/      what is left of one that has not
  .running/                            what is being run, or was when labctl was killed
  report/                              what `labctl report` makes of all this
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

FORMAT = 1
"""Of run.json, and of all that lies around it."""

LATEST = "latest"
RUN = "run.json"
HOSTS = "hosts.json"
CALIBRATIONS = "calibrations"
CELLS = "cells"
FAILED = "failed"
RUNNING = ".running"
REPORT = "report"

# Of a repetition

CELL = "cell.json"
TRANSACTIONS = "transactions.jsonl"
MESSAGES = "messages.json"
WINDOWS = "rates.jsonl"
"""What agents counted; only disruption has it, and the next one."""
LATENCIES = "latencies.jsonl"
FAULTS = "faults.jsonl"
"""What was done of the faults of a repetition that has some."""
MEASURED = (WINDOWS, LATENCIES, FAULTS)
FAILURE = "failure.json"
NOT_COLLECTED = "not-collected.txt"

HISTORY = "history"
NODES = "nodes"
TABLES = "tables"
RATES = "rates"
"""Only while it is run."""
FOLDERS = (HISTORY, NODES, TABLES, RATES)
DATA = "data"
"""What brokers keep, each in a folder of its own; and how their links are at present, next. Only while it is run."""
CONTROL = "control"

EVERY = f"{CELLS}/*/*"
"""All repetitions, as a pattern of paths."""
_NAME = r"([^/]+)\.jsonl?(?:\.\d+)?$"
"""Of a file that a node wrote. A log that was full has gone on in a new file; the old ones are numbered."""
PLACE = rf"{CELLS}/([^/]+)/(\d+)/(?:[^/]+/)?{_NAME}"
"""Of a file of a repetition: the cell, the number, and the node or what else the file is named after."""
_REPETITION = re.compile(rf"{CELLS}/([^/]+)/(\d+)/(.+)$")


def repetition(cell: str, number: int) -> str:
    return f"{CELLS}/{cell}/{number:02}"


def calibration(name: str) -> str:
    return f"{CALIBRATIONS}/{name}.json"


def lines_of(kind: str, node: str) -> str:
    """What a node wrote into one of the folders of a repetition."""
    return f"{kind}/{node}.jsonl"


def logs_of(node: str) -> str:
    """A pattern: the log of a node, and the older files of it."""
    return f"{NODES}/{node}.jsonl*"


class Repetition(Struct, frozen=True, order=True):
    """One repetition of a cell, and the files that it left."""

    cell: str
    number: int
    files: tuple[str, ...] = ()
    """Relative to the repetition's own folder."""

    @property
    def path(self) -> str:
        return repetition(self.cell, self.number)

    def nodes(self, kind: str) -> set[str]:
        """Nodes that have a file in `history`, `nodes` or `tables`."""
        pattern = re.compile(f"{kind}/{_NAME}")
        return {match[1] for file in self.files if (match := pattern.match(file))}


def repetitions(files: Iterable[str]) -> list[Repetition]:
    """Those that files of a result belong to. Their folders appear whole: what is missing has been lost since."""
    found: dict[tuple[str, int], list[str]] = {}
    for path in files:
        if (match := _REPETITION.match(path)) is not None:
            found.setdefault((match[1], int(match[2])), []).append(match[3])
    return [Repetition(cell, number, tuple(names)) for (cell, number), names in sorted(found.items())]


def present(root: Path) -> list[Repetition]:
    """Those of which a result on this machine has anything at all."""
    return repetitions(p.relative_to(root).as_posix() for p in root.glob(f"{EVERY}/**/*") if p.is_file())


def finished(root: Path) -> list[Repetition]:
    """Those of a result on this machine that count."""
    return repetitions(path.relative_to(root).as_posix() for path in root.glob(f"{EVERY}/{CELL}"))
