"""What a history costs: dispatching transactions with none, and with each level of detail, in turn.

One overlay for each, all up for the whole benchmark; brokers and clients write to a temporary folder.
Latencies are those of `labctl.bench.transactions`; the medians of the rounds are compared.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import get_args

from msgspec import Struct

from broker.protocol.events import Detail
from broker.protocol.vocabulary import D_TX
from labctl.bench.ends.meters import WARM_UP_SHARE
from labctl.bench.transactions import LINE, measure
from labctl.overlay import local, node_files
from labctl.topology import Topology

NONE = "none"
DETAILS: tuple[str, ...] = (NONE, *reversed(get_args(Detail)))

Say = Callable[[str], None]


class HistoryResult(Struct, frozen=True):
    protocol: str
    detail: str
    p50_us: float
    transactions_per_s: float
    ratio: float
    """Its p50 by that without a history."""
    lines: float
    """Of a transaction, in the files of all nodes."""
    bytes: float
    us_per_line: float | None
    """What the p50 has grown by, for each line."""


def run(
    protocol: str = D_TX,
    transactions: int = 500,
    rounds: int = 5,
    report: Say = lambda text: None,
) -> list[HistoryResult]:
    rates: dict[str, list[float]] = {detail: [] for detail in DETAILS}
    middles: dict[str, list[float]] = {detail: [] for detail in DETAILS}
    with tempfile.TemporaryDirectory(prefix="labctl-history-") as folder:
        top = Path(folder)
        with ExitStack() as stack:
            report(f"starting {len(DETAILS)} overlays of three brokers")
            addresses = {detail: _up(stack, top, detail) for detail in DETAILS}
            for number in range(1, rounds + 1):
                for detail in DETAILS:
                    report(f"round {number} of {rounds}: history {detail}")
                    history = {} if detail == NONE else {"history": str(top / detail), "detail": detail}
                    found = measure(addresses[detail], protocol, transactions, f"r{number}", history)
                    rates[detail].append(found["transactions_per_s"])
                    middles[detail].append(found["p50_us"])
        # The brokers have ended, and so written all they know.
        carried_out = rounds * (transactions + int(transactions * WARM_UP_SHARE))
        sizes = {detail: _size(top / detail, carried_out) for detail in DETAILS}
    bare = median(middles[NONE])
    results = []
    for detail in DETAILS:
        p50, (lines, size) = median(middles[detail]), sizes[detail]
        results.append(
            HistoryResult(
                protocol=protocol,
                detail=detail,
                p50_us=round(p50, 1),
                transactions_per_s=round(median(rates[detail]), 1),
                ratio=round(p50 / bare, 3),
                lines=round(lines, 1),
                bytes=round(size),
                us_per_line=round((p50 - bare) / lines, 2) if lines else None,
            )
        )
    return results


def _up(stack: ExitStack, top: Path, detail: str) -> Mapping[str, str]:
    """The addresses of an overlay whose brokers keep such a history."""
    common = node_files.COMMON
    if detail != NONE:
        (top / detail).mkdir()
        common = node_files.Common(history_folder=str(top / detail), history_detail=detail)
    topology = Topology(("b1", "b2", "b3"), LINE)
    name = f"bench-history-{detail}-{os.getpid()}"
    state = stack.enter_context(local.running(topology, name, local.OverlaySettings(common)))
    return {broker.id: broker.address for broker in state.brokers}


def _size(folder: Path, transactions: int) -> tuple[float, float]:
    """Lines and bytes for each transaction, in all files."""
    texts = [file.read_bytes() for file in sorted(folder.glob("*.jsonl"))]
    return sum(t.count(b"\n") for t in texts) / transactions, sum(map(len, texts)) / transactions
