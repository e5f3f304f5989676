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
from labctl.experiment.cell import Durable
from labctl.faults.plan import FaultPlan
from labctl.faults.steps import steps
from labctl.host import launcher
from labctl.overlay import launch, node_files
from labctl.paths import state_root
from labctl.results import layout
from labctl.run import faulting
from labctl.run.observer import OBSERVER, Observer
from labctl.run.places import Post, Site
from labctl.run.station import REQUEST_S, Answer, HostLost, Lost, News, Said, Struck
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
        self._struck: list[Struck] = []
        self._passing: set[str] = set()
        """Folders that are of no use when nothing runs any more."""
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

    def start_brokers(
        self, tree: Topology, history_detail: str, durable: Durable = "none", with_faults: bool = False
    ) -> dict[str, str]:
        """Their addresses, when every broker answers and every link stands."""
        addresses = self._free_addresses(tree.brokers)
        common = node_files.Common(
            history_detail=history_detail, durable=None if durable == "none" else durable
        )
        self._passing = {layout.DATA} if common.durable else set()
        self._passing |= {layout.CONTROL} if with_faults else set()
        self._observer = self._start_observer()
        starting = []
        for node in node_files.plan(tree, addresses, common):
            post = self._places[node.id]
            there = replace(node, common=self._settings(common, post, with_faults))
            if common.durable:
                starting.append(post.station.ask("begin", folder=self._at(post), folders=[layout.DATA]))
            config = f"{self._at(post)}/{layout.NODES}/{node.id}.toml"
            starting.append(post.station.ask("write", path=config, text=node_files.emit(there)))
            command = start.broker(post.python, config)
            starting.append(self._start(node.id, command, post, layout.lines_of(layout.NODES, node.id)))
        for answer in starting:
            answer.get()
        self._wait_until_linked(tree, addresses)
        return addresses

    def _settings(self, common: node_files.Common, post: Post, with_faults: bool) -> node_files.Common:
        """With the folders of a host."""
        at = self._at(post)
        return replace(
            common,
            history_folder=f"{at}/{layout.HISTORY}",
            data_folder=f"{at}/{layout.DATA}" if common.durable else None,
            control_folder=f"{at}/{layout.CONTROL}" if with_faults else None,
        )

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

    # Faults

    def arm(self, plan: FaultPlan) -> None:
        """Every host gets what is to be done there."""
        todo: dict[str, list[dict[str, object]]] = {post.name: [] for post in self._posts}
        for step in steps(plan):
            post = self._places[step.node]
            todo[post.name].append(faulting.request(step, self._at(post), step.node in self._brokers))
        for answer in [post.station.ask("arm", steps=todo[post.name]) for post in self._posts]:
            answer.get()

    def release(self) -> dict[str, float]:
        """From now on faults happen; by client, the time of its host from which theirs count."""
        answers = {post.name: post.station.ask("release") for post in self._posts}
        began_s = {name: answer.get()["began_s"] for name, answer in answers.items()}
        return {client.name: began_s[self._places[client.name].name] for client in self._clients}

    def struck(self) -> list[Struck]:
        """What has been done of them since it was asked last."""
        found, self._struck = self._struck, []
        return found

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
        problems += self._remove_passing()
        return [*problems, *self._site.gather(self.folder, clear=True)]

    def _remove_passing(self) -> list[str]:
        """Before the folder gets its name."""
        problems = []
        posts = [post for post in self._posts if not post.station.is_lost]
        paths = [(post, f"{self._at(post)}/{name}") for post in posts for name in sorted(self._passing)]
        for post, answer in [(post, post.station.ask("remove", path=path)) for post, path in paths]:
            try:
                answer.get()
            except LabError as error:
                problems.append(f"{post.name}: {error}")
        return problems

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
        if isinstance(news, Struck):
            self._struck.append(news)
            if news.error:
                self._faults.append(CrewError(f"a fault of {news.node} could not be done: {news.error}"))
            return
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
