"""The hosts of a lab as a place for the processes of a run."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from labctl.exits import LabError
from labctl.run.places import Post, SiteError
from labctl.run.station import HostLost, News, Station, ask_all
from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.remote import deploy
from labctl.testbeds.remote.placing import place, tournament
from labctl.testbeds.ssh.connections import Connections, TellOfHost
from labctl.testbeds.ssh.line import BreakableLine
from labctl.testbeds.ssh.login import HostKeyChanged
from labctl.testbeds.ssh.play import Player, target
from labctl.testbeds.timeouts import Timeouts
from playbooks import collect, start
from playbooks.deploy import Deployed
from playbooks.steps import Playbook

ROUND_TRIPS = 7
MISSED_MAX = 3
"""Signs of life that a host may owe us before it counts as lost."""


def agent_silence_s(timeouts: Timeouts) -> float:
    """After which an agent takes us for dead; later than we take it for dead."""
    return 2 * MISSED_MAX * timeouts.keepalive_s


class _Watch(threading.Thread):
    """Wants a sign of life of every host, and gives those up that owe too many."""

    def __init__(self, period_s: float) -> None:
        super().__init__(name="signs of life", daemon=True)
        self._period_s = period_s
        self._ended = threading.Event()
        self._guard = threading.Lock()
        self._lines: dict[str, tuple[Station, BreakableLine]] = {}

    def add(self, station: Station, line: BreakableLine) -> None:
        with self._guard:
            self._lines[station.host] = station, line

    def run(self) -> None:
        limit_s = MISSED_MAX * self._period_s
        while not self._ended.wait(self._period_s):
            with self._guard:
                lines = list(self._lines.values())
            for station, line in lines:
                if station.is_lost:
                    continue
                silence_s = time.monotonic() - station.heard_at
                if silence_s > limit_s:
                    line.give_up(f"no sign of life for {silence_s:.0f} s")
                else:
                    # Sent from a thread of its own: a line that is stuck must not hold up the others.
                    threading.Thread(target=station.ask, args=("ping",), daemon=True).start()

    def stop(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()


class LabSite:
    """A lab that everything has been deployed to, with an agent on every host."""

    def __init__(
        self, player: Player, deployed: dict[str, Deployed], pack: bool, token: Callable[[], str]
    ) -> None:
        self.inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._player = player
        self._lab = player.lab
        self._timeouts = self._lab.testbed.timeouts
        self._hosts = {host.name: host for host in self._lab.hosts if host.name in deployed}
        self._deployed = deployed
        self._pack = pack or self._lab.may_share
        self._token = token
        self._facts: dict[str, Any] = {}
        self._runs: dict[Path, tuple[str, set[str]]] = {}
        """By the folder of a repetition: what it is called on hosts, and which have a part of it."""
        self._watch = _Watch(self._timeouts.keepalive_s)
        self.posts: list[Post] = []

    def open(self) -> None:
        outcomes = self._player.each(list(self._hosts.values()), self._post)
        for outcome in outcomes:
            if outcome.made is not None:
                self.posts.append(outcome.made)
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        self._watch.start()
        self._facts = self._look()

    def _post(self, host: Host) -> Post:
        deployed = self._deployed[host.name]
        where = target(self._lab, host)
        playbook = start.agent(where, deployed, agent_silence_s(self._timeouts))
        line = self._player.attach(host, playbook)
        station = Station(host.name, line, self.inbox)
        try:
            station.wait_until_up(self._timeouts.command_s)
            # Of runs that were killed, or kept for somebody who has looked by now.
            station.ask("remove", path=f"{deployed.root}/runs").get(self._timeouts.command_s)
        except LabError as error:
            raise SiteError(f"no agent on {host.name}: {error}") from None
        self._watch.add(station, line)
        return Post(host.name, station, [where.python], host.inside or host.address)

    def _look(self) -> dict[str, Any]:
        """Facts of every host, and how far brokers are from each other and from clients."""
        stations = [post.station for post in self.posts]
        facts = [answer["facts"] for answer in ask_all(stations, "facts")]
        ports = {
            post.name: (post.address, post.station.ask("echo", address=post.address)) for post in self.posts
        }
        places = {name: [address, answer.get()["port"]] for name, (address, answer) in ports.items()}
        round_trips: dict[str, dict[str, float | None]] = {post.name: {} for post in self.posts}
        posts = {post.name: post for post in self.posts}
        for pairs in tournament(list(posts)):
            answers = [
                (a, b, posts[a].station.ask("round_trips", targets={b: places[b]}, rounds=ROUND_TRIPS))
                for a, b in pairs
                # Clients do not speak with each other, and the kernel's table of neighbours is small.
                if "broker" in {self._hosts[a].role, self._hosts[b].role}
            ]
            for a, b, answer in answers:
                round_trips[a] |= answer.get(self._timeouts.command_s)["ms"]
                round_trips[b][a] = round_trips[a][b]
        return {
            "hosts": {
                post.name: {**self._known(post.name), **fact}
                for post, fact in zip(self.posts, facts, strict=True)
            },
            "round_trip_ms": round_trips,
        }

    def _known(self, name: str) -> dict[str, Any]:
        host = self._hosts[name]
        return {
            "role": host.role,
            "address": host.address,
            "inside": host.inside,
            "provider_id": host.provider_id,
            "host_key": host.host_key,
        }

    def place(self, brokers: Sequence[str], clients: Sequence[str]) -> dict[str, Post]:
        posts = {post.name: post for post in self.posts}
        hosts = [self._hosts[name] for name in posts]
        placed = place(self._lab, hosts, brokers, clients, self._pack)
        return {node: posts[host.name] for node, host in placed.items()}

    def workplace(self, folder: Path, post: Post) -> PurePosixPath:
        run, names = self._runs.setdefault(folder, (f"{folder.name}-{self._token()}", set()))
        names.add(post.name)
        return PurePosixPath(self._deployed[post.name].root) / "runs" / run

    def gather(self, folder: Path, clear: bool) -> list[str]:
        if folder not in self._runs:
            return []
        run, names = self._runs.pop(folder)
        for post in self.posts:
            if post.name in names and post.station.is_lost:
                self._player.connections.drop(self._hosts[post.name])

        def playbook(host: Host) -> Playbook[None]:
            deployed = self._deployed[host.name]
            where = f"{deployed.root}/runs/{run}"
            return collect.collect(target(self._lab, host), deployed, where, folder, clear)

        hosts = [self._hosts[name] for name in sorted(names)]
        return [
            f"{outcome.host.name}: {outcome.error}"
            for outcome in self._player.everywhere(hosts, playbook)
            if outcome.error is not None
        ]

    def recover(self) -> None:
        for index, post in enumerate(self.posts):
            if post.station.is_lost:
                host = self._hosts[post.name]
                self._player.connections.drop(host)
                try:
                    self.posts[index] = self._post(host)
                except HostKeyChanged:
                    raise
                except LabError as error:
                    raise HostLost(f"host {post.name} is lost: {error}") from None

    def machine(self) -> dict[str, Any]:
        """Of the first host; `facts` has them all."""
        [first, *_] = self._facts["hosts"].values()
        return {name: first[name] for name in ("cpus", "model", "memory_bytes", "kernel", "python")}

    def facts(self) -> dict[str, Any]:
        return self._facts

    def close(self) -> None:
        """When this returns, no agent runs, nor anything that one has started."""
        self._watch.stop()
        living = [self._hosts[post.name] for post in self.posts if not post.station.is_lost]
        stations = {post.name: post.station for post in self.posts}
        self._player.each(living, lambda host: stations[host.name].close())

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self._lab.testbed.provider,
            "lab": self._lab.name,
            "lab_id": self._lab.id,
            "hosts": [post.name for post in self.posts],
            "packed": self._pack,
        }


@contextmanager
def at(
    store: Store, lab: Lab, modules: Sequence[ModuleType], say: TellOfHost, pack: bool = False
) -> Iterator[LabSite]:
    """Deploy to all hosts that are ready, start their agents; for the length of a block."""
    with Connections(store, lab) as connections, on(Player(connections), modules, say, pack) as site:
        yield site


@contextmanager
def on(
    player: Player,
    modules: Sequence[ModuleType],
    say: TellOfHost,
    pack: bool,
    token: Callable[[], str] = lambda: secrets.token_hex(3),
) -> Iterator[LabSite]:
    """The same by somebody who may only pretend; `token` tells repetitions apart on hosts."""
    lab = player.lab
    hosts = [host for host in lab.hosts if host.state == "ready"]
    for host in lab.hosts:
        if host.state != "ready":
            say(host.name, f"is left out, because it is {host.state}: {host.detail or 'provision again'}")
    if not hosts:
        raise SiteError(f"no host of the lab {lab.name} is ready; `labctl status --lab {lab.name}` says more")
    deployed = deploy.everywhere(player, hosts, deploy.BundleStore(modules), say)
    site = LabSite(player, deployed, pack, token)
    try:
        site.open()
        yield site
    finally:
        site.close()
