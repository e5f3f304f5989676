"""`labctl simulate`: random schedules judged, one of them replayed, small worlds seen whole, virtual time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from labctl.commands.options import Json
from labctl.exits import CHECK_FAILED, USAGE, UsageProblem
from labctl.output import Output

DEFAULT_COMMAND = "campaign"


class SimulateCommands(TyperGroup):
    """Options without a command before them are those of a campaign."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        names_none = args[0].startswith("-") if args else not ctx.resilient_parsing
        if names_none and not set(args[:1]) & set(ctx.help_option_names):
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=SimulateCommands,
    subcommand_metavar="[COMMAND] [ARGS]...",
    epilog="Examples: labctl simulate --seeds 0:1000; labctl simulate explore; labctl simulate soak 10000",
)

Protocols = Annotated[
    str,
    typer.Option(
        "--protocol", help="One or several, with commas; mixed: all in one overlay. Default: each, and mixed."
    ),
]
Protocol = Annotated[str, typer.Option(help="Of its transactions; mixed: all in one overlay.")]
Scenarios = Annotated[str, typer.Option("--scenario", help="One or several generators. Default: all.")]
Scenario = Annotated[str, typer.Option(help="Its generator.")]

_CHANGES = "What is changed in what the generators draw"
Brokers = Annotated[int | None, typer.Option(min=1, help="Size of the overlay.", rich_help_panel=_CHANGES)]
Crash = Annotated[
    float, typer.Option(min=0, max=1, help="How often a client crashes.", rich_help_panel=_CHANGES)
]
Away = Annotated[
    float,
    typer.Option(min=0, max=1, help="How often a client loses its connection.", rich_help_panel=_CHANGES),
]
Abort = Annotated[
    float, typer.Option(min=0, max=1, help="How often a coordinator aborts.", rich_help_panel=_CHANGES)
]
SlowLinks = Annotated[
    float, typer.Option(min=0.01, help="Factor for the delay of some links.", rich_help_panel=_CHANGES)
]
Cut = Annotated[
    float,
    typer.Option("--cut", min=0, help="How often a link loses its connection.", rich_help_panel=_CHANGES),
]
Restart = Annotated[
    float,
    typer.Option(
        "--restart", min=0, help="How often a broker crashes, and recovers.", rich_help_panel=_CHANGES
    ),
]
Steady = Annotated[
    bool,
    typer.Option(
        "--steady",
        help="All seeds have the same delays and rates, where each would draw its own.",
        rich_help_panel=_CHANGES,
    ),
]

_DELAYS, _REAL = "Delays", "A real run"


@app.callback()
def group() -> None:
    """Run the broker cores and client sessions under a simulated network and clock, and judge what happened.

    Without a command it is a campaign: `labctl simulate --seeds 0:1000`.
    The exit code is 1 when something was violated.
    """


@app.command("campaign", epilog="Example: labctl simulate campaign --protocol d-tx --seeds 0:1000")
def campaign(  # noqa: PLR0913, PLR0917 - each option is one knob of the campaign
    protocol: Protocols = "",
    scenario: Scenarios = "",
    seeds: Annotated[str, typer.Option(metavar="FIRST:END", help="Up to, not including, the end.")] = "0:100",
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
    record: Annotated[
        Path | None, typer.Option(help="Append each finished chunk to this file, and skip those in it.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Do not stop after ten schedules that failed.")
    ] = False,
    shrink_s: Annotated[float, typer.Option(min=0, help="Time to make a failing program small.")] = 10.0,
    brokers: Brokers = None,
    crash: Crash = 0.0,
    away: Away = 0.0,
    abort: Abort = 0.0,
    slow_links: SlowLinks = 1.0,
    cut: Cut = 0.0,
    restart: Restart = 0.0,
    steady: Steady = False,
    json: Json = False,
) -> None:
    """Judge the random schedules of many seeds.

    A seed is a schedule. A violation is printed with its seed, a smaller
    program that shows it, and a diagram of that.
    """
    from labctl.simulate.programs.variants import Variant
    from labctl.simulate.search import requests
    from labctl.simulate.views import console

    first, end = requests.seed_range(seeds)
    request = requests.Campaign(
        choice=requests.choice(protocol, scenario),
        first=first,
        end=end,
        variant=Variant(brokers or 0, crash, away, abort, slow_links, cut, restart, not steady),
        jobs=jobs or os.cpu_count() or 1,
        record=record,
        keeps_going=keep_going,
        shrink_s=shrink_s,
    )
    _end(console.campaign(Output(json), request))


@app.command(
    "replay",
    epilog="Examples: labctl simulate replay 17 --protocol d-tx --scenario skew; "
    "labctl simulate replay --from results/base --cell dispatching-s-tx-b3-k1-c1 --repetition 2",
)
def replay(  # noqa: PLR0913, PLR0917 - each option is a part of what names a schedule
    seed: Annotated[
        int | None,
        typer.Argument(metavar="SEED", min=0, help="As a campaign tells it.", show_default=False),
    ] = None,
    protocol: Protocol = "",
    scenario: Scenario = "",
    brokers: Brokers = None,
    crash: Crash = 0.0,
    away: Away = 0.0,
    abort: Abort = 0.0,
    slow_links: SlowLinks = 1.0,
    cut: Cut = 0.0,
    restart: Restart = 0.0,
    steady: Steady = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RESULT",
            help="A result, or a folder of histories (*.jsonl).",
            rich_help_panel=_REAL,
        ),
    ] = None,
    cell: Annotated[str, typer.Option(help="Of a result with several.", rich_help_panel=_REAL)] = "",
    repetition: Annotated[
        int | None, typer.Option(min=1, help="Default: the first.", rich_help_panel=_REAL)
    ] = None,
    shrink_s: Annotated[
        float,
        typer.Option(min=0, help="Time to make a run that broke a promise small.", rich_help_panel=_REAL),
    ] = 10.0,
    steps: Annotated[
        bool, typer.Option("--steps", help="Step through all of it.", rich_help_panel=_REAL)
    ] = False,
    json: Json = False,
) -> None:
    """Step through one schedule and judge it, or replay a real run.

    A seed means nothing without its protocol and scenario, and whatever else
    the campaign was given.

    With --from it is a real run, from histories at the level "all" (labctl run
    experiment NAME --history all). The core of every broker is given what the
    real one was given, in the same order and at the same times, and says what
    it would have sent. Where the real broker did something else, the first
    such message is named: a fault of its server, its links or its timers. What
    was reproduced is judged as one overlay; if it broke a promise, the smallest
    part of it that does so is drawn.
    """
    from labctl.simulate.programs.variants import Variant
    from labctl.simulate.search import requests
    from labctl.simulate.views import console

    if source is not None:
        if seed is not None:
            raise UsageProblem("a SEED or --from RESULT, not both")
        _end(_replay_real(Output(json), source, cell, repetition or 0, steps, shrink_s))
        return
    if seed is None:
        raise UsageProblem("which schedule? give a SEED, or a real run by --from RESULT")
    variant = Variant(brokers or 0, crash, away, abort, slow_links, cut, restart, not steady)
    request = requests.one_schedule(seed, requests.choice(protocol, scenario), variant)
    _end(console.replay(Output(json), request))


def _replay_real(out: Output, source: Path, cell: str, number: int, steps: bool, shrink_s: float) -> bool:
    from labctl.results.problem import ending_with
    from labctl.simulate.recorded.repetition import which
    from labctl.simulate.views import recorded

    with ending_with(USAGE):
        return recorded.replay(out, which(source, cell, number), steps, shrink_s)


@app.command("explore", epilog="Example: labctl simulate explore --protocol d-tx,s-tx")
def explore(
    protocol: Protocols = "",
    limit: Annotated[int, typer.Option(min=1, help="Runs of each small world.")] = 20_000,
    json: Json = False,
) -> None:
    """Judge all schedules of small worlds.

    That is every order in which links can deliver.
    """
    from labctl.simulate.search import requests
    from labctl.simulate.views import console

    request = requests.Exploration(requests.protocols(protocol), limit)
    _end(console.explore(Output(json), request))


@app.command("measure", epilog="Example: labctl simulate measure --protocol s-tx --brokers 9,1000")
def measure(
    protocol: Annotated[str, typer.Option(help="One or several, with commas. Default: each.")] = "",
    brokers: Annotated[str, typer.Option(help="Sizes of the overlay, with commas. Default: 1 to 1000.")] = "",
    client_ms: Annotated[
        float, typer.Option(min=0, help="Median of a client's link.", rich_help_panel=_DELAYS)
    ] = 3.3,
    broker_ms: Annotated[
        float, typer.Option(min=0, help="Median between brokers.", rich_help_panel=_DELAYS)
    ] = 2.2,
    sigma: Annotated[
        float, typer.Option(min=0, max=3, help="Log-normal spread.", rich_help_panel=_DELAYS)
    ] = 0.4,
    json: Json = False,
) -> None:
    """Measure one transaction in virtual time.

    Latency and messages of a dispatching transaction, in overlays of one to
    a thousand brokers.
    """
    from labctl.simulate.search import requests
    from labctl.simulate.search.measure import MedianDelays
    from labctl.simulate.views import console

    request = requests.Measurement(
        requests.measurable_protocols(protocol),
        requests.sizes(brokers),
        MedianDelays(client_ms, broker_ms, sigma),
    )
    _end(console.measure(Output(json), request))


@app.command("soak", epilog="Example: labctl simulate soak 100000")
def soak(
    transactions: Annotated[
        int, typer.Argument(metavar="TRANSACTIONS", min=1, help="Crashes of clients among them.")
    ] = 10_000,
    protocol: Protocols = "",
    brokers: Annotated[int, typer.Option(min=1, help="Of the world.")] = 3,
    json: Json = False,
) -> None:
    """Judge what very many transactions leave behind.

    They are run in one world. Contexts, tombs, tags and buffers of its
    brokers must be gone in the end.
    """
    from labctl.simulate.search import requests
    from labctl.simulate.views import console

    request = requests.LongRun(requests.protocols_together(protocol), brokers, transactions)
    _end(console.soak(Output(json), request))


def _end(kept: bool) -> None:
    """With the exit code for whether the promises were kept."""
    if not kept:
        raise typer.Exit(CHECK_FAILED)
