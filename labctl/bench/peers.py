"""Durable regular publications beside brokers of others: acknowledged ones, in turn, on one disk.

A publisher keeps one, and then many, publications in flight on one connection to one broker; each counts when it is
acknowledged, and what is acknowledged is stored for a subscriber that is away (with NATS, in a stream). In the end
that many must be there. What an acknowledgement promises differs, and stands beside its figures.

How often our brokers have synced they say themselves; for all of them the flush requests of the block device are
counted, which are of everybody on this machine: what came while nothing was measured stands beside them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

from msgspec import Struct

from labctl.bench.ends import disk, mosquitto, nats, rabbitmq
from labctl.bench.rounds import Rounds
from labctl.overlay import launch, local, node_files
from labctl.overlay import state as states
from labctl.topology import Topology
from labctl.workers import workers

IN_FLIGHT = (1, 64)
PAYLOAD_BYTES = 64
PROBES = 200
REST_S = 0.2
AWAY_MS = 600_000
SETTLED = node_files.Common(grace_ms=AWAY_MS, queue_bytes_max=1 << 30, patience_ms=1)
"""So that a reader may be away, and nobody waits for it."""

FSYNC, OS = "ours-fsync", "ours-os"

Report = Callable[[str], None]
Durable = Literal["fsync", "os"]


class PeerResult(Struct, frozen=True):
    name: str
    in_flight: int
    acknowledged_per_s: float
    p50_us: float
    """From the writing of a publication to its acknowledgement."""
    syncs_per_publication: float | None
    """As the broker counts them; None: it does not tell."""
    flushes_per_publication: float | None
    """Of the block device, by anybody; None: nobody counts them."""
    beside: str
    """Which of ours promises most nearly as much."""
    ratio: float
    """The rate of that one by this one's."""
    promise: str
    fdatasync_us: float
    flushes_per_fdatasync: float | None
    flushes_at_rest_per_s: float | None
    """Of others."""
    stolen_share: float


class Contender(Struct, frozen=True):
    """Of a contender."""

    promise: str
    beside: str
    module: str
    role: str
    start: Callable[[Path], AbstractContextManager[dict[str, Any]]]
    """In a folder: how a publisher reaches it."""


class Figures(Struct, frozen=True):
    acknowledged_per_s: float
    p50_us: float
    syncs: float | None
    flushes: float | None


class PeerSample(Struct, frozen=True):
    figures: dict[tuple[str, int], Figures]
    fdatasync_us: float
    flushes_per_fdatasync: float | None
    rest_flushes_per_s: float | None


def _overlay(mode: Durable) -> str:
    return f"bench-beside-{mode}-{os.getpid()}"


@contextmanager
def _ours(mode: Durable, _folder: Path) -> Iterator[dict[str, Any]]:
    settings = local.OverlaySettings(durable=mode, common=SETTLED)
    with local.running(Topology(("b1",), ()), _overlay(mode), settings) as state:
        yield {"address": state.brokers[0].address}


OURS = {
    FSYNC: Contender(
        "synced before it is acknowledged: outlives a crash of the machine",
        FSYNC,
        "labctl.bench.ends.confirmed",
        "publisher",
        partial(_ours, "fsync"),
    ),
    OS: Contender(
        "written to a file before it is acknowledged: outlives a kill of the broker, not a crash of the machine",
        OS,
        "labctl.bench.ends.confirmed",
        "publisher",
        partial(_ours, "os"),
    ),
}
PEERS = {
    "nats": Contender(
        "synced into its stream before it is acknowledged (sync_interval: always): outlives a crash of the machine",
        FSYNC,
        "labctl.bench.ends.nats",
        "publisher",
        nats.storing,
    ),
    "rabbitmq": Contender(
        "in a durable queue and synced, alone or with others, before it is confirmed: outlives a crash of the machine",
        FSYNC,
        "labctl.bench.ends.rabbitmq",
        "publisher",
        rabbitmq.storing,
    ),
    "mosquitto": Contender(
        "in memory when it is acknowledged, and written to disk every half hour and at a proper end: a kill loses"
        " what came since",
        OS,
        "labctl.bench.ends.mosquitto",
        "confirmed",
        mosquitto.storing,
    ),
}
PROGRAMS = {"nats": nats.program, "rabbitmq": rabbitmq.program, "mosquitto": mosquitto.program}


def check(peers: Sequence[str]) -> None:
    """Raises `BenchError` if a program is missing, before anything takes its time."""
    for peer in peers:
        PROGRAMS[peer]()


def run(
    peers: Sequence[str], seconds: float = 1.0, rounds: int = 3, report: Report = lambda text: None
) -> list[PeerResult]:
    """`seconds`: how long each publisher publishes, in each round."""
    kinds = OURS | {peer: PEERS[peer] for peer in dict.fromkeys(peers)}
    taken: Rounds[PeerSample] = Rounds(rounds)
    with ExitStack() as stack:
        ways: dict[str, dict[str, Any]] = {}
        for name, kind in kinds.items():
            report(f"starting {name}")
            ways[name] = stack.enter_context(kind.start(_folder(name)))
        while not taken.are_enough:
            taken.take(lambda: _sample(kinds, ways, seconds, lambda text: report(f"{taken}: {text}")))
    return [_result(name, kind, count, taken) for name, kind in kinds.items() for count in IN_FLIGHT]


def _folder(name: str) -> Path:
    """In that of an overlay of ours, which goes with `labctl overlay down` even if we are killed."""
    top = states.overlays()
    if name not in OURS:
        top = states.folder(_overlay("fsync")) / name
        top.mkdir()
    return top


def _sample(
    kinds: Mapping[str, Contender], ways: Mapping[str, dict[str, Any]], seconds: float, report: Report
) -> PeerSample:
    folder = states.overlays()
    before = disk.flushes(folder)
    time.sleep(REST_S)
    rest = _since(before, folder)
    before = disk.flushes(folder)
    fdatasync_us = disk.sync_us(folder, PROBES)
    probed = _since(before, folder)
    is_counted = probed is not None and probed >= PROBES / 2
    figures = {}
    for in_flight in IN_FLIGHT:
        for name, kind in kinds.items():
            report(f"{name}, {in_flight} in flight")
            figures[name, in_flight] = _publish(kind, ways[name], in_flight, seconds, folder, is_counted)
    return PeerSample(
        figures,
        fdatasync_us,
        probed / PROBES if is_counted and probed is not None else None,
        rest / REST_S if is_counted and rest is not None else None,
    )


def _since(before: int | None, folder: Path) -> int | None:
    now = disk.flushes(folder)
    return None if before is None or now is None else now - before


def _publish(
    kind: Contender, way: dict[str, Any], in_flight: int, seconds: float, folder: Path, is_counted: bool
) -> Figures:
    arguments = {**way, "in_flight": in_flight, "seconds": seconds, "payload_bytes": PAYLOAD_BYTES}
    with workers(kind.module, (kind.role, arguments)) as (publisher,):
        publisher.wait_ready()
        syncs, flushes = _syncs(way), disk.flushes(folder)
        publisher.go()
        said = publisher.wait_ready(seconds + 30)  # when all is acknowledged
        flushed, synced = _since(flushes, folder), _syncs(way)
        publisher.go()
        publisher.result()  # when it has been found stored
    count = said["acknowledged"]
    return Figures(
        said["acknowledged_per_s"],
        said["p50_us"],
        None if syncs is None or synced is None else (synced - syncs) / count,
        flushed / count if is_counted and flushed is not None else None,
    )


def _syncs(way: Mapping[str, Any]) -> int | None:
    """How often one of ours has synced so far."""
    if "address" not in way:
        return None
    answer = asyncio.run(launch.ask({"it": way["address"]}, dump=False, timeout_s=10.0))["it"]
    return int(answer["journal"]["syncs"]) if isinstance(answer, dict) else None


def _result(name: str, kind: Contender, in_flight: int, taken: Rounds[PeerSample]) -> PeerResult:
    samples = taken.samples
    figures = [sample.figures[name, in_flight] for sample in samples]
    ours = [sample.figures[kind.beside, in_flight] for sample in samples]
    ratios = [a.acknowledged_per_s / b.acknowledged_per_s for a, b in zip(ours, figures, strict=True)]
    return PeerResult(
        name=name,
        in_flight=in_flight,
        acknowledged_per_s=round(median(one.acknowledged_per_s for one in figures), 1),
        p50_us=round(median(one.p50_us for one in figures), 1),
        syncs_per_publication=_median(one.syncs for one in figures),
        flushes_per_publication=_median(one.flushes for one in figures),
        beside=kind.beside,
        ratio=round(median(ratios), 2),
        promise=kind.promise,
        fdatasync_us=round(median(sample.fdatasync_us for sample in samples), 1),
        flushes_per_fdatasync=_median(sample.flushes_per_fdatasync for sample in samples),
        flushes_at_rest_per_s=_median(sample.rest_flushes_per_s for sample in samples),
        stolen_share=round(taken.stolen_share, 4),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(median(known), 3) if known else None
