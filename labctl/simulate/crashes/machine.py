"""The machine that a simulated broker runs on: its disk, its clock, and how its journal is kept there."""

from __future__ import annotations

import errno
from random import Random

from broker.gate import ledger
from broker.journal.folder import Folder
from broker.journal.identity import Identity
from labctl.simulate.crashes.disk import SimDisk
from labctl.simulate.programs.programs import Journals, Restart

DATA = "data"
LATER_S = 2e-3
"""Mean time between the steps of a snapshot."""


class SimMachine:
    def __init__(self, broker: str, journals: Journals, seed: int) -> None:
        self.disk = SimDisk()
        self.behind_s = 0.0
        """By so much its clock is behind what it was before the machine was started anew."""
        self.lives = 0
        """So many processes of the broker have had the folder."""
        self._broker = broker
        self._journals = journals
        self._random = Random(f"machine {broker} {seed}")

    def open(self, incarnation: int) -> Folder:
        """The folder, by a process that has just been started; a new folder keeps the incarnation."""
        identity = Identity("broker", self._broker, "simulated", ledger.VERSION)
        folder = Folder.open(self.disk, DATA, identity, "fsync", incarnation + 1000 * self.lives)
        self.lives += 1
        return folder

    def end(self, restart: Restart) -> None:
        """The process ends, or the whole machine: what could not be synced may be read from its memory until then."""
        if restart.kind == "kill":
            self.disk.kill()
        else:
            self.disk.crash(self._random)
            self.behind_s += restart.behind_s

    def plan(self, restart: Restart) -> None:
        """It ends instead of one of the next operations of its disk."""
        number = self.disk.operations + restart.operations
        if restart.kind == "fail":
            self.disk.fail(number, errno.EIO)
        else:
            self.disk.stop_before = number

    @property
    def is_doomed(self) -> bool:
        """It is about to end as planned."""
        return self.disk.stop_before is not None or self.disk.is_to_fail

    def spare(self) -> None:
        """It does not end as planned."""
        self.disk.stop_before = None
        self.disk.fail_no_more()

    def sync_s(self) -> float:
        """So long the next sync waits; mostly it comes at the end of the step."""
        mean = self._journals.sync_s
        return self._random.expovariate(1 / mean) if mean and self._random.random() < 0.5 else 0.0

    def takes_snapshot(self) -> bool:
        return self._random.random() < self._journals.snapshots

    def later_s(self) -> float:
        return self._random.expovariate(1 / LATER_S)
