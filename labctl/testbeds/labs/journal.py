"""The write-ahead journal of a lab: what is about to be created, then what came of it.

Before a request that creates something leaves, its intent is on the disk, with a mark that nobody
else knows and that the request carries along. So that after `kill -9` at any point everything that
may exist is in the journal, by its id or by its mark. Appended and synced line by line; a last line
that was cut off is dropped, for it had not been promised to anybody.

What a line does not say is never deleted, whatever it looks like.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from labctl.exits import LabError
from labctl.host import whole_lines

EntryState = Literal["intended", "made", "refused", "gone"]
"""intended: asked for, or about to be; whether it exists is unknown. made: exists, id known. refused:
the provider said no. gone: seen to be absent after it was deleted."""


class JournalError(LabError):
    """The journal cannot be read or written; nothing may be created without it."""


class LabEntry(Struct, frozen=True):
    """What the journal knows about one thing."""

    number: int
    kind: str
    """`network`, `server`, `namespace`: the provider's word."""
    name: str
    mark: str
    """Random, carried by the thing itself: how it is recognised when its id never reached us."""
    at_s: float
    """Seconds since 1970 of the intent."""
    host: str = ""
    """The lab's host that it stands for, if it does."""
    id: str = ""
    state: EntryState = "intended"

    @property
    def may_exist(self) -> bool:
        return self.state in {"intended", "made"}


class _Line(Struct, frozen=True, omit_defaults=True):
    number: int
    state: EntryState
    kind: str = ""
    name: str = ""
    mark: str = ""
    at_s: float = 0.0
    host: str = ""
    id: str = ""
    why: str = ""


class Journal:
    """One per lab; to be used under the lab's lock, from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[int, LabEntry] = {}
        self._guard = threading.Lock()
        self._end = self._replay()

    def entries(self) -> list[LabEntry]:
        with self._guard:
            return list(self._entries.values())

    def may_exist(self) -> list[LabEntry]:
        """All that is not known to be absent, in the order of its creation."""
        return [entry for entry in self.entries() if entry.may_exist]

    def intend(self, kind: str, name: str, host: str = "") -> LabEntry:
        """On the disk when this returns; only then may the request leave."""
        with self._guard:
            number = len(self._entries) + 1
            entry = LabEntry(number, kind, name, secrets.token_hex(8), time.time(), host)
            self._append(_Line(number, "intended", kind, name, entry.mark, entry.at_s, host))
            self._entries[number] = entry
            return entry

    def made(self, entry: LabEntry, identity: str) -> LabEntry:
        return self._change(structs.replace(entry, state="made", id=identity))

    def refused(self, entry: LabEntry, why: str) -> LabEntry:
        """The provider's answer is certain: nothing was created."""
        return self._change(structs.replace(entry, state="refused"), why)

    def gone(self, entry: LabEntry) -> LabEntry:
        return self._change(structs.replace(entry, state="gone"))

    def _change(self, entry: LabEntry, why: str = "") -> LabEntry:
        with self._guard:
            self._append(_Line(entry.number, entry.state, id=entry.id, why=why))
            self._entries[entry.number] = entry
        return entry

    def _append(self, line: _Line) -> None:
        try:
            fresh = not self._path.exists()
            with self._path.open("r+b" if not fresh else "w+b") as file:
                # What follows the last whole line is a write that was cut off.
                file.truncate(self._end)
                file.seek(self._end)
                file.write(msgspec.json.encode(line) + b"\n")
                file.flush()
                os.fsync(file.fileno())
                self._end = file.tell()
            if fresh:
                _sync_folder(self._path.parent)
        except OSError as error:
            raise JournalError(
                f"{self._path} cannot be written ({error.strerror}), and nothing is created without it"
            ) from None

    def _replay(self) -> int:
        """Reads all whole lines; returns where the next one goes."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise JournalError(f"{self._path} cannot be read: {error.strerror}") from None
        for position, text in whole_lines.whole(content):
            try:
                self._apply(msgspec.json.decode(text, type=_Line))
            except (msgspec.MsgspecError, KeyError):
                raise JournalError(
                    f"{self._path}, line {position} is damaged; what the lab has in the cloud must be "
                    "looked up there by hand"
                ) from None
        return whole_lines.end(content)

    def _apply(self, line: _Line) -> None:
        if line.state == "intended":
            self._entries[line.number] = LabEntry(
                line.number, line.kind, line.name, line.mark, line.at_s, line.host
            )
            return
        known = self._entries[line.number]
        self._entries[line.number] = structs.replace(known, state=line.state, id=line.id or known.id)


def _sync_folder(folder: Path) -> None:
    """A new file is safe only when the folder that names it is."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
