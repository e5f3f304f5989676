"""A broker that can be killed: its data folder, what it goes on from, and its snapshots.

A snapshot is written by a child of the process, which has a copy of everything as it was at that moment, while this
one goes on. What a crash leaves to be done again is bounded by how often that happens.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from broker.config import NodeConfig
from broker.core import Broker
from broker.gate import ledger
from broker.journal.disk import RealDisk, reached
from broker.journal.failures import FolderRefused, JournalFailed, SnapshotFailed
from broker.journal.folder import Folder, Mode
from broker.journal.identity import Identity
from broker.journal.quota import Quota
from broker.node.log import JsonLog
from broker.protocol.filters import Overlap
from broker.protocol.hops import broker_hop
from broker.protocol.limits import Limits
from broker.serving.forwarding import Forwarder
from broker.serving.sessions import Sessions
from broker.sessions.saved import Saved, freeze, recover, thaw

ENTRY_S, BYTE_S = 40e-6, 25e-9
"""What it takes to do an entry again, and each byte of it."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class MadeOf(Struct, frozen=True):
    """What a core was made of; made of anything else, it would answer otherwise."""

    neighbours: tuple[str, ...]
    overlap: Overlap
    limits: Limits


def made_of(core: Broker) -> MadeOf:
    return MadeOf(core.neighbours, core.routing.overlap, core.limits)


class Writer(NamedTuple):
    """A process that writes a snapshot."""

    child: int
    pidfd: int
    number: int
    """Of the snapshot."""
    began: float


class Durability:
    def __init__(self, config: NodeConfig, mode: Mode, log: JsonLog) -> None:
        """Raises `FolderRefused` if the data folder cannot be used."""
        self._path = config.data
        self._redo_s_max = config.redo_ms_max / 1e3
        self._log = log
        began = time.monotonic()
        identity = Identity("broker", config.id, config.overlay, ledger.VERSION)
        self.folder = Folder.open(Quota(RealDisk()), config.data, identity, mode, time.time_ns())
        self.saved = thaw(self.folder.snapshot)
        self._opened_s = time.monotonic() - began
        self._made_of = MadeOf(
            tuple(broker_hop(neighbour.id) for neighbour in config.neighbours), config.overlap, config.limits
        )
        self._snapshot_s = 0.0
        """What the last one took."""
        self._postponed_s = 0.0
        """After one that failed: so much may wait until the next is tried."""
        self._writer: Writer | None = None
        self._loop = asyncio.get_running_loop()
        self._recovered: dict[str, Any] | None = None

    @property
    def incarnation(self) -> int:
        """Of the broker: one life, however often its process is started."""
        return self.folder.life

    def _check(self, before: MadeOf) -> None:
        """Raises `FolderRefused` unless what it was made of is what it is made of now."""
        now = self._made_of
        for name in MadeOf.__struct_fields__:
            if getattr(before, name) != getattr(now, name):
                raise FolderRefused(
                    f"The data folder {self._path} was written by a broker with other {name}:"
                    f" {_told(getattr(before, name))}, not {_told(getattr(now, name))}; give it those,"
                    " or begin with an empty folder."
                )

    def recover(self, forwarder: Forwarder, sessions: Sessions) -> int:
        """Everything is as it was when the journal ended, but for connections; how many entries that took."""
        began = time.monotonic()
        if self.saved is not None:
            self._check(made_of(self.saved.core))
        recover(forwarder, forwarder.core, self.saved, self._entries(), sessions, self._was_made_of)
        count = self.folder.entries_behind_snapshot
        if count or self.saved is not None:
            seconds = round(time.monotonic() - began + self._opened_s, 3)
            self._recovered = {"snapshot": self.saved is not None, "entries": count, "seconds": seconds}
            self._log.log("recovered", **self._recovered)
        return count

    def _entries(self) -> Iterator[bytes]:
        for entry in self.folder.entries():
            yield entry
            reached("recovering")

    def first_entry(self, now: float) -> ledger.FirstEntry:
        return ledger.FirstEntry(now, msgspec.msgpack.encode(self._made_of))

    def _was_made_of(self, encoded: bytes) -> None:
        self._check(msgspec.msgpack.decode(encoded, type=MadeOf))

    @property
    def is_snapshot_due(self) -> bool:
        """When nothing waits: whether it would take long to do again what has come since the last."""
        allowed_s = max(self._redo_s_max, self._snapshot_s / 2, self._postponed_s)
        return self._writer is None and self._redone_s > allowed_s

    @property
    def _redone_s(self) -> float:
        """What it would take."""
        folder = self.folder
        return folder.entries_behind_snapshot * ENTRY_S + folder.bytes_behind_snapshot * BYTE_S

    def begin_snapshot(self, state: Saved) -> None:
        """Raises `JournalFailed`."""
        number = self.folder.begin_snapshot()
        began = time.monotonic()
        parent = os.getpid()
        try:
            child = os.fork()
        except OSError as error:
            self._log.log("snapshot-failed", reason=f"no process for it: {error.strerror}")
            self.folder.drop_snapshot(number)
            self._postpone()
            return
        if not child:
            os._exit(self._write_snapshot(number, state, parent))
        self._writer = Writer(child, os.pidfd_open(child), number, began)
        self._loop.add_reader(self._writer.pidfd, self._end_snapshot)

    def _write_snapshot(self, number: int, state: Saved, parent: int) -> int:
        """In the child; its exit code."""
        try:
            for caught in (signal.SIGTERM, signal.SIGINT):
                signal.signal(caught, signal.SIG_DFL)
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                return 1
            self.folder.let_go()
            self.folder.write_snapshot(number, [freeze(state)])
        except BaseException as error:  # noqa: BLE001 the child must end here, whatever it is
            self._log.log("snapshot-failed", reason=repr(error))
            return 1
        return 0

    def _end_snapshot(self) -> None:
        number, began, exit_code = self._let_writer_go()
        self._snapshot_s = time.monotonic() - began
        try:
            if exit_code:
                self.folder.drop_snapshot(number)
                self._postpone()
            else:
                self.folder.adopt_snapshot(number)
                self._postponed_s = 0.0
                self._log.log("snapshot", number=number, seconds=round(self._snapshot_s, 3))
        except JournalFailed:
            return  # the next entry says so

    def _let_writer_go(self) -> tuple[int, float, int]:
        """Its snapshot, when it began, and its exit code."""
        assert self._writer is not None
        child, pidfd, number, began = self._writer
        self._writer = None
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(child, 0)
        return number, began, os.waitstatus_to_exitcode(status)

    def _postpone(self) -> None:
        """It failed, and would fail again: not before there is twice as much to be done again."""
        self._postponed_s = 2 * self._redone_s

    def close(self, state: Saved | None) -> None:
        """With a last snapshot: the next start, perhaps of another version that would do something else, then has
        nothing to do again. None: there are effects that will never be carried out."""
        try:
            if self._writer is not None:
                os.kill(self._writer.child, signal.SIGKILL)
                self.folder.drop_snapshot(self._let_writer_go()[0])
            if state is not None and self.folder.entries_behind_snapshot:
                number = self.folder.begin_snapshot()
                self.folder.write_snapshot(number, [freeze(state)])
                self.folder.adopt_snapshot(number)
        except (SnapshotFailed, JournalFailed) as error:
            self._log.log("snapshot-failed", reason=str(error))
        self.folder.close()

    def describe(self) -> dict[str, Any]:
        folder = self.folder
        return {
            "mode": folder.mode,
            "data": self._path,
            "entries": folder.newest,
            "behind_snapshot": folder.entries_behind_snapshot,
            "behind_snapshot_bytes": folder.bytes_behind_snapshot,
            "syncs": folder.syncs,
            "recovered": self._recovered,
        }


def _told(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(one).partition(":")[2] for one in value) or "none"
    return str(value)
