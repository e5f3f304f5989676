"""The folder of a lab, `$XDG_STATE_HOME/labctl/labs/NAME/`, and the lock that guards it.

    lab.json        the lab and its hosts; replaced as a whole
    journal.jsonl   what was created outside this folder; see `journal.py`
    id_ed25519      the key that opens the hosts
    hostkeys/HOST   the host keys that machines are given
    known_hosts     what to check hosts against, for a plain `ssh`

A lab exists as long as its `lab.json` does, which is written before anything else and removed last.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import structs

from labctl import locks
from labctl.exits import LabError, UsageProblem
from labctl.paths import state_root
from labctl.testbeds.labs import keys
from labctl.testbeds.labs.journal import Journal
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.timeouts import DEFAULTS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,31}")


class StoreError(LabError):
    """The folder of a lab cannot be read, written or locked."""


class Store:
    """What is known on this machine about one lab, whether it exists or not."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageProblem(f"{name!r} cannot be a lab's name: letters, digits and '-', at most 32")
        self.name = name
        self.folder = labs() / name

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.folder / "journal.jsonl")

    @property
    def key_file(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def known_hosts_file(self) -> Path:
        return self.folder / "known_hosts"

    def host_key_file(self, host: str) -> Path:
        return self.folder / "hostkeys" / host

    def find(self) -> Lab | None:
        """None when there is no such lab."""
        path = self.folder / "lab.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Lab)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise StoreError(f"{path} cannot be read: {error}") from None

    def lab(self) -> Lab:
        found = self.find()
        if found is None:
            known = ", ".join(names())
            raise UsageProblem(
                f"there is no lab {self.name!r}; " + (f"there are {known}" if known else "provision one")
            )
        return found

    def write(self, lab: Lab) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self.folder / "lab.json", msgspec.json.format(msgspec.json.encode(lab), indent=2))
            _replace(self.known_hosts_file, keys.known_hosts(lab).encode())
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be written: {error.strerror}") from None

    def make_keys(self, lab: Lab) -> Lab:
        """The lab's key, and a host key for every host that has none; returns the lab that knows them."""
        keys.ensure_pair(self.key_file, f"labctl-{lab.name}")
        hosts = []
        for host in lab.hosts:
            line = host.host_key or keys.ensure_pair(self.host_key_file(host.name), host.name)
            hosts.append(structs.replace(host, host_key=" ".join(line.split()[:2])))
        return structs.replace(lab, hosts=tuple(hosts))

    def public_key(self) -> str:
        return keys.ensure_pair(self.key_file, f"labctl-{self.name}")

    def remove(self) -> None:
        """The state goes first: a folder without it is rubbish, one with it is a lab."""
        try:
            (self.folder / "lab.json").unlink(missing_ok=True)
            if self.folder.exists():
                shutil.rmtree(self.folder)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be removed: {error.strerror}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One labctl at a time works on a lab; the next one waits a little and then gives up."""
        path = state_root() / "locks" / f"lab-{self.name}"

        def busy(holder: str) -> StoreError:
            return StoreError(
                f"another labctl is working on the lab {self.name!r} (pid {holder}); try again when it is done"
            )

        with locks.exclusive(path, DEFAULTS.lock_s, busy):
            # What another one has written since is not in the journal that we may have read before.
            self.__dict__.pop("journal", None)
            yield


def labs() -> Path:
    return state_root() / "labs"


def names() -> list[str]:
    """Labs of this user on this machine, also those that are half made or half removed."""
    try:
        return sorted(entry.name for entry in labs().iterdir() if (entry / "lab.json").exists())
    except FileNotFoundError:
        return []


def _replace(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
