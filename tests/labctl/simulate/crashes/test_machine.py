"""The machine of a simulated broker: how its process ends, and what the next one finds."""

from __future__ import annotations

import pytest

from broker.journal.failures import JournalFailed
from broker.journal.folder import Folder
from labctl.simulate.crashes.disk import Crashed
from labctl.simulate.crashes.machine import SimMachine
from labctl.simulate.programs.programs import Journals, Restart


def running(journals: Journals | None = None) -> tuple[SimMachine, Folder]:
    machine = SimMachine("b1", journals or Journals(), 1)
    return machine, machine.open(7)


def found(machine: SimMachine) -> list[bytes]:
    return list(machine.open(8).entries())


def test_a_folder_keeps_the_life_of_its_broker() -> None:
    machine, folder = running()
    assert folder.life == 7
    machine.end(Restart("b1", 0.0, "kill"))
    assert machine.open(9).life == 7


@pytest.mark.parametrize("kind", ["crash", "kill", "fail"])
def test_what_was_synced_is_found_however_the_process_ends(kind: str) -> None:
    machine, folder = running()
    folder.append(b"one")
    folder.sync()
    folder.append(b"two")
    machine.end(Restart("b1", 0.0, kind))  # type: ignore[arg-type]
    assert found(machine) == [b"one"]


def test_a_process_ends_instead_of_an_operation() -> None:
    machine, folder = running()
    machine.plan(Restart("b1", 0.0, operations=2))
    folder.append(b"one")
    assert machine.is_doomed
    with pytest.raises(Crashed):
        folder.sync()
    assert machine.disk.has_stopped
    machine.end(Restart("b1", 0.0))
    assert not machine.is_doomed


def test_an_operation_fails() -> None:
    machine, folder = running()
    machine.plan(Restart("b1", 0.0, "fail", operations=2))
    folder.append(b"one")
    assert machine.is_doomed
    with pytest.raises(JournalFailed):
        folder.sync()
    assert not machine.is_doomed


def test_what_was_planned_can_be_given_up() -> None:
    for kind in ("crash", "fail"):
        machine, folder = running()
        machine.plan(Restart("b1", 0.0, kind, operations=1))
        machine.spare()
        assert folder.sync() == 0
        folder.append(b"one")
        assert folder.sync() == 1


def test_only_a_machine_that_is_started_anew_has_another_clock() -> None:
    for kind, behind_s in (("crash", 5.0), ("kill", 0.0)):
        machine, _ = running()
        machine.end(Restart("b1", 0.0, kind, behind_s=5.0))  # type: ignore[arg-type]
        assert machine.behind_s == behind_s


def test_some_syncs_come_at_once_and_some_wait() -> None:
    machine, _ = running(Journals(sync_s=1e-3))
    waits = [machine.sync_s() for _ in range(100)]
    assert 20 < sum(wait > 0 for wait in waits) < 80
    assert {running()[0].sync_s() for _ in range(5)} == {0.0}
