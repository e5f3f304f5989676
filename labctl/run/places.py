"""Where the processes of a run are: hosts with an agent each. The same for this machine and for a lab.

A `Post` is one host as far as a run needs it. `LocalSite` is this machine, with one post; a lab's hosts are in
`labctl.testbeds.remote.places`.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from labctl.exits import LabError
from labctl.host import launcher
from labctl.host.launcher import Launch
from labctl.paths import state_root
from labctl.results import provenance
from labctl.run.station import News, Station

LOOPBACK = "127.0.0.1"
END_S = 15.0


class SiteError(LabError):
    """Processes cannot be started there."""


class Post:
    """A host that takes processes."""

    def __init__(self, name: str, station: Station, python: Sequence[str], address: str) -> None:
        self.name = name
        self.station = station
        self.python = tuple(python)
        """Begins the command of every process."""
        self.address = address
        """What brokers listen on and others reach them by."""


class Site(Protocol):
    @property
    def inbox(self) -> queue.SimpleQueue[News]: ...

    @property
    def posts(self) -> Sequence[Post]: ...

    def place(self, brokers: Sequence[str], clients: Sequence[str]) -> dict[str, Post]:
        """Who goes where; raises when there are too few hosts."""

    def workplace(self, folder: Path, post: Post) -> PurePosixPath:
        """Where, on a host, the files of a repetition are that belongs in `folder`."""

    def gather(self, folder: Path, clear: bool) -> list[str]:
        """Bring what is there into `folder`, and clear it away; a sentence for each host that could not give it."""

    def recover(self) -> None:
        """Before a repetition: hosts whose agent was lost get a new one, or it is told which cannot."""

    def describe(self) -> dict[str, Any]:
        """What `run.json` says about the testbed; the same whenever it is asked."""

    def machine(self) -> dict[str, Any]:
        """What measurements depend on."""

    def facts(self) -> dict[str, Any]:
        """What was found on the hosts, for the result folder; nothing where `machine` says it all."""


class _Process:
    """The line to an agent that is our own child."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._errors = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed when its end has been told
        agent = Launch(command, Path.cwd(), Path(self._errors.name), listens=True, variables=variables)
        # In a session of its own: Ctrl-C is for us; the agent hears of it when its line ends.
        with agent.surroundings() as surroundings:
            self._process = subprocess.Popen(command, **surroundings, bufsize=0)

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self._process.stdin.write(view) or 0 :]

    def receive(self) -> bytes:
        assert self._process.stdout is not None
        return os.read(self._process.stdout.fileno(), 1 << 16)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(END_S)

    def why(self) -> str:
        self._process.wait(END_S)
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()
        words = launcher.last_words(Path(self._errors.name))
        self._errors.close()
        return words


class LocalSite:
    """This machine: one post, whose agent works in the folders of the result itself."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.posts = [self._post()]

    def _post(self) -> Post:
        command = [sys.executable, "-m", "labctl.host.agent", "serve", str(state_root() / "run" / "agent")]
        station = Station("this machine", _Process(command, _variables()), self.inbox)
        try:
            station.wait_until_up()
        except LabError as error:
            station.close()
            raise SiteError(f"{error}; `labctl doctor` says more") from None
        return Post("local", station, [sys.executable], LOOPBACK)

    def place(self, brokers: Sequence[str], clients: Sequence[str]) -> dict[str, Post]:
        return dict.fromkeys((*brokers, *clients), self.posts[0])

    def workplace(self, folder: Path, post: Post) -> PurePosixPath:
        return PurePosixPath(folder.resolve())

    def gather(self, folder: Path, clear: bool) -> list[str]:
        return []

    def recover(self) -> None:
        if self.posts[0].station.is_lost:
            self.posts = [self._post()]

    def describe(self) -> dict[str, Any]:
        return {"kind": "local"}

    def machine(self) -> dict[str, Any]:
        return provenance.machine()

    def facts(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.posts[0].station.close()


def _variables() -> dict[str, str]:
    """What we can import, clients can: somebody's own scenario may be a file of the directory that we are in."""
    paths = [os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


@contextmanager
def local() -> Iterator[LocalSite]:
    """This machine, for the length of a block; what an earlier run has left on it is stopped first."""
    site = LocalSite()
    try:
        yield site
    finally:
        site.close()
