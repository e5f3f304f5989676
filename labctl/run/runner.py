"""One repetition: overlay up and proven, clients started, warm-up, the counted part, everything kept, all stopped.

What it leaves is a folder with everything that the report needs (`labctl.results.layout` says where it goes). It
either returns or raises; in both cases nothing runs any more. Nothing waits for ever: each phase has a limit.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from client.scenarios.stage import Disruption
from labctl.checks.repetition import Judged
from labctl.exits import LabError
from labctl.experiment import client_processes
from labctl.experiment.cell import Links
from labctl.experiment.client_processes import Instructions, TransactionLine
from labctl.experiment.schedule import Unit
from labctl.faults.plan import FaultPlan
from labctl.host.machine import stolen_share
from labctl.results import accounts, layout
from labctl.results.documents import write_json
from labctl.results.writing import now
from labctl.run import faulting
from labctl.run.crew import Crew, CrewError
from labctl.run.places import Site
from labctl.run.play import Progress, RepetitionPlay, Watch
from labctl.topology import Topology, standard

__all__ = ["Job", "Progress", "Ran", "Watch", "bring_up", "crew_of", "given_to_clients", "run"]


class Job(Struct, frozen=True):
    """What to run, of a unit."""

    unit: Unit
    transactions: int
    warm_up: int
    links: Links | None
    """None: no emulated delay."""
    wait_ms: float | None = None
    disruption: Disruption = Disruption()
    profile: str = ""
    history_detail: str = "transactions"
    ends_at_fault: bool = False
    """A calibration knows enough when the first transaction has gone wrong."""
    plan: FaultPlan | None = None
    """Faults that happen while transactions are counted; then these go on until its end."""


class Ran(Struct, frozen=True):
    records: tuple[TransactionLine, ...]
    seconds: float
    """All of it, start and stop included."""
    judged: Judged | None = None
    """When it has finished and counts."""


def run(
    job: Job, folder: Path, site: Site, watch: Watch = lambda progress: None, keep_on_failure: bool = False
) -> Ran:
    """Into an empty folder. Unless it is to be kept as it is when it fails, nothing runs afterwards."""
    began, started = time.monotonic(), now()
    for name in layout.FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    with crew_of(job, folder, site, keep_on_failure) as crew:
        before = _processor_time(site)
        addresses, proof = bring_up(crew, job, watch)
        play = RepetitionPlay(crew, given_to_clients(job), addresses, watch, job.plan, job.ends_at_fault)
        records = play.run()
        stolen = _stolen(before, _processor_time(site))
    _keep_rates(folder)
    _write_lines(folder / layout.TRANSACTIONS, records)
    write_json(folder / layout.MESSAGES, play.messages)
    description = _description(job, started, proof, play, stolen)
    measured = accounts.measured(folder)
    if job.plan is not None:
        measured[layout.TRANSACTIONS] = len(records)
    write_json(folder / layout.CELL, {**description, "measured": measured})
    return Ran(tuple(records), time.monotonic() - began)


@contextmanager
def crew_of(job: Job, folder: Path, site: Site, keep_on_failure: bool = False) -> Iterator[Crew]:
    """Whatever happens, logs are brought home; what could not be is written beside them."""
    site.recover()
    cell = job.unit.cell
    crew = Crew(site, folder, standard(cell.brokers).brokers, client_processes.cast(cell))
    try:
        crew.begin()
        yield crew
    except BaseException as error:
        left = keep_on_failure and isinstance(error, LabError)
        _note(folder, crew.leave() if left else crew.stop())
        raise
    problems = crew.stop()
    _note(folder, problems)
    if problems:
        raise CrewError(f"not everything could be stopped and collected: {'; '.join(problems)}")


def bring_up(
    crew: Crew, job: Job, watch: Watch = lambda progress: None
) -> tuple[dict[str, str], dict[str, float]]:
    """Everybody is started: where brokers are, and how long an event took over each link."""
    tree, given = _tree(job), given_to_clients(job)
    watch(Progress("starting brokers"))
    durable = job.unit.cell.durable
    addresses = crew.start_brokers(tree, job.history_detail, durable, with_faults=job.plan is not None)
    watch(Progress("probing links"))
    proof = crew.observer.prove(tree, addresses)
    for client in client_processes.cast(job.unit.cell):
        crew.start_client(client, given, addresses[job.unit.placement[client.name]])
    return addresses, proof


def _note(folder: Path, problems: Sequence[str]) -> None:
    if problems:
        (folder / layout.NOT_COLLECTED).write_text("\n".join(problems) + "\n", encoding="utf-8")


Usage = dict[str, dict[str, float]]


def _processor_time(site: Site) -> Usage:
    """By host."""
    answers = [(post.name, post.station.ask("cpu")) for post in site.posts]
    return {name: answer.get()["cpu"] for name, answer in answers}


def _stolen(before: Usage, after: Usage) -> dict[str, float]:
    """The share of each host's processor time that went to other guests of its hypervisor."""
    return {name: round(stolen_share(before[name], after[name]), 5) for name in after}


def _tree(job: Job) -> Topology:
    tree = standard(job.unit.cell.brokers)
    if job.links is None:
        return tree
    stalls, seed = job.unit.cell.stalls, job.unit.seed
    return tree.with_delays(
        msgspec.structs.asdict(job.links.broker(stalls, seed)),
        msgspec.structs.asdict(job.links.client(stalls, seed)),
    )


def given_to_clients(job: Job) -> Instructions:
    cell = job.unit.cell
    is_disruption = cell.scenario == "disruption"
    transactions = job.disruption.rounds * job.disruption.instances if is_disruption else job.transactions
    given = Instructions(
        cell=cell,
        transactions=transactions,
        # Of disruption the first round, which measures the capacity, belongs to the warm-up.
        warm_up=job.disruption.instances if is_disruption else job.warm_up,
        wait_ms=job.wait_ms,
        disruption=job.disruption if is_disruption else None,
        history_detail=job.history_detail,
    )
    if job.plan is not None:
        given = faulting.endless(given, job.plan)
    if job.links is None:
        return given
    return msgspec.structs.replace(given, delay=job.links.client(cell.stalls, job.unit.seed))


def _description(
    job: Job, started: str, proof: dict[str, float], play: RepetitionPlay, stolen: dict[str, float]
) -> dict[str, Any]:
    unit = job.unit
    described = {
        "cell": unit.cell.id,
        "parameters": unit.cell.parameters(),
        "wait_ms": job.wait_ms,
        "repetition": unit.repetition,
        "seed": unit.seed,
        "placement": unit.placement,
        "transactions": play.given.transactions,
        "warm_up": play.given.warm_up,
        "profile": job.profile,
        "started": started,
        "ended": now(),
        "counted_s": round(play.counting_s, 6),
        "probe_ms": proof,
        "steal": stolen,
        "load_average": os.getloadavg()[0],
    }
    if play.faulting is None:
        return described
    return {**described, "transactions": play.counted, **play.faulting.description()}


def _keep_rates(folder: Path) -> None:
    """What agents counted, in one file, and the latencies of the publisher's events; only disruption has them."""
    parts = sorted((folder / layout.RATES).glob("A*.jsonl"))
    if parts:
        (folder / layout.WINDOWS).write_bytes(b"".join(part.read_bytes() for part in parts))
    for latencies in (folder / layout.RATES).glob("E*.jsonl"):
        latencies.rename(folder / layout.LATENCIES)
    shutil.rmtree(folder / layout.RATES)


def _write_lines(path: Path, records: list[TransactionLine]) -> None:
    encoded = [msgspec.json.encode(record) for record in records]
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
