"""Conducts an experiment: makes or takes calibrations, runs what is not finished yet, keeps what is.

A repetition counts when its folder has been renamed into place; whatever happens before that loses only
this one. A repetition that fails is kept apart with its logs, and the next one is run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from broker.protocol.events import Detail
from client.scenarios.stage import Disruption
from labctl.checks import repetition
from labctl.checks.repetition import Judged
from labctl.checks.verdict import Answer, worst
from labctl.conduct import calibrations
from labctl.conduct.calibrations import Setting, Where
from labctl.conduct.request import CalibrationRequest, CellsRequest, RunRequest
from labctl.conduct.wait_search import Procedure
from labctl.exits import LabError
from labctl.experiment import experiment, faulted, schedule, selection
from labctl.experiment.cell import Cell, Links
from labctl.experiment.experiment import Experiment
from labctl.experiment.schedule import Profile, Unit
from labctl.faults.plan import FaultPlan
from labctl.faults.written import FaultsFile
from labctl.results import accounts, layout, provenance, resuming, writing
from labctl.results.documents import read_json, write_json
from labctl.results.resuming import ResumeRefused
from labctl.results.writing import ResultFolder
from labctl.run import runner
from labctl.run.places import Site
from labctl.run.runner import Job, Progress, Ran
from labctl.run.station import HostLost

FAILURES_IN_A_ROW_MAX = 3
"""After so many something is wrong that trying the next one will not mend."""


class GaveUp(LabError):
    """Too many repetitions have failed one after another."""


class RunOrder(Struct, frozen=True):
    """What the user asked for, resolved."""

    name: str
    experiments: tuple[Experiment, ...]
    cells: tuple[Cell, ...]
    """Those of all experiments that `--only` lets through, each once."""
    profile: Profile
    repetitions: int
    seed: int
    links: Links | None
    only: tuple[str, ...] = ()
    where: Where = Where()
    history: Detail = "transactions"

    def at(self, site: Site) -> RunOrder:
        """The same, on these machines."""
        described = site.describe()
        return replace(self, where=Where(described.pop("kind"), described, site.machine()))

    @property
    def disruption(self) -> Disruption:
        with_it = [e for e in self.experiments if any(c.scenario == "disruption" for c in e.cells)]
        return with_it[0].disruption if with_it else Disruption()

    def faults(self, cell: Cell) -> FaultsFile | None:
        """What happens while the cell is measured."""
        return next((e.faults for e in self.experiments if cell.faults and e.name == cell.faults), None)

    def plan(self, unit: Unit) -> FaultPlan | None:
        """The faults of a repetition; those of a seed are the same for all approaches."""
        faults, cell = self.faults(unit.cell), unit.cell
        if faults is None:
            return None
        seed = schedule.seed_of(self.seed, "faults", cell.cast, str(cell.brokers), str(unit.repetition))
        return faulted.plan(faults, cell, seed)

    def estimate_s(self, cell: Cell) -> float:
        """Of one repetition."""
        faults = self.faults(cell)
        lasts_s = None if faults is None else faults.lasts_s
        return schedule.estimate_s(cell, self.profile, self.disruption, self.links is not None, lasts_s)

    def units(self) -> list[Unit]:
        return schedule.units(self.cells, self.repetitions, self.seed)

    def job(self, unit: Unit, wait_ms: float | None = None) -> Job:
        return Job(
            unit=unit,
            transactions=self.profile.transactions,
            warm_up=self.profile.warm_up,
            links=self.links,
            wait_ms=wait_ms,
            disruption=self.disruption,
            profile=self.profile.name,
            history_detail=self.history,
            plan=self.plan(unit),
        )

    def setting(self, cell: Cell, procedure: Procedure = "needs") -> Setting:
        return Setting(
            cell, self.links, self.seed, self.repetitions, self.profile.calibration, procedure, self.where
        )

    def run(self) -> dict[str, Any]:
        """What `run.json` says."""
        return {
            "experiment": self.name,
            "profile": self.profile.name,
            "seed": self.seed,
            "resolved": self._resolved(),
            "cells": self._cells(),
            "testbed": {"kind": self.where.kind, **self.where.testbed, "delay": self._delay()},
            "code": provenance.code(selection.modules(self.cells)),
            "git": provenance.git(),
            "versions": provenance.versions(),
            "machine": self.where.machine or provenance.machine(),
        }

    def _resolved(self) -> dict[str, Any]:
        return {
            "profile": msgspec.to_builtins(self.profile),
            "repetitions": self.repetitions,
            "only": list(self.only),
            "history": self.history,
            "disruption": msgspec.to_builtins(self.disruption),
            "experiments": {each.name: each.resolved() for each in self.experiments},
        }

    def _cells(self) -> list[dict[str, Any]]:
        whose = selection.cells_of(self.experiments)
        return [
            {
                "id": cell.id,
                "parameters": cell.parameters(),
                "repetitions": self.repetitions,
                "experiments": list(whose[cell]),
            }
            for cell in self.cells
        ]

    def _delay(self) -> dict[str, Any] | None:
        if self.links is None:
            return None
        return {**msgspec.to_builtins(self.links), "stalls": any(cell.stalls for cell in self.cells)}


def order(request: CellsRequest) -> RunOrder:
    experiments = experiment.find(request.name)
    everything = list(selection.cells_of(experiments))
    chosen = selection.only(everything, request.only)
    if not request.only:
        chosen = [cell for cell in chosen if not request.profile.leaves_out(cell)]
    if not request.with_delay:
        chosen = [cell for cell in chosen if not cell.stalls]
    if not chosen:
        raise experiment.ExperimentError(
            f"an empty matrix: nothing of {request.name} is left with this profile and these options"
        )
    return RunOrder(
        name=Path(request.name).stem,
        experiments=experiments,
        cells=tuple(chosen),
        profile=request.profile,
        repetitions=request.repeat or request.profile.repetitions,
        seed=request.seed,
        links=experiments[0].links if request.with_delay else None,
        only=request.only,
        history=request.history,
    )


def order_of_calibrations(request: CalibrationRequest) -> RunOrder:
    """With the step that was asked for; cells that differ in their steps only are one then."""
    what = order(request)
    if request.step_ms is None:
        return what
    cells = dict.fromkeys(replace(cell, step_ms=request.step_ms) for cell in what.cells)
    return replace(what, cells=tuple(cells))


class RunView(Protocol):
    """Who watches."""

    def say(self, text: str) -> None: ...
    def calibrating(self, cell: str, number: int, total: int) -> None: ...
    def started(self, unit: Unit, left_s: float) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def finished(self, unit: Unit, ran: Ran, left_s: float) -> None: ...
    def failed(self, unit: Unit, reason: str, kept: Path) -> None: ...


class RunSummary(Struct, frozen=True):
    folder: str
    done: int
    """Repetitions that are finished, those of before a resume included."""
    total: int
    failed: tuple[str, ...]
    answer: Answer = "unknown"
    """The worst verdict on any of those that are finished."""
    transactions: int = 0
    """That were to be committed in them."""
    committed: int = 0
    reasons: dict[str, list[str]] = {}
    """By repetition, why it is not valid."""


def open_folder(request: RunRequest, what: RunOrder) -> ResultFolder:
    return resume(request.results, what) if request.resume else begin(request.results, what)


def begin(root: Path, what: RunOrder) -> ResultFolder:
    return writing.create(root, what.run())


def resume(root: Path, what: RunOrder) -> ResultFolder:
    folder = resuming.latest(root, what.name)
    resuming.refuse_changes(folder, what.run())
    _refuse_new_calibrations(root, folder, what)
    folder.clear_unfinished()
    return folder


def _refuse_new_calibrations(root: Path, folder: ResultFolder, what: RunOrder) -> None:
    for cell in what.cells:
        used = folder.calibration(cell.id) if cell.waits else None
        kept = calibrations.path(root, what.setting(cell))
        if used is not None and kept.exists() and read_json(kept) != used:
            raise ResumeRefused(
                f"the calibration of {cell.id} has been made anew since {folder.path} was begun; "
                "start a new result without --resume"
            )


def carry_out(
    request: RunRequest, folder: ResultFolder, what: RunOrder, site: Site, view: RunView
) -> RunSummary:
    """Everything that is not finished. The caller holds the lock."""
    if facts := site.facts():
        write_json(folder.path / layout.HOSTS, facts)
    waits = _calibrated(request, folder, what, site, view)
    done = folder.finished()
    left = [unit for unit in what.units() if unit.key not in done]
    todo = [unit for unit in left if not unit.cell.waits or unit.cell.id in waits]
    pace = schedule.Pace({cell.id: what.estimate_s(cell) for cell in what.cells})
    failed = [unit.label for unit in left if unit not in todo]
    judged: dict[tuple[str, int], Judged] = {}
    in_a_row = 0
    for place, unit in enumerate(todo):
        view.started(unit, pace.left_s([each.cell.id for each in todo[place:]]))
        try:
            ran = _one(folder, what, unit, waits.get(unit.cell.id), site, view, request.keep_on_failure)
        except LabError as error:
            failed.append(unit.label)
            in_a_row += 1
            kept = folder.keep_failed(folder.staged(*unit.key), *unit.key, str(error))
            view.failed(unit, str(error), kept)
            if isinstance(error, HostLost) or request.keep_on_failure:
                raise GaveUp(f"{unit.label} has failed: {error}; its logs are in {kept}") from error
            if in_a_row == FAILURES_IN_A_ROW_MAX:
                raise GaveUp(
                    f"{in_a_row} repetitions in a row have failed, the last because {error}; "
                    f"their logs are in {folder.path / layout.FAILED}; --resume goes on"
                ) from error
            continue
        in_a_row = 0
        pace.took(unit.cell.id, ran.seconds)
        if ran.judged is not None:
            judged[unit.key] = ran.judged
        view.finished(unit, ran, pace.left_s([each.cell.id for each in todo[place + 1 :]]))
    folder.clear_unfinished()
    everything = [(unit, judged.get(unit.key) or _judged(folder, unit)) for unit in _finished(folder, what)]
    return RunSummary(
        str(folder.path),
        len(folder.finished()),
        len(what.units()),
        tuple(failed),
        worst([each.answer for _, each in everything]),
        sum(each.transactions for _, each in everything),
        sum(each.committed for _, each in everything),
        {unit.label: each.reasons for unit, each in everything if each.answer != "valid"},
    )


def _finished(folder: ResultFolder, what: RunOrder) -> list[Unit]:
    done = folder.finished()
    return [unit for unit in what.units() if unit.key in done]


def _judged(folder: ResultFolder, unit: Unit) -> Judged:
    return repetition.judge(accounts.load(folder.path / layout.repetition(*unit.key)))


def _one(
    folder: ResultFolder,
    what: RunOrder,
    unit: Unit,
    wait_ms: float | None,
    site: Site,
    view: RunView,
    keep: bool,
) -> Ran:
    staged = folder.start(*unit.key)
    ran = runner.run(what.job(unit, wait_ms), staged, site, view.progress, keep)
    folder.finish(staged, *unit.key)
    return replace(ran, judged=_judged(folder, unit))


def _calibrated(
    request: RunRequest, folder: ResultFolder, what: RunOrder, site: Site, view: RunView
) -> Mapping[str, float]:
    """Wait by cell; those that are missing are made now. A cell that none can be found for is left out."""
    waiting = [cell for cell in what.cells if cell.waits]
    found: dict[str, float] = {}
    for cell in waiting:
        artefact = folder.calibration(cell.id)
        if artefact is None and not request.recalibrate:
            artefact = calibrations.stored(request.results, what.setting(cell))
            if artefact is not None:
                folder.add_calibration(cell.id, artefact)
        if artefact is not None:
            found[cell.id] = artefact["wait_ms"]
    missing = [cell for cell in waiting if cell.id not in found]
    for number, cell in enumerate(missing, start=1):
        view.calibrating(cell.id, number, len(missing))
        setting = what.setting(cell)
        began = time.monotonic()
        try:
            calibration = calibrations.make(
                setting, site, folder.path / layout.RUNNING, view.progress, view.say
            )
        except HostLost:
            raise
        except LabError as error:
            view.say(f"{cell.id} could not be calibrated and is left out; --resume tries again: {error}")
            continue
        folder.add_calibration(cell.id, calibrations.keep(request.results, setting, calibration))
        found[cell.id] = calibration.wait_ms
        view.say(f"{cell.id}: wait {calibration.wait_ms:g} ms after {time.monotonic() - began:.0f} s")
    return found


def calibrate(request: CalibrationRequest, what: RunOrder, site: Site, view: RunView) -> list[dict[str, Any]]:
    """Anew, for every cell; the artefacts, with what each is for and where it is kept."""
    artefacts: list[dict[str, Any]] = []
    for number, cell in enumerate(what.cells, start=1):
        view.calibrating(cell.id, number, len(what.cells))
        setting = what.setting(cell, request.procedure)
        scratch = request.results / ".calibrating"
        calibration = calibrations.make(setting, site, scratch, view.progress, view.say)
        kept = calibrations.keep(request.results, setting, calibration)
        path = calibrations.path(request.results, setting)
        artefacts.append({"cell": cell.id, "path": str(path), **kept})
    return artefacts
