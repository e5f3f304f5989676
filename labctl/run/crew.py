"""The processes of one repetition, brokers and clients, wherever they run; and the lock for this machine.

All of them are started through the agents of a `Site`. What they print comes back through one queue, and so
does the end of any of them, or of a host.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from labctl import locks
from labctl.exits import LabError
from labctl.experiment import client_processes
from labctl.host import launcher
from labctl.overlay import launch, node_files
from labctl.paths import state_root
from labctl.results import layout
from labctl.run.observer import OBSERVER, Observer
from labctl.run.places import Post, Site
from labctl.run.station import REQUEST_S, Answer, HostLost, Lost, News, Said
from labctl.topology import Topology
from playbooks import start

START_S = 20.0
"""For the overlay to come up."""


class CrewError(LabError):
    """A process that has ended, or that says nothing any more."""


class Busy(LabError):
    """Somebody else is measuring on this machine."""


@contextmanager
def locked() -> Iterator[None]:
    """The machine for ourselves."""

    def busy(holder: str) -> Busy:
        return Busy(
            f"another labctl (pid {holder}) runs an experiment or a calibration on this machine; "
            "two at once would measure each other"
        )

    with locks.exclusive(state_root() / "run" / "lock", 0.0, busy):
        yield


class StartedClient:
    """A client that was started."""

    def __init__(self, client: client_processes.Client, post: Post) -> None:
        self.client = client
        self.post = post
        self.has_ended = False

    def tell(self, word: str) -> None:
        self.post.station.ask("tell", name=self.client.name, text=word).get()


class Crew:
    """Everything that runs for one repetition, whose results belong in `folder`."""

    def __init__(
        self, site: Site, folder: Path, brokers: Sequence[str], clients: Sequence[client_processes.Client]
    ) -> None:
        self.folder = folder
        self.members: list[StartedClient] = []
        self._site = site
        self._brokers = tuple(brokers)
        self._clients = tuple(clients)
        self._places = site.place(self._brokers, [client.name for client in clients])
        self._posts = list({post.name: post for post in self._places.values()}.values())
        self._faults: list[LabError] = []
        """Told by `check`, the first one first."""
        self._lines: list[tuple[StartedClient, client_processes.OutputLine]] = []
        self._observer: Observer | None = None
        self._observed: list[str] = []

    def begin(self) -> None:
        """An empty place for files on every host."""
        answers = [p.station.ask("begin", folder=self._at(p), folders=layout.FOLDERS) for p in self._posts]
        for answer in answers:
            answer.get()

    def _at(self, post: Post) -> str:
        return str(self._site.workplace(self.folder, post))

    # Brokers

    def start_brokers(self, tree: Topology, history_detail: str) -> dict[str, str]:
        """Their addresses, when every broker answers and every link stands."""
        addresses = self._free_addresses(tree.brokers)
        common = node_files.Common(history_detail=history_detail)
        self._observer = self._start_observer()
        starting = []
        for node in node_files.plan(tree, addresses, common):
            post = self._places[node.id]
            there = replace(node, common=replace(common, history_folder=f"{self._at(post)}/{layout.HISTORY}"))
            config = f"{self._at(post)}/{layout.NODES}/{node.id}.toml"
            starting.append(post.station.ask("write", path=config, text=node_files.emit(there)))
            command = start.broker(post.python, config)
            starting.append(self._start(node.id, command, post, layout.lines_of(layout.NODES, node.id)))
        for answer in starting:
            answer.get()
        self._wait_until_linked(tree, addresses)
        return addresses

    @property
    def observer(self) -> Observer:
        assert self._observer is not None, "brokers first"
        return self._observer

    def _free_addresses(self, brokers: Sequence[str]) -> dict[str, str]:
        addresses: dict[str, str] = {}
        for post in self._posts:
            here = [broker for broker in brokers if self._places[broker] is post]
            if here:
                found = post.station.ask("ports", address=post.address, count=len(here)).get()["ports"]
                addresses |= {b: _joined(post.address, port) for b, port in zip(here, found, strict=True)}
        return {broker: addresses[broker] for broker in brokers}

    def _start_observer(self) -> Observer:
        post = self._places[self._brokers[0]]
        self._start(OBSERVER, start.observer(post.python), post, None, talks=True).get()
        return Observer(post, self._until_observed)

    def _wait_until_linked(self, tree: Topology, addresses: Mapping[str, str]) -> None:
        def look() -> Mapping[str, launch.Document | str]:
            answers = self.observer.ask(addresses)
            self.check()
            return answers

        launch.wait_until_linked(tree, look, START_S, self.folder / "nodes")

    # Clients

    def start_client(
        self, client: client_processes.Client, given: client_processes.Instructions, address: str
    ) -> None:
        post = self._places[client.name]
        command = client_processes.command(given, client, address, PurePosixPath(self._at(post)), post.python)
        self._start(
            client.name,
            command,
            post,
            None if client.coordinates else os.devnull,
            talks=client.coordinates,
        ).get()
        self.members.append(StartedClient(client, post))

    @property
    def coordinators(self) -> list[StartedClient]:
        return [member for member in self.members if member.client.coordinates]

    def news(self, limit_s: float) -> list[tuple[StartedClient, client_processes.OutputLine]]:
        """What coordinators have printed, or nothing when the time is over or something has ended."""
        self._receive(limit_s)
        lines, self._lines = self._lines, []
        return lines

    def check(self) -> None:
        """Raises if anything has ended that should not have."""
        self._receive(0)
        if self._faults:
            # A host's end explains all the others.
            raise next((fault for fault in self._faults if isinstance(fault, HostLost)), self._faults[0])

    def wait(self, limit_s: float) -> None:
        """Until all clients have ended by themselves."""
        deadline = time.monotonic() + limit_s
        while running := [member for member in self.members if not member.has_ended]:
            self.check()
            if time.monotonic() > deadline:
                raise CrewError(f"client {running[0].client.name} did not end within {limit_s:g} s")
            self._receive(0.1)
        self.check()

    # The end

    def stop(self) -> list[str]:
        """Whatever still runs, and bring the files home; returns what could not be had, when nothing runs."""
        problems = []
        for post, answer in [(post, post.station.ask("stop")) for post in self._posts]:
            try:
                answer.get(2 * REQUEST_S)
            except LabError as error:
                problems.append(f"{post.name}: {error}")
        self._receive(0)
        return [*problems, *self._site.gather(self.folder, clear=True)]

    def leave(self) -> list[str]:
        """For somebody who wants to look: all goes on running until the next run or `labctl destroy`."""
        problems = []
        for post, answer in [(post, post.station.ask("leave")) for post in self._posts]:
            try:
                answer.get()
                post.station.close()
            except LabError as error:
                problems.append(f"{post.name}: {error}")
        return [*problems, *self._site.gather(self.folder, clear=False)]

    # What happens meanwhile

    def _start(
        self, name: str, command: Sequence[str], post: Post, out: str | None, talks: bool = False
    ) -> Answer:
        return post.station.ask(
            "start",
            name=name,
            command=command,
            folder=self._at(post),
            out=out,
            err=f"{layout.NODES}/{name}.err",
            talks=talks,
        )

    def _until_observed(self, limit_s: float) -> str:
        """The observer's next answer."""
        deadline = time.monotonic() + limit_s
        while not self._observed:
            if time.monotonic() > deadline:
                raise CrewError(f"brokers could not be asked: nothing came back within {limit_s:g} s")
            self._receive(0.1)
            self.check()
        return self._observed.pop(0)

    def _receive(self, limit_s: float) -> None:
        inbox = self._site.inbox
        try:
            self._take(inbox.get(timeout=limit_s) if limit_s else inbox.get_nowait())
            while True:
                self._take(inbox.get_nowait())
        except queue.Empty:
            return

    def _take(self, news: News) -> None:
        if isinstance(news, Lost):
            self._faults.append(HostLost(f"host {news.host} is lost: {news.why}"))
            return
        member = next((m for m in self.members if m.client.name == news.name), None)
        if isinstance(news, Said):
            if news.name == OBSERVER:
                self._observed.append(news.text)
            elif member is not None:
                self._lines.append((member, client_processes.parse(news.text.encode())))
            return
        if member is not None:
            member.has_ended = True
            if news.code == 0:
                return
        self._faults.append(CrewError(launcher.ended(self._named(news.name), news.code, news.last)))

    def _named(self, name: str) -> str:
        kind = "broker" if name in self._brokers else "" if name == OBSERVER else "client"
        return f"{kind} {name}".strip()


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
