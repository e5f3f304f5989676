"""`labctl overlay`: a tree of brokers as processes of this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from labctl import topology as trees
from labctl.commands.options import DEFAULT_NAME, Json, OverlayName
from labctl.commands.views.overlay import recovered, show_status
from labctl.exits import INFRASTRUCTURE, UsageProblem
from labctl.output import Output
from labctl.overlay import local
from labctl.overlay import state as states

app = typer.Typer(
    no_args_is_help=True,
    help="Start, look at and stop a tree of brokers on this machine.",
    epilog="Example: labctl overlay up --brokers 9; labctl overlay status; labctl overlay down",
)

DEFAULT_BROKERS = 3


Brokers = Annotated[
    int | None,
    typer.Option(
        min=1, help="1; 3 in a line; 5 as a star; 9 as a star of chains; others a tree. Default: 3."
    ),
]
TopologyFile = Annotated[
    Path | None,
    typer.Option(
        help="A YAML file with 'links', a list of pairs of ids, and optionally 'brokers' and 'delay'."
    ),
]
BasePort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Of the first broker; the others follow. Else free ones.")
]
Timeout = Annotated[float, typer.Option(min=0.1, help="How long the start may take.")]

_LINKS, _CLIENTS = "Links between brokers", "Links to clients"
DelayMs = Annotated[
    float | None, typer.Option(min=0, help="Median delay between brokers, one way.", rich_help_panel=_LINKS)
]
Sigma = Annotated[
    float | None, typer.Option(min=0, help="Log-normal jitter between brokers.", rich_help_panel=_LINKS)
]
StallProbability = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="That a message between brokers meets a stall.", rich_help_panel=_LINKS),
]
StallMs = Annotated[
    tuple[float, float] | None, typer.Option(help="Shortest and longest stall.", rich_help_panel=_LINKS)
]
ClientDelayMs = Annotated[
    float | None, typer.Option(min=0, help="Median delay to clients, one way.", rich_help_panel=_CLIENTS)
]
ClientSigma = Annotated[
    float | None, typer.Option(min=0, help="Log-normal jitter to clients.", rich_help_panel=_CLIENTS)
]
Seed = Annotated[int | None, typer.Option(min=0, help="Of all delays; the same seed draws the same.")]


@app.command("up", epilog="Example: labctl overlay up --brokers 9 --delay-ms 2.2 --sigma 0.4 --name slow")
def up(  # noqa: PLR0913, PLR0917 - each option is one setting of the overlay
    brokers: Brokers = None,
    topology: TopologyFile = None,
    name: OverlayName = DEFAULT_NAME,
    base_port: BasePort = None,
    delay_ms: DelayMs = None,
    sigma: Sigma = None,
    stall_probability: StallProbability = None,
    stall_ms: StallMs = None,
    client_delay_ms: ClientDelayMs = None,
    client_sigma: ClientSigma = None,
    seed: Seed = None,
    durable: Annotated[
        states.Durable | None,
        typer.Option(help="Brokers that can be killed, and survive the machine too (fsync), or not (os)."),
    ] = None,
    timeout_s: Timeout = local.START_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Start an overlay and return when every broker is ready and every link stands.

    Its configuration, logs and, with --durable, data folders are in a folder under $XDG_STATE_HOME/labctl/overlays; a
    durable broker that has ended is started again with `labctl overlay restart`. A delay given here
    goes over what the topology file says.
    """
    out = Output(json)
    tree = _tree(brokers, topology).with_delays(
        links=_given(
            delay_ms=delay_ms, sigma=sigma, stall_probability=stall_probability, stall_ms=stall_ms, seed=seed
        ),
        clients=_given(delay_ms=client_delay_ms, sigma=client_sigma, seed=seed),
    )
    settings = local.OverlaySettings(base_port=base_port, timeout_s=timeout_s, durable=durable)
    began = time.monotonic()
    with out.working(f"starting overlay {name}") as report:
        state = local.up(tree, name, settings, report)
    _show_up(out, tree, state, time.monotonic() - began)


def _given(**options: object) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _tree(brokers: int | None, file: Path | None) -> trees.Topology:
    if file is None:
        return trees.standard(DEFAULT_BROKERS if brokers is None else brokers)
    if brokers is not None:
        raise UsageProblem(
            "--brokers and --topology exclude each other; the file says which brokers there are"
        )
    return trees.load(file)


def _show_up(out: Output, tree: trees.Topology, state: states.OverlayState, elapsed_s: float) -> None:
    addresses = {broker.id: broker.address for broker in state.brokers}
    folder = str(states.folder(state.name))
    out.document(
        {
            "name": state.name,
            "state": "up",
            "folder": folder,
            "elapsed_s": round(elapsed_s, 3),
            "brokers": [{"id": b.id, "address": b.address, "pid": b.pid} for b in state.brokers],
            "links": state.links,
        }
    )
    if out.json:
        return
    out.say(f"overlay {state.name} is up after {elapsed_s:.2f} s; its logs are in {folder}")
    for line in tree.outline(lambda broker: f"{broker}  {addresses[broker]}"):
        out.say(line)


@app.command("status", epilog="Example: labctl overlay status --dump --json | jq '.brokers[0].status.tables'")
def status(
    name: OverlayName = DEFAULT_NAME,
    dump: Annotated[bool, typer.Option("--dump", help="With the routing tables (CRT, SRT, PRT).")] = False,
    json: Json = False,
) -> None:
    """Ask every broker for its links, queues and vitals.

    A link is "held" while its reader is too slow and the broker has stopped reading from those who feed
    it. Ends with 4 when the overlay is not whole.
    """
    out = Output(json)
    found = local.status(name, dump)
    out.document(found)
    if not json:
        show_status(out, found)
    if found.missing:
        raise typer.Exit(INFRASTRUCTURE)


@app.command("restart", epilog="Example: labctl overlay up --durable fsync; labctl overlay restart b2")
def restart(
    brokers: Annotated[
        list[str] | None, typer.Argument(help="Which of its brokers. Default: all that do not run.")
    ] = None,
    name: OverlayName = DEFAULT_NAME,
    timeout_s: Timeout = local.START_TIMEOUT_S,
    json: Json = False,
) -> None:
    """Start brokers of a durable overlay again, where they listened before; they go on with what they keep.

    One that still runs is stopped first. Returns when their links stand, with all brokers that run.
    """
    out = Output(json)
    with out.working(f"restarting brokers of overlay {name}") as report:
        found = local.restart(brokers or (), name, timeout_s, report)
    out.document({"name": name, "brokers": [{"id": b, "journal": d["journal"]} for b, d in found.items()]})
    if json:
        return
    for broker, document in found.items():
        out.say(f"{broker} {recovered(document['journal'])}")
    if not found:
        out.say("all of its brokers run")


@app.command("down", epilog="Example: labctl overlay down --all")
def down(
    name: OverlayName = DEFAULT_NAME,
    all_overlays: Annotated[bool, typer.Option("--all", help="Every overlay of this user.")] = False,
    json: Json = False,
) -> None:
    """Stop an overlay's brokers and remove its folder. There is no harm in doing it twice."""
    out = Output(json)
    stopped = {each: local.down(each) for each in (states.names() if all_overlays else [name])}
    rows = [(each, s.broker, s.pid, s.how) for each, brokers in stopped.items() for s in brokers]
    out.document(
        {"stopped": [{"name": each, "broker": b, "pid": pid, "how": how} for each, b, pid, how in rows]}
    )
    if json:
        return
    for each, brokers in stopped.items():
        out.say(f"overlay {each}: {_tally(s.how for s in brokers)}")
    if not stopped:
        out.say("there is no overlay to stop")


def _tally(hows: Iterable[str]) -> str:
    counted: dict[str, int] = {}
    for how in hows:
        counted[how] = counted.get(how, 0) + 1
    parts = [f"{count} {'broker' if count == 1 else 'brokers'} {how}" for how, count in counted.items()]
    return ", ".join(parts).replace("brokers was", "brokers were") or "there is nothing to stop"


@app.command("list", epilog="Example: labctl overlay list")
def list_overlays(json: Json = False) -> None:
    """List this machine's overlays, and how many of their brokers run."""
    out = Output(json)
    found = local.overview()
    out.document({"overlays": [{**_overview(seen), "stale": seen.stale} for seen in found]})
    if json:
        return
    if not found:
        out.say("there is no overlay; `labctl overlay up` starts one")
        return
    rows = [(seen.name, seen.phase, f"{seen.alive} of {seen.brokers}") for seen in found]
    out.table("Overlays", ("name", "phase", "running"), rows)


def _overview(seen: local.Overview) -> dict[str, object]:
    return {"name": seen.name, "phase": seen.phase, "brokers": seen.brokers, "alive": seen.alive}
