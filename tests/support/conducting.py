"""Conducting an experiment without anything that runs: what takes the place of the runner, the view, the machines."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from labctl.conduct import conductor
from labctl.conduct.conductor import RunOrder, RunSummary, RunView
from labctl.conduct.request import RunRequest
from labctl.experiment.schedule import PROFILES, Unit
from labctl.results.documents import write_json
from labctl.results.writing import ResultFolder
from labctl.run.places import Post, Site
from labctl.run.runner import Job, Progress, Ran, Watch
from labctl.run.station import News

QUICK = PROFILES["quick"]


class Runner:
    """Takes the place of `runner.run`; fails or is interrupted where it is told to."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.failing: Callable[[Job], BaseException | None] = lambda job: None

    def __call__(self, job: Job, folder: Path, site: Site, watch: Watch, keep: bool) -> Ran:
        self.jobs.append(job)
        watch(Progress("running", 1, 2))
        error = self.failing(job)
        if error is not None:
            raise error
        write_json(folder / "cell.json", {"cell": job.unit.cell.id})
        return Ran((), 1.0)

    @property
    def keys(self) -> list[tuple[str, int]]:
        return [job.unit.key for job in self.jobs]


class Silent:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def say(self, text: str) -> None: ...
    def calibrating(self, cell: str, number: int, total: int) -> None: ...
    def started(self, unit: Unit, left_s: float) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def finished(self, unit: Unit, ran: Ran, left_s: float) -> None: ...
    def failed(self, unit: Unit, reason: str, kept: Path) -> None:
        self.reasons.append(reason)


class Nowhere:
    """Where nothing is ever started: the runner is replaced."""

    inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
    posts: tuple[Post, ...] = ()

    def place(self, brokers: Sequence[str], clients: Sequence[str]) -> dict[str, Post]:
        raise NotImplementedError

    def workplace(self, folder: Path, post: Post) -> PurePosixPath:
        raise NotImplementedError

    def gather(self, folder: Path, clear: bool) -> list[str]:
        raise NotImplementedError

    def recover(self) -> None:
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        return {"kind": "somewhere", "lab": "l"}

    def machine(self) -> dict[str, Any]:
        return {"cpus": 2, "model": "a model"}

    def facts(self) -> dict[str, Any]:
        return {"hosts": {}}


def order(*only: str, name: str = "base", repeat: int = 2, **others: Any) -> RunOrder:
    return conductor.order(RunRequest(name=name, profile=QUICK, only=only, repeat=repeat, **others))


def carry_out(
    root: Path,
    folder: ResultFolder,
    what: RunOrder,
    view: RunView | None = None,
    recalibrate: bool = False,
    keep_on_failure: bool = False,
) -> RunSummary:
    """What is left of it, nowhere."""
    request = RunRequest(
        name=what.name,
        profile=what.profile,
        results=root,
        recalibrate=recalibrate,
        keep_on_failure=keep_on_failure,
    )
    return conductor.carry_out(request, folder, what, Nowhere(), view or Silent())
