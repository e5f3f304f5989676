"""Calibrations as artefacts: what one holds for, where it is kept, whether it is stale, and how it is made.

One is kept per configuration in `results/calibrations/`, and copied into every result that uses it. It holds
for the cell, the delays, the placements, the code and the machine that it was made with, and for no other.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from labctl.conduct import wait_needed, wait_search
from labctl.conduct.wait_search import Calibration, Procedure, TrialTransaction
from labctl.exits import UsageProblem
from labctl.experiment import client_processes, schedule, selection
from labctl.experiment.cell import Cell, Links
from labctl.results import layout, provenance
from labctl.results.documents import read_json, write_json
from labctl.results.writing import now
from labctl.run import runner
from labctl.run.places import Site
from labctl.run.runner import Job, Watch

NEEDS_TRANSACTIONS = 200
NEEDS_WAIT_MS = 100.0
"""While it is read how long transactions need; has no influence on that."""
WARM_UP = 3


class Stale(UsageProblem):
    """A calibration that was made under other conditions."""


class Where(Struct, frozen=True):
    """The machines that something is run or calibrated on."""

    kind: str = "local"
    testbed: dict[str, Any] = {}
    """What `run.json` says besides."""
    machine: dict[str, Any] = {}
    """What measurements depend on; nothing: this machine."""


class Setting(Struct, frozen=True):
    """What a calibration is made for."""

    cell: Cell
    links: Links | None
    seed: int
    repetitions: int
    """The placements over which transactions are spread."""
    transactions: int
    """So many correct ones in a row, of all coordinators together."""
    procedure: Procedure = "needs"
    where: Where = Where()

    @property
    def name(self) -> str:
        bare = "" if self.links is not None else "-nodelay"
        there = "" if self.where.kind == "local" else f"-{self.where.kind}"
        return f"{self.cell.id}-{self.transactions}x{self.repetitions}-seed{self.seed}{bare}{there}"

    def configuration(self) -> dict[str, Any]:
        machine = self.where.machine or provenance.machine()
        return {
            **self.cell.parameters(),
            "delay": None if self.links is None else msgspec.structs.asdict(self.links),
            "seed": self.seed,
            "placements": self.repetitions,
            "transactions": self.transactions,
            "code": provenance.code(selection.modules([self.cell])),
            "machine": {name: machine[name] for name in ("cpus", "model")},
        }


# Keeping


def path(root: Path, setting: Setting) -> Path:
    return root / layout.calibration(setting.name)


def stored(root: Path, setting: Setting) -> dict[str, Any] | None:
    """The one for this configuration; raises if the one that is there was made under other conditions."""
    where = path(root, setting)
    if not where.exists():
        return None
    artefact: dict[str, Any] = read_json(where)
    changed = _changed(artefact, setting.configuration())
    if changed:
        raise Stale(
            f"the calibration {where} of {artefact.get('made')} does not hold any more: {', '.join(changed)} changed; "
            "make it anew with `labctl calibrate-wait` or `labctl run experiment --recalibrate`"
        )
    return artefact


def _changed(artefact: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    before = artefact.get("configuration", {})
    after = msgspec.json.decode(msgspec.json.encode(now))
    changed = []
    for name, value in after.items():
        known = before.get(name)
        if known == value:
            continue
        if name == "code" and isinstance(known, dict):
            changed += [f"the code of the {part}" for part in value if known.get(part) != value[part]]
        else:
            changed.append(name)
    return changed


def keep(root: Path, setting: Setting, calibration: Calibration) -> dict[str, Any]:
    artefact = describe(setting, calibration)
    where = path(root, setting)
    where.parent.mkdir(parents=True, exist_ok=True)
    write_json(where, artefact)
    return artefact


def describe(setting: Setting, calibration: Calibration) -> dict[str, Any]:
    return {
        "configuration": setting.configuration(),
        **msgspec.to_builtins(calibration),
        "meaning": calibration.meaning,
        "procedure": setting.procedure,
        "made": now(),
        "load_average": os.getloadavg()[0],
    }


# Making


class TrialRunner:
    """Runs transactions of a cell with a given wait, spread over the placements of its repetitions."""

    def __init__(
        self, setting: Setting, site: Site, scratch: Path, watch: Watch, say: Callable[[str], None]
    ) -> None:
        self._setting = setting
        self._site = site
        self._scratch = scratch
        self._watch = watch
        self._say = say
        self._runs = 0

    def run(self, wait_ms: float, transactions: int) -> list[TrialTransaction]:
        """Ends at the first that goes wrong."""
        self._runs += 1
        self._say(f"{self._setting.cell.id}: trying a wait of {wait_ms:g} ms")
        outcomes: list[TrialTransaction] = []
        for repetition, share in enumerate(spread(transactions, self._setting.repetitions), start=1):
            job = self._job(repetition, share, wait_ms, ends_at_fault=True)
            ran = self._one(job, lambda folder: None)
            # A fault ends the run, also in the warm-up: left out, the placement would seem to have passed.
            outcomes += [_outcome(r, repetition) for r in ran if not r.warm_up or r.correct is not True]
            if not all(outcome.correct for outcome in outcomes):
                break
        return outcomes

    def needs_ms(self, transactions: int = NEEDS_TRANSACTIONS) -> list[float]:
        """How long each of so many transactions needed."""
        self._runs += 1
        self._say(f"{self._setting.cell.id}: reading how long {transactions} transactions need")
        found: list[float] = []
        for repetition, share in enumerate(spread(transactions, self._setting.repetitions), start=1):
            job = replace(self._job(repetition, share, NEEDS_WAIT_MS), history_detail="all")
            self._one(job, lambda folder, job=job: found.extend(_needs(job, folder)))  # type: ignore[misc]
        return found

    def _job(self, repetition: int, share: int, wait_ms: float, ends_at_fault: bool = False) -> Job:
        setting = self._setting
        unit = schedule.unit(setting.cell, repetition, setting.seed)
        # Other delays than those of the measurement, and others in every run.
        seed = schedule.seed_of(
            setting.seed, setting.cell.id, "calibration", str(self._runs), str(repetition)
        )
        return Job(
            unit=replace(unit, seed=seed),
            # Coordinators share them: what counts is how many transactions were correct.
            transactions=ceil(share / setting.cell.copies),
            warm_up=WARM_UP,
            links=setting.links,
            wait_ms=wait_ms,
            history_detail="outcomes",
            ends_at_fault=ends_at_fault,
        )

    def _one(self, job: Job, look: Callable[[Path], None]) -> Sequence[client_processes.TransactionLine]:
        folder = self._scratch / "calibration"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ran = runner.run(job, folder, self._site, self._watch)
        look(folder)
        shutil.rmtree(folder)
        return ran.records


def make(
    setting: Setting,
    site: Site,
    scratch: Path,
    watch: Watch = lambda progress: None,
    say: Callable[[str], None] = lambda text: None,
) -> Calibration:
    bench = TrialRunner(setting, site, scratch, watch, say)
    assert setting.cell.step_ms is not None, "only BL-WAIT is calibrated"
    search = wait_search.WaitSearch(bench.run, setting.cell.step_ms, setting.transactions)
    if setting.procedure == "paper":
        return search.paper()
    return search.from_needs(bench.needs_ms())


def spread(transactions: int, placements: int) -> list[int]:
    """As evenly as possible, and not more placements than transactions."""
    used = min(transactions, placements)
    return [transactions // used + (index < transactions % used) for index in range(used)]


def _outcome(record: client_processes.TransactionLine, repetition: int) -> TrialTransaction:
    fault = record.fault or ("" if record.correct else record.outcome or "unknown")
    return TrialTransaction(
        correct=record.correct is True,
        fault=fault,
        label=f"placement {repetition}, copy {record.copy}, transaction {record.number}",
    )


def _needs(job: Job, folder: Path) -> list[float]:
    found: list[float] = []
    for client in client_processes.cast(job.unit.cell):
        if not client.coordinates:
            continue
        publisher = wait_needed.PUBLISHER + client_processes.suffix(job.unit.cell, client.copy)
        broker = job.unit.placement[publisher]
        found += wait_needed.needs_ms(
            wait_needed.read(folder / layout.lines_of(layout.HISTORY, client.name)),
            wait_needed.read(folder / layout.lines_of(layout.HISTORY, broker)),
        )
    return found
