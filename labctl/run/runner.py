"""One repetition: overlay up and proven, clients started, warm-up, the counted part, everything kept, all stopped.

What it leaves is a folder with everything that the report needs (`labctl.results.layout` says where it goes). It
either returns or raises; in both cases nothing runs any more. Nothing waits for ever: each phase has a limit.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from client.scenarios.stage import Disruption
from labctl.checks.repetition import Judged
from labctl.exits import LabError
from labctl.experiment import client_processes
from labctl.experiment.client_processes import Instructions, OutputLine, TransactionLine
from labctl.experiment.experiment import Links
from labctl.experiment.schedule import Unit
from labctl.host.machine import stolen_share
from labctl.overlay import launch
from labctl.results import accounts, layout
from labctl.results.documents import write_json
from labctl.results.writing import now
from labctl.retry import look_until
from labctl.run.crew import Crew, CrewError, StartedClient
from labctl.run.places import Site
from labctl.topology import Topology, standard

READY_S = 60.0
"""For all clients to be ready."""
SILENCE_S = 60.0
"""Longest time without news of a coordinator."""
END_S = 30.0
"""For the last words, and for everybody to leave."""
REST_S = 3.0
"""For brokers to come to rest when all transactions are over."""
POLL_S = 0.25
RATE_WINDOW = 20
"""The latest transactions, whose latency and rate the live view shows."""


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


class Progress(Struct, frozen=True):
    phase: str
    done: int = 0
    total: int = 0
    rate: float | None = None
    """Transactions per second, lately."""
    latency_ms: float | None = None


Traffic = dict[str, int | None]
Watch = Callable[[Progress], None]


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
        play = _Play(crew, given_to_clients(job), job, addresses, watch)
        records = play.run()
        stolen = _stolen(before, _processor_time(site))
    _keep_rates(folder)
    _write_lines(folder / layout.TRANSACTIONS, records)
    write_json(folder / layout.MESSAGES, play.messages)
    description = _description(job, started, proof, play, stolen)
    write_json(folder / layout.CELL, {**description, "measured": accounts.measured(folder)})
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
    addresses = crew.start_brokers(tree, job.history_detail)
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
    if job.links is None:
        return given
    return msgspec.structs.replace(given, delay=job.links.client(cell.stalls, job.unit.seed))


class _Play:
    """From ready to the last word."""

    def __init__(
        self, crew: Crew, given: Instructions, job: Job, addresses: dict[str, str], watch: Watch
    ) -> None:
        self._crew = crew
        self.given = given
        self._job = job
        self._addresses = addresses
        self._watch = watch
        self._points: dict[str, set[str]] = {}
        self._ended: list[tuple[float, float | None]] = []
        """When transactions ended, and their latency."""
        self._final: list[TransactionLine] = []
        self._summaries: dict[str, dict[str, Any]] = {}
        self._is_stopped = False
        self._total = (given.transactions + given.warm_up) * given.cell.copies
        self.messages: dict[str, Traffic] = {}
        self.counting_s = 0.0

    def run(self) -> list[TransactionLine]:
        self._watch(Progress("waiting for clients"))
        self._reach("ready", READY_S)
        if self.given.warm_up:
            self._go()
            self._reach("warm", SILENCE_S)
        before = self._count()
        began = time.monotonic()
        self._go()
        self._reach("counted", SILENCE_S)
        self.counting_s = time.monotonic() - began
        self.messages = {n: _minus(after, before[n]) for n, after in self._count().items() if n in before}
        self._watch(Progress("collecting", self._total, self._total))
        _keep_tables(self._crew, self._addresses)
        self._go()
        self._finish()
        return sorted(self._final, key=lambda record: (record.copy, record.number))

    def _go(self) -> None:
        for member in self._crew.coordinators:
            member.tell("go")

    def _reach(self, point: str, silence_s: float) -> None:
        """Until every coordinator has come there."""
        self._until(
            lambda: len(self._points.get(point, ())) == len(self._crew.coordinators), silence_s, point
        )

    def _finish(self) -> None:
        self._until(lambda: len(self._summaries) == len(self._crew.coordinators), END_S, "its last word")
        self._crew.wait(END_S)

    def _until(self, reached: Callable[[], bool], silence_s: float, what: str) -> None:
        deadline = time.monotonic() + silence_s
        while not reached():
            for member, line in self._crew.news(POLL_S):
                self._take(member, line)
                deadline = time.monotonic() + silence_s
            self._crew.check()
            if time.monotonic() > deadline:
                raise CrewError(
                    f"no news for {silence_s:g} s while waiting for {what!r} of {self._awaited(what)} "
                    f"(logs: {self._crew.folder / 'nodes'})"
                )

    def _awaited(self, point: str) -> str:
        there = self._points.get(point, set())
        return ", ".join(m.client.name for m in self._crew.coordinators if m.client.name not in there)

    def _take(self, member: StartedClient, line: OutputLine) -> None:
        if line.summary is not None:
            self._summaries[member.client.name] = line.summary
        elif line.event == "transaction":
            self._note(line)
        elif line.event:
            self._points.setdefault(line.event, set()).add(member.client.name)
        elif line.transaction is not None:
            self._final.append(client_processes.record(line, self.given, member.client))

    def _note(self, line: OutputLine) -> None:
        self._ended.append((time.monotonic(), line.latency_ms))
        if line.wrong and self._job.ends_at_fault and not self._is_stopped:
            self._is_stopped = True
            for member in self._crew.coordinators:
                member.tell("stop")
        self._watch(
            Progress("running", len(self._ended), self._total, *_recently(self._ended[-RATE_WINDOW:]))
        )

    def _count(self) -> dict[str, Traffic]:
        answers = self._crew.observer.ask(self._addresses)
        counted: dict[str, Traffic] = {}
        for broker, answer in answers.items():
            if isinstance(answer, str):
                raise CrewError(f"broker {broker} does not answer: {answer}")
            counted |= client_processes.counted(broker, answer)
        return counted


def _recently(ended: list[tuple[float, float | None]]) -> tuple[float | None, float | None]:
    """Rate and mean latency."""
    known = [latency for _, latency in ended if latency is not None]
    span_s = ended[-1][0] - ended[0][0]
    rate = (len(ended) - 1) / span_s if span_s > 0 else None
    return rate, sum(known) / len(known) if known else None


def _minus(after: Traffic, before: Traffic) -> Traffic:
    return {name: None if value is None else value - (before[name] or 0) for name, value in after.items()}


def _description(
    job: Job, started: str, proof: dict[str, float], play: _Play, stolen: dict[str, float]
) -> dict[str, Any]:
    unit = job.unit
    return {
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


def _keep_tables(crew: Crew, addresses: dict[str, str]) -> None:
    """While all clients are there: afterwards nothing could be said about how events would be routed.

    Brokers forget a transaction a moment after its coordinator knows its outcome. What is still there after a
    while was left behind, and is kept for the checks to find.
    """
    answers = look_until(
        lambda seen: not any(_is_open(answer) for answer in seen.values()),
        lambda: crew.observer.ask(addresses, dump=True),
        REST_S,
        launch.POLL_S,
    )
    for broker, answer in answers.items():
        if isinstance(answer, str):
            raise CrewError(f"broker {broker} does not show its tables: {answer}")
        write_json(crew.folder / layout.TABLES / f"{broker}.json", answer)


def _is_open(answer: dict[str, Any] | str) -> bool:
    return isinstance(answer, dict) and any(answer["open"].values())


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
