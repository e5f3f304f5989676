"""A crash after every operation on the disk, and in every recovery: what was acknowledged survives, once and in order.

What was appended and not acknowledged may survive, too, but only together with all in front of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import pytest

from broker.journal.failures import Damaged
from broker.journal.folder import Folder, Mode
from labctl.simulate.crashes.disk import Crashed, SimDisk
from tests.support.folders import ME

LARGE = b"." * 5000

Crash = Callable[[SimDisk, Random], None]


def lose_power(disk: SimDisk, random: Random) -> None:
    disk.crash(random)


def be_killed(disk: SimDisk, _: Random) -> None:
    disk.kill()


class Life:
    """A process that uses the folder, and what it may be asked about afterwards."""

    def __init__(self, disk: SimDisk, mode: Mode) -> None:
        self.disk = disk
        self.mode: Mode = mode
        self.appended: list[bytes] = []
        """Each with all that is in front of it."""
        self.acknowledged = 0
        self.certain = 0
        """Survives the machine in the mode `os`, too."""
        self.count = 0
        self.was_made = False

    def begin(self) -> Folder:
        """Open and replay; what was found is checked, and from then on it is certain."""
        folder = Folder.open(self.disk, "d", ME, self.mode, self.count)
        assert not (folder.is_new and self.was_made)
        self.was_made = True
        found = (folder.snapshot or b"").split(b"\n")[:-1]
        found += folder.entries()
        assert found == self.appended[: len(found)]
        assert len(found) >= self.acknowledged
        assert folder.newest == folder.durable == len(found)
        self.appended = found
        self.acknowledged = self.certain = len(found)
        self.count += 1
        return folder

    def append(self, folder: Folder, count: int, filling: bytes = b"") -> None:
        for _ in range(count):
            entry = b"life %d, entry %d" % (self.count, len(self.appended) + 1)
            self.appended.append(entry + filling)
            assert folder.append(entry, filling) == len(self.appended)

    def sync(self, folder: Folder) -> None:
        self.acknowledged = folder.sync()

    def run(self) -> None:
        folder = self.begin()
        self.append(folder, 1)
        self.sync(folder)
        self.append(folder, 3, LARGE)
        self.sync(folder)
        for is_adopted in (True, False, True):
            self.append(folder, 2)
            number = folder.begin_snapshot()
            self.acknowledged = self.certain = folder.durable
            state = [entry + b"\n" for entry in self.appended]
            self.append(folder, 2)
            self.sync(folder)
            folder.write_snapshot(number, state)
            if is_adopted:
                folder.adopt_snapshot(number)
            else:
                folder.drop_snapshot(number)
            self.append(folder, 1, LARGE)
            self.sync(folder)
        self.append(folder, 1)  # nobody syncs it
        folder.close()

    def run_until(self, operation: int, crash: Crash, random: Random) -> bool:
        """Whether it was stopped there."""
        self.disk.stop_before = self.disk.operations + operation
        try:
            self.run()
        except Crashed:
            return True
        finally:
            crash(self.disk, random)
            if self.mode == "os" and crash is lose_power:
                self.acknowledged = self.certain
        return False


def survive(seed: int, first: int, later: tuple[int, ...], mode: Mode, crash: Crash) -> bool:
    """A life that ends in front of the operation with this number, then later ones; whether there is that operation."""
    random = Random(seed)
    life = Life(SimDisk(), mode)
    was_stopped = life.run_until(first, crash, random)
    for operation in later:
        life.run_until(operation, crash, random)
    assert not life.run_until(1000, crash, random)
    life.begin()
    return was_stopped


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_at_any_operation_loses_nothing_that_was_acknowledged(seed: int) -> None:
    operations = 0
    while survive(seed, operations + 1, (), "fsync", lose_power):
        operations += 1
    assert operations > 60


@pytest.mark.parametrize("seed", range(4))
def test_neither_does_a_second_crash_at_any_operation_of_the_recovery(seed: int) -> None:
    for first in range(1, 75):
        for second in range(1, 9):
            survive(seed, first, (second,), "fsync", lose_power)


def test_nor_do_many_crashes() -> None:
    for seed in range(300):
        random = Random(-seed)
        survive(
            seed,
            random.randrange(1, 75),
            tuple(random.randrange(1, 75) for _ in range(6)),
            "fsync",
            lose_power,
        )


@pytest.mark.parametrize("mode", ["fsync", "os"])
def test_a_killed_process_loses_nothing_that_was_acknowledged(mode: Mode) -> None:
    for first, second in itertools.product(range(1, 70), (1, 2, 3, 5, 8, 13, 30)):
        survive(first, first, (second,), mode, be_killed)


def test_a_kill_and_then_the_power_lose_nothing() -> None:
    """What one process had written and not synced, and the next has built upon, survives the machine."""
    for first, second in itertools.product(range(1, 75), range(1, 12)):
        random = Random(first)
        life = Life(SimDisk(), "fsync")
        life.run_until(first, be_killed, random)
        life.run_until(second, lose_power, random)
        life.run_until(second + 20, lose_power, random)
        life.begin()


@pytest.mark.parametrize("seed", range(6))
def test_with_the_mode_os_the_machine_loses_ends_or_damages_and_never_lies(seed: int) -> None:
    outcomes = set()
    for first in range(1, 60):
        life = Life(SimDisk(), "os")
        life.run_until(first, lose_power, Random(seed))
        try:
            life.begin()
            outcomes.add("recovered")
        except Damaged:
            outcomes.add("damaged")
    assert "recovered" in outcomes
