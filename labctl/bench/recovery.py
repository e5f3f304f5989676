"""How soon a broker goes on: its state is made, then `python -m broker` is started on it.

The state is what clients have said, as entries; a first start does all of it again and takes a snapshot, and the
second one, which is measured, goes on from there. Beside it stands what reading the files alone takes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from broker.gate import ledger
from broker.journal.disk import RealDisk
from broker.journal.folder import Folder
from broker.journal.identity import Identity
from broker.protocol import wire
from broker.protocol.dtx import Begin
from broker.protocol.filters import make_filter
from broker.protocol.limits import Limits
from broker.protocol.messages import Request
from broker.protocol.vocabulary import D_TX, NO_KEY
from broker.protocol.wire import AnyMessage
from broker.routing.joining import ClientArrived
from broker.serving.durability import MadeOf
from labctl.bench.ends import disk
from labctl.bench.matching import Workload
from labctl.overlay import node_files
from labctl.workers import BenchError, end_with_parent
from playbooks import start

CLIENTS = 1000
SYNC_EVERY = 1000
LIFETIME_MS = 3_600_000
START_S_MAX = 120.0

Report = Callable[[str], None]


class RecoveryResult(Struct, frozen=True):
    subscriptions: int
    transactions: int
    undone: int
    """Operations that others have undone: history, which leaves nothing in the state."""
    recovery_s: float
    """As the broker says, from its folder to its tables."""
    start_s: float
    """Of the process, to its ready line."""
    bare_start_s: float
    """The same with an empty folder."""
    read_s: float
    """What reading its files takes."""
    snapshot_bytes: int
    again_s: float
    """Everything done again, without a snapshot."""


def run(
    subscriptions: int = 100_000,
    transactions: int = 1000,
    undone: int = 0,
    seed: int = 1,
    report: Report = lambda text: None,
) -> RecoveryResult:
    with tempfile.TemporaryDirectory(prefix="labctl-recovery-") as top:
        full, empty = Path(top) / "full", Path(top) / "empty"
        report("a broker with nothing to remember")
        bare_start_s, _ = _started(Path(top), empty)
        report(f"writing {subscriptions} subscriptions and {transactions} transactions")
        _write(full, subscriptions, transactions, undone, seed)
        report("doing it all again")
        _, again_s = _started(Path(top), full, until="snapshot")
        report("going on from the snapshot")
        files = [file for file in full.iterdir() if file.name.startswith(("snapshot", "segment"))]
        read_s = disk.read_s(files)
        snapshot_bytes = sum(file.stat().st_size for file in files if file.name.startswith("snapshot"))
        start_s, recovery_s = _started(Path(top), full)
        return RecoveryResult(
            subscriptions=subscriptions,
            transactions=transactions,
            undone=undone,
            recovery_s=round(recovery_s, 3),
            start_s=round(start_s, 3),
            bare_start_s=round(bare_start_s, 3),
            read_s=round(read_s, 4),
            snapshot_bytes=snapshot_bytes,
            again_s=round(again_s, 3),
        )


def _write(folder: Path, subscriptions: int, transactions: int, undone: int, seed: int) -> None:
    identity = Identity("broker", "b1", "", ledger.VERSION)
    journal = Folder.open(RealDisk(), str(folder), identity, "os", 1)
    try:
        entries = journal.entries()
        for _ in entries:
            raise BenchError("a new folder has entries")
        for number, pieces in enumerate(_entries(subscriptions, transactions, undone, seed)):
            journal.append(*pieces)
            if number % SYNC_EVERY == 0:
                journal.sync()
        journal.sync()
    finally:
        journal.close()


def _entries(subscriptions: int, transactions: int, undone: int, seed: int) -> Iterator[tuple[bytes, ...]]:
    yield (
        ledger.encode(
            ledger.FirstEntry(
                0.0, msgspec.msgpack.encode(MadeOf((), "all", Limits(lifetime_ms_max=LIFETIME_MS)))
            )
        ),
    )
    for client in range(CLIENTS):
        yield (ledger.told(f"client:c{client}", 0.0, ClientArrived(1 + client)),)
    filters = Workload(subscriptions, seed).filters()
    for number, filter_ in enumerate(islice(filters, subscriptions)):
        yield _said(number % CLIENTS, Request(1 + number, "sub", filter_))
    for number in range(undone):
        passing = make_filter({"passing": number // 2})
        yield _said(0, Request(number, "usub" if number % 2 else "sub", passing))
    for number in range(transactions):
        client = number % CLIENTS
        tx = f"c{client}/{1 + client}/{1 + number}"
        yield _said(client, Begin(tx, D_TX, NO_KEY, LIFETIME_MS))


def _said(client: int, message: AnyMessage) -> tuple[bytes, ...]:
    return ledger.frame(f"client:c{client}", 0.0, 0, wire.body(wire.encode(message), 1))


def _started(top: Path, folder: Path, until: str = "ready") -> tuple[float, float]:
    """Seconds to the ready line, and of those for what there was to be done again; stopped after this line."""
    config = top / "node.toml"
    common = node_files.Common(durable="os", data_folder=str(top), limits={"lifetime_ms_max": LIFETIME_MS})
    text = node_files.emit(node_files.Node("b1", "127.0.0.1:0", common=common))
    config.write_text(text.replace(f"{top}/b1.data", str(folder)))
    began = time.perf_counter()
    ready_s = recovery_s = 0.0
    with subprocess.Popen(
        start.broker([sys.executable], str(config)),
        stdout=subprocess.PIPE,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - nothing here runs in threads
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said = json.loads(line)
                if said["event"] == "recovered":
                    recovery_s = said["seconds"]
                if said["event"] == "ready":
                    ready_s = time.perf_counter() - began
                if said["event"] == until:
                    break
                if time.perf_counter() - began > START_S_MAX:
                    raise BenchError(f"a broker was not {until} within {START_S_MAX:g} s")
            else:
                raise BenchError(f"a broker ended before it was {until}")
        finally:
            process.send_signal(signal.SIGTERM)
    return ready_s, recovery_s
