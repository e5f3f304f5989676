"""`labctl simulate`: random schedules judged, one of them replayed, small worlds seen whole, virtual time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from labctl.exits import CHECK_FAILED, INTERRUPTED, UsageProblem
from labctl.output import Output

EPILOG = (
    "Examples: labctl simulate --protocol d-tx --scenario skew --seeds 0:1000; "
    "labctl simulate --protocol d-tx --scenario skew --replay 17; labctl simulate --measure --brokers 9,1000"
)


def simulate(  # noqa: PLR0913, PLR0917 - each option is one knob of the simulation
    protocol: Annotated[
        str,
        typer.Option(
            help="One or several, with commas; mixed: all in one overlay. Default: each, and mixed."
        ),
    ] = "",
    scenario: Annotated[str, typer.Option(help="One or several generators. Default: all.")] = "",
    brokers: Annotated[str, typer.Option(help="So many, in place of what the generators draw.")] = "",
    seeds: Annotated[str, typer.Option(help="From, and up to but not including.")] = "0:100",
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
    crash: Annotated[float, typer.Option(min=0, max=1, help="How often a client crashes.")] = 0.0,
    away: Annotated[float, typer.Option(min=0, max=1, help="How often a client loses its connection.")] = 0.0,
    abort: Annotated[float, typer.Option(min=0, max=1, help="How often a coordinator aborts.")] = 0.0,
    slow_links: Annotated[float, typer.Option(min=0.01, help="Factor for the delay of some links.")] = 1.0,
    record: Annotated[
        Path | None, typer.Option(help="Append each finished chunk to this file, and skip those in it.")
    ] = None,
    keep_going: Annotated[bool, typer.Option(help="Do not stop after ten schedules that failed.")] = False,
    shrink_s: Annotated[float, typer.Option(min=0, help="Time to make a failing program small.")] = 10.0,
    replay: Annotated[int | None, typer.Option(min=0, help="Step through the schedule of this seed.")] = None,
    explore: Annotated[bool, typer.Option("--explore", help="All schedules of small worlds.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Runs of each small world.")] = 20_000,
    measure: Annotated[bool, typer.Option("--measure", help="Latency and messages in virtual time.")] = False,
    client_ms: Annotated[float, typer.Option(min=0, help="Median delay of a client's link.")] = 3.3,
    broker_ms: Annotated[float, typer.Option(min=0, help="Median delay between brokers.")] = 2.2,
    sigma: Annotated[float, typer.Option(min=0, max=3, help="Spread of the log-normal delays.")] = 0.4,
    soak: Annotated[int, typer.Option(min=0, help="So many transactions in one world: what stays?")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Run the broker cores and client sessions under a simulated network and clock, and judge what happened.

    A seed is a schedule. A violation is printed with its seed, a smaller program that shows it, and a
    diagram of that; the exit code is 1 then.
    """
    from labctl.simulate import commands
    from labctl.simulate.measure import Delays
    from labctl.simulate.variants import Variant

    if sum((replay is not None, explore, measure, soak > 0)) > 1:
        raise UsageProblem("--replay, --explore, --measure and --soak are different things; choose one")
    out = Output(json)
    sizes = commands.sizes(brokers)
    chosen = commands.Choice(commands.protocols(protocol), commands.scenarios(scenario))
    try:
        if measure:
            ok = commands.measured(out, chosen, sizes, Delays(client_ms, broker_ms, sigma))
        elif explore:
            ok = commands.explored(out, chosen, limit)
        elif soak:
            ok = commands.soaked(out, chosen, commands.one_size(sizes) or 3, soak)
        else:
            size = commands.one_size(sizes)
            variant = Variant(size, crash, away, abort, slow_links)
            if replay is not None:
                ok = commands.replayed(out, chosen, replay, variant)
            else:
                first, end = commands.seed_range(seeds)
                plan = commands.Campaign(
                    chosen, first, end, variant, jobs or os.cpu_count() or 1, record, keep_going, shrink_s
                )
                ok = commands.campaign(out, plan)
    except KeyboardInterrupt:
        out.note("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    if not ok:
        raise typer.Exit(CHECK_FAILED)
