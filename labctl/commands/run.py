"""`labctl run experiment` and `labctl calibrate-wait`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from labctl.checks.verdict import lines_of
from labctl.commands.options import WHERE, DryRun, Json, OnLab
from labctl.exits import CHECK_FAILED, INFRASTRUCTURE, OUTCOME_UNKNOWN, UsageProblem
from labctl.output import Output
from labctl.results.problem import ending_with

if TYPE_CHECKING:
    from labctl.conduct.conductor import RunOrder, RunSummary
    from labctl.conduct.request import CellsRequest, RunRequest
    from labctl.run.places import Site

app = typer.Typer(no_args_is_help=True, help="Run experiments.")

RESULTS = Path("results")
REASONS_SHOWN = 3
"""Why a repetition is not valid; `labctl check` tells more of them."""
PLAIN = ("stalls=false", "step_ms=50")
"""The one configuration of BL-WAIT that everything else is compared with."""


def _complete_name() -> list[str]:
    from labctl.experiment.experiment import ALL, names

    return [*names(), ALL]


def _refuse_testbed(kind: str | None) -> None:
    if kind is not None:
        raise UsageProblem(
            "a run is on this machine, or with --lab NAME on a lab; `labctl provision --testbed KIND` makes one"
        )


_WHAT, _FAILURES = "What is run", "After a failure or an interruption"
Name = Annotated[
    str | None,
    typer.Argument(help="Of a file in experiments/, a YAML file, or all.", autocompletion=_complete_name),
]
Profile = Annotated[
    Literal["quick", "standard", "paper"],
    typer.Option(
        help="paper: 1000 transactions; standard: 100; 5 times each. quick: 50, once.", rich_help_panel=_WHAT
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Only these cells, as approach=s-tx or brokers=1,9.", rich_help_panel=_WHAT
    ),
]
Repeat = Annotated[
    int | None,
    typer.Option(min=1, max=99, help="Repetitions, each on other placements.", rich_help_panel=_WHAT),
]
Transactions = Annotated[
    int | None,
    typer.Option(min=1, help="Other than the profile's, after the warm-up.", rich_help_panel=_WHAT),
]
History = Annotated[
    Literal["all", "transactions", "outcomes"],
    typer.Option(help="What nodes write down; all: enough for `simulate replay`.", rich_help_panel=_WHAT),
]
Seed = Annotated[int, typer.Option(min=0, help="Of order, placements and delays.", rich_help_panel=_WHAT)]
Pack = Annotated[
    bool, typer.Option("--pack", help="Several processes on a host, where needed.", rich_help_panel=WHERE)
]
NoDelay = Annotated[
    bool, typer.Option("--no-delay", help="Links of this machine as they are.", rich_help_panel=WHERE)
]
Results = Annotated[Path, typer.Option(help="Where results and calibrations are kept.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with the latest result.", rich_help_panel=_FAILURES)
]
KeepOnFailure = Annotated[
    bool,
    typer.Option(
        "--keep-on-failure", help="Stop there, and leave everything running.", rich_help_panel=_FAILURES
    ),
]
NoTestbed = Annotated[str | None, typer.Option("--testbed", hidden=True, callback=_refuse_testbed)]


@app.callback()
def group() -> None:
    """Run experiments."""


@app.command("experiment", epilog="Example: labctl run experiment base --profile quick")
def experiment(  # noqa: PLR0913, PLR0917 - each option is one choice about the run
    name: Name = None,
    list_: Annotated[bool, typer.Option("--list", help="Say which experiments there are.")] = False,
    dry_run: DryRun = False,
    profile: Profile = "standard",
    only: Only = None,
    repeat: Repeat = None,
    transactions: Transactions = None,
    seed: Seed = 1,
    history: History = "transactions",
    recalibrate: Annotated[
        bool, typer.Option("--recalibrate", help="Use no stored calibration.", rich_help_panel=_WHAT)
    ] = False,
    lab: OnLab = None,
    pack: Pack = False,
    no_delay: NoDelay = False,
    resume: Resume = False,
    keep_on_failure: KeepOnFailure = False,
    results: Results = RESULTS,
    json: Json = False,
    _testbed: NoTestbed = None,
) -> None:
    """Run the cells of an experiment's matrix, each several times, and keep everything in a result folder.

    Cells come in a seeded random order, with a warm-up and a new placement in
    each repetition. Ctrl-C loses at most the one that is running; --resume
    goes on. Each is judged when it has finished, as by labctl check. Ends with
    1 if one has failed or is invalid, with 3 if one could not be judged.
    """
    out = Output(json)
    if list_:
        from labctl.commands.views.run import show_experiments

        show_experiments(out)
        return
    if name is None:
        raise UsageProblem("which experiment? `labctl run experiment --list` says which there are")
    from labctl.conduct.request import RunRequest
    from labctl.experiment.schedule import profile_of

    request = RunRequest(
        name=name,
        profile=profile_of(profile, transactions),
        only=tuple(only or ()),
        repeat=repeat,
        seed=seed,
        history=history,
        with_delay=not no_delay,
        lab=lab,
        packs=pack,
        results=results,
        resume=resume,
        recalibrate=recalibrate,
        keep_on_failure=keep_on_failure,
    )
    if dry_run:
        _plan(out, request)
    else:
        _run(out, request)


def _plan(out: Output, request: RunRequest) -> None:
    from labctl.commands.views.run import show_plan
    from labctl.conduct import conductor

    what = conductor.order(request)
    show_plan(out, what)
    if request.lab is not None:
        from labctl.testbeds.remote import dry

        dry.show(out, request.lab, what, request.packs)


def _run(out: Output, request: RunRequest) -> None:
    from labctl.conduct import conductor
    from labctl.results.resuming import latest

    what = conductor.order(request)
    if request.resume:  # before anything is started, here or there
        latest(request.results, what.name)
    with _place(out, request, what) as there:
        report = _carry_out(out, request, what.at(there), there)
    out.document(report)
    if not out.json:
        out.say(f"{report.done} of {report.total} repetitions are in {report.folder}")
        if report.done:
            out.say(f"{report.committed} of {report.transactions} transactions committed: {report.answer}")
        for label in report.failed:
            out.say(f"failed: {label}")
        for label, reasons in report.reasons.items():
            for text in reasons[:REASONS_SHOWN]:
                for line in lines_of(label, text):
                    out.say(line)
    if report.failed or report.answer == "invalid":
        raise typer.Exit(CHECK_FAILED)
    if report.answer == "unknown":
        raise typer.Exit(OUTCOME_UNKNOWN)


@ending_with(INFRASTRUCTURE)
def _carry_out(out: Output, request: RunRequest, what: RunOrder, there: Site) -> RunSummary:
    from labctl.commands.views import run
    from labctl.conduct import conductor

    folder = conductor.open_folder(request, what)
    out.note(f"result folder: {folder.path}")
    try:
        with run.watching(out, len(what.units()), len(folder.finished())) as view:
            return conductor.carry_out(request, folder, what, there, view)
    except KeyboardInterrupt:
        out.note(
            f"stopped; {len(folder.finished())} of {len(what.units())} repetitions are kept: --resume goes on"
        )
        raise


@contextmanager
def _place(out: Output, request: CellsRequest, what: RunOrder) -> Iterator[Site]:
    """This machine, or a lab that everything is deployed to; nobody else measures there meanwhile."""
    from labctl import topology
    from labctl.experiment import client_processes, selection
    from labctl.run import crew, places

    with ExitStack() as held:
        there: Site
        if request.lab is None:
            held.enter_context(crew.locked())
            there = held.enter_context(places.local())
        else:
            from labctl.testbeds.labs.store import Store
            from labctl.testbeds.remote.places import at

            store = Store(request.lab)
            held.enter_context(store.locked())
            known = store.lab()
            if known.testbed.provider == "netns":
                held.enter_context(crew.locked())
            there = held.enter_context(
                at(
                    store,
                    known,
                    selection.modules(what.cells),
                    lambda host, text: out.note(f"{host}: {text}"),
                    request.packs,
                )
            )
            for cell in what.cells:  # before the first one is run
                there.place(topology.standard(cell.brokers).brokers, client_processes.clients(cell))
        _tell_leftovers(out, there)
        yield there


def _tell_leftovers(out: Output, there: Site) -> None:
    for post in there.posts:
        for text in post.station.left:
            out.note(text)


def calibrate_wait(  # noqa: PLR0913, PLR0917 - each option is one choice about the calibration
    name: Name = None,
    procedure: Annotated[
        Literal["needs", "paper"],
        typer.Option(help="needs: from what transactions need; paper: from 2 s.", rich_help_panel=_WHAT),
    ] = "needs",
    step: Annotated[
        str | None, typer.Option(help="Other than that of the experiment, as 1ms.", rich_help_panel=_WHAT)
    ] = None,
    profile: Profile = "standard",
    only: Only = None,
    repeat: Repeat = None,
    seed: Seed = 1,
    lab: OnLab = None,
    pack: Pack = False,
    no_delay: NoDelay = False,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Find the wait that BL-WAIT needs: on three brokers, or in every configuration of an experiment.

    It is the smallest, in steps, with which so many transactions were all
    correct while some failed with one step less. What is kept holds for this
    code, machine and configuration; `labctl run experiment` uses it.
    """
    from client.scenarios.approaches import BL_WAIT
    from labctl.commands.views import run
    from labctl.conduct import conductor
    from labctl.conduct.request import CalibrationRequest
    from labctl.experiment.schedule import profile_of

    out = Output(json)
    request = CalibrationRequest(
        name=name or "base",
        profile=profile_of(profile),
        only=(*(only or ()), f"approach={BL_WAIT}", *(() if name or only else PLAIN)),
        repeat=repeat,
        seed=seed,
        with_delay=not no_delay,
        lab=lab,
        packs=pack,
        results=results,
        procedure=procedure,
        step_ms=None if step is None else _milliseconds(step),
    )
    what = conductor.order_of_calibrations(request)
    with (
        ending_with(INFRASTRUCTURE),
        _place(out, request, what) as there,
        run.watching(out, len(what.cells), 0) as view,
    ):
        artefacts = conductor.calibrate(request, what.at(there), there, view)
    _show_calibrations(out, artefacts)


def _show_calibrations(out: Output, artefacts: list[dict[str, Any]]) -> None:
    out.document({**(artefacts[0] if len(artefacts) == 1 else {}), "calibrations": artefacts})
    if out.json:
        return
    for artefact in artefacts:
        below = (
            "nothing below" if artefact["failed_at_ms"] is None else f"{artefact['failed_at_ms']:g} ms failed"
        )
        out.say(f"{artefact['cell']}: {artefact['wait_ms']:g} ms ({below}). {artefact['meaning']}")


def _milliseconds(text: str) -> float:
    """50ms, 50, 0.5ms."""
    try:
        value = float(text.removesuffix("ms").strip())
    except ValueError:
        raise UsageProblem(f"--step {text}: write milliseconds, for example 50ms or 1ms") from None
    if not 0 < value <= 2000:
        raise UsageProblem(f"--step {text}: it must be above 0 and at most 2000 ms")
    return value
