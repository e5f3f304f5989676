"""`labctl run experiment` and `labctl calibrate-wait`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labctl.exits import CHECK_FAILED, UsageProblem
from labctl.output import Output

if TYPE_CHECKING:
    from labctl.conduct import Choices, Order, Report
    from labctl.site import Site

app = typer.Typer(no_args_is_help=True, help="Run experiments.")

RESULTS = Path("results")


class ProfileChoice(StrEnum):
    QUICK = "quick"
    STANDARD = "standard"
    PAPER = "paper"


class Testbed(StrEnum):
    LOCAL = "local"


class ProcedureChoice(StrEnum):
    NEEDS = "needs"
    PAPER = "paper"


def _complete_name() -> list[str]:
    from labctl.experiment import ALL, names

    return [*names(), ALL]


def _complete_lab() -> list[str]:
    from labctl.testbeds import store

    return store.names()


Lab = Annotated[
    str | None,
    typer.Option("--lab", help="On the hosts of this lab; see provision.", autocompletion=_complete_lab),
]
Name = Annotated[
    str | None,
    typer.Argument(help="Of a file in experiments/, a YAML file, or all.", autocompletion=_complete_name),
]
ProfileOption = Annotated[
    ProfileChoice,
    typer.Option("--profile", help="paper: 1000 transactions; standard: 100; 5 times each. quick: 50, once."),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="KEY=VALUE", help="Only these cells, as approach=s-tx or brokers=1,9."),
]
NoDelay = Annotated[bool, typer.Option("--no-delay", help="Links of this machine as they are.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of order, placements and delays.")]
Results = Annotated[Path, typer.Option("--results", help="Where results and calibrations are kept.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, all else on stderr.")]


@app.callback()
def group() -> None:
    """Run experiments."""


@app.command("experiment", epilog="Example: labctl run experiment base --profile quick")
def experiment(  # noqa: PLR0913, PLR0917 - each option is one choice about the run
    name: Name = None,
    list_: Annotated[bool, typer.Option("--list", help="Say which experiments there are.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Cells, processes, time; run nothing.")] = False,
    testbed: Annotated[Testbed, typer.Option("--testbed", help="Where, without a lab.")] = Testbed.LOCAL,
    lab: Lab = None,
    pack: Annotated[bool, typer.Option("--pack", help="Several processes on a host, where needed.")] = False,
    keep_on_failure: Annotated[
        bool, typer.Option("--keep-on-failure", help="Stop there, and leave everything running.")
    ] = False,
    profile: ProfileOption = ProfileChoice.STANDARD,
    only: Only = None,
    repeat: Annotated[int | None, typer.Option("--repeat", min=1, max=99, help="Repetitions.")] = None,
    transactions: Annotated[
        int | None, typer.Option("--transactions", min=1, help="Other than the profile's, after the warm-up.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the latest result.")] = False,
    recalibrate: Annotated[bool, typer.Option("--recalibrate", help="Use no stored calibration.")] = False,
    no_delay: NoDelay = False,
    seed: Seed = 1,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Run the cells of an experiment's matrix, each several times, and keep everything in a result folder.

    Cells come in a seeded random order, with a warm-up and a new placement in each repetition. Ctrl-C loses
    at most the one that is running; --resume goes on. Ends with 1 if a repetition has failed.
    """
    del testbed  # there is one
    out = Output(json)
    if list_:
        _list(out)
        return
    if name is None:
        raise UsageProblem("which experiment? `labctl run experiment --list` says which there are")
    from labctl import conduct
    from labctl.results import latest
    from labctl.schedule import profile_of

    asked = profile_of(profile.value, transactions)
    what = conduct.order(name, asked, seed, only or [], repeat, not no_delay)
    if dry_run:
        _show_plan(out, what)
        if lab is not None:
            from labctl.remote import dry

            dry.show(out, lab, what, pack)
        return
    if resume:  # before anything is started, here or there
        latest(results, what.name)
    choices = conduct.Choices(recalibrate, keep_on_failure)
    with _place(out, what, lab, pack) as there:
        report = _run(out, what.at(there), there, results, resume, choices)
    out.document(report)
    if not json:
        out.say(f"{report.done} of {report.total} repetitions are in {report.folder}")
        for label in report.failed:
            out.say(f"failed: {label}")
    if report.failed:
        raise typer.Exit(CHECK_FAILED)


def _run(out: Output, what: Order, there: Site, root: Path, resume: bool, choices: Choices) -> Report:
    from labctl import conduct
    from labctl.commands import run_view

    folder = conduct.resume(root, what) if resume else conduct.begin(root, what)
    out.note(f"result folder: {folder.path}")
    try:
        with run_view.watching(out, len(what.units()), len(folder.finished())) as view:
            return conduct.carry_out(root, folder, what, there, view, choices)
    except KeyboardInterrupt:
        out.note(
            f"stopped; {len(folder.finished())} of {len(what.units())} repetitions are kept: --resume goes on"
        )
        raise


@contextmanager
def _place(out: Output, what: Order, lab: str | None, pack: bool) -> Iterator[Site]:
    """This machine, or a lab that everything is deployed to; nobody else measures there meanwhile."""
    from labctl import choice, crew, drivers, site, topology

    with ExitStack() as held:
        there: Site
        if lab is None:
            held.enter_context(crew.locked())
            there = held.enter_context(site.local())
        else:
            from labctl.remote.site import at
            from labctl.testbeds.store import Store

            store = Store(lab)
            held.enter_context(store.locked())
            known = store.lab()
            if known.testbed.provider == "netns":
                held.enter_context(crew.locked())
            there = held.enter_context(
                at(
                    store,
                    known,
                    choice.modules(what.cells),
                    lambda host, text: out.note(f"{host}: {text}"),
                    pack,
                )
            )
            for cell in what.cells:  # before the first one is run
                there.place(topology.standard(cell.brokers).brokers, drivers.clients(cell))
        _tell_leftovers(out, there)
        yield there


def _tell_leftovers(out: Output, there: Site) -> None:
    for post in there.posts:
        for text in post.station.left:
            out.note(text)


def _list(out: Output) -> None:
    from labctl import experiment as experiments

    found = [experiments.find(each)[0] for each in experiments.names()]
    rows = [(e.name, e.figure, len(e.cells), ", ".join(_varied(e.cells))) for e in found]
    out.document({"experiments": [{"name": n, "figure": f, "cells": c, "varies": v} for n, f, c, v in rows]})
    if not out.json:
        out.table("Experiments", ("name", "figure", "cells", "what varies"), rows)


def _varied(cells: tuple[Any, ...]) -> list[str]:
    """The axes with more than one value."""
    found = []
    for axis in cells[0].parameters():
        values = list(dict.fromkeys(getattr(cell, axis) for cell in cells if getattr(cell, axis) is not None))
        if len(values) > 1:
            found.append(f"{axis} {'/'.join(map(_shown, values))}")
    return found


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show_plan(out: Output, what: Order) -> None:
    from labctl import drivers, schedule
    from labctl.commands.run_view import duration

    with_delay = what.links is not None
    rows = []
    for cell in what.cells:
        one_s = schedule.estimate_s(cell, what.profile, what.disruption, with_delay)
        rows.append(
            (cell.id, cell.brokers, len(drivers.clients(cell)), what.repetitions, what.repetitions * one_s)
        )
    waiting = [cell for cell in what.cells if cell.waits]
    calibration_s = sum(schedule.calibration_s(cell, what.profile, what.repetitions) for cell in waiting)
    total_s = sum(row[-1] for row in rows) + calibration_s
    out.document(
        {
            "experiment": what.name,
            "profile": what.profile.name,
            "cells": [
                {"id": i, "brokers": b, "clients": c, "repetitions": r, "estimate_s": round(s, 1)}
                for i, b, c, r, s in rows
            ],
            "calibrations": len(waiting),
            "calibration_s": round(calibration_s, 1),
            "estimate_s": round(total_s, 1),
        }
    )
    if out.json:
        return
    title = f"{what.name}, profile {what.profile.name}: {len(rows)} cells"
    out.table(title, ("cell", "brokers", "clients", "repetitions", "seconds"), rows)
    out.say(
        f"{len(waiting)} calibrations, about {duration(calibration_s)} where none is stored; "
        f"about {duration(total_s)} in all (an estimate, not a measurement)"
    )


def calibrate_wait(  # noqa: PLR0913, PLR0917 - each option is one choice about the calibration
    name: Name = None,
    procedure: Annotated[
        ProcedureChoice,
        typer.Option("--procedure", help="needs: from what transactions need; paper: from 2 s."),
    ] = ProcedureChoice.NEEDS,
    step: Annotated[
        str | None, typer.Option("--step", help="Other than that of the experiment, as 1ms.")
    ] = None,
    profile: ProfileOption = ProfileChoice.STANDARD,
    only: Only = None,
    repeat: Annotated[int | None, typer.Option("--repeat", min=1, max=99, help="Placements.")] = None,
    no_delay: NoDelay = False,
    lab: Lab = None,
    pack: Annotated[bool, typer.Option("--pack", help="Several processes on a host, where needed.")] = False,
    seed: Seed = 1,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Find the wait that BL-WAIT needs: on three brokers, or in every configuration of an experiment.

    It is the smallest, in steps, with which so many transactions were all correct while some failed with one
    step less. What is kept holds for this code, machine and configuration; `labctl run experiment` uses it.
    """
    from labctl import calibrations
    from labctl.commands import run_view

    out = Output(json)
    what = _to_calibrate(name, profile, seed, only or [], repeat, not no_delay, step)
    artefacts: list[dict[str, Any]] = []
    with _place(out, what, lab, pack) as there:
        what = what.at(there)
        with run_view.watching(out, len(what.cells), 0) as view:
            for number, cell in enumerate(what.cells, start=1):
                view.calibrating(cell.id, number, len(what.cells))
                setting = what.setting(cell, procedure.value)
                made = calibrations.make(setting, there, results / ".calibrating", view.progress, view.say)
                kept = calibrations.keep(results, setting, made)
                artefacts.append({"cell": cell.id, "path": str(calibrations.path(results, setting)), **kept})
    out.document({**(artefacts[0] if len(artefacts) == 1 else {}), "calibrations": artefacts})
    if json:
        return
    for artefact in artefacts:
        below = (
            "nothing below" if artefact["failed_at_ms"] is None else f"{artefact['failed_at_ms']:g} ms failed"
        )
        out.say(f"{artefact['cell']}: {artefact['wait_ms']:g} ms ({below}). {artefact['meaning']}")


def _to_calibrate(
    name: str | None,
    profile: ProfileChoice,
    seed: int,
    only: list[str],
    repeat: int | None,
    with_delay: bool,
    step: str | None,
) -> Order:
    """Cells of BL-WAIT; without a name only the one that everything else is compared with."""
    from msgspec.structs import replace

    from labctl import conduct
    from labctl.schedule import PROFILES

    plain = [] if name or only else ["stalls=false", "step_ms=50"]
    choices = [*only, "approach=bl-wait", *plain]
    what = conduct.order(name or "base", PROFILES[profile.value], seed, choices, repeat, with_delay)
    if step is None:
        return what
    step_ms = _milliseconds(step)
    cells = dict.fromkeys(replace(cell, step_ms=step_ms) for cell in what.cells)
    return replace(what, cells=tuple(cells))


def _milliseconds(text: str) -> float:
    """50ms, 50, 0.5ms."""
    try:
        value = float(text.removesuffix("ms").strip())
    except ValueError:
        raise UsageProblem(f"--step {text}: write milliseconds, for example 50ms or 1ms") from None
    if not 0 < value <= 2000:
        raise UsageProblem(f"--step {text}: it must be above 0 and at most 2000 ms")
    return value
