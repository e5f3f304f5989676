"""Machines that exist already and answer SSH, as a provider of hosts.

Nothing is created on them but one folder of the lab's own, and `release` removes that. Their keys are not ours
to make: the testbed file says them, or the user's own known_hosts does. From the first provision on they are
part of the lab, and a key that changes later is refused like any other.
"""

from __future__ import annotations

import time
from pathlib import Path

from msgspec import structs

from labctl.checkup import Check
from labctl.exits import LabError
from labctl.testbeds.labs import keys
from labctl.testbeds.labs import lab as labs
from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers import fitness
from labctl.testbeds.providers.fitness import Look
from labctl.testbeds.providers.provider import (
    AcquirePlan,
    Creation,
    ProviderError,
    Released,
    Resource,
    TellOfHost,
)
from labctl.testbeds.ssh import reach
from labctl.testbeds.ssh.connections import Connections
from labctl.testbeds.ssh.login import KNOWN_HOSTS, HostKeyChanged
from labctl.testbeds.ssh.play import Player, target
from labctl.testbeds.testbed import HostEntry, HostsOptions, Testbed
from playbooks.prepare import Found, prepare
from playbooks.stop import clear, stop_any

FOLDER = "folder"
NOTE = "brokers speak without TLS; use hosts whose `inside` addresses only the lab can reach"


class Hosts:
    def __init__(self, testbed: Testbed) -> None:
        assert isinstance(testbed.options, HostsOptions)
        self._testbed = testbed
        self._entries = testbed.options.hosts

    def plan(self, store: Store, lab: Lab) -> AcquirePlan:
        lab = self._assigned(lab)
        known = {entry.host for entry in store.journal.may_exist()}
        create = [
            Creation(FOLDER, f"{host.address}:~/{target(lab, host).folder}")
            for host in lab.hosts
            if host.name not in known
        ]
        return AcquirePlan(tuple(create), notes=(NOTE,))

    def acquire(self, store: Store, lab: Lab, report: TellOfHost) -> Lab:
        lab = self._assigned(lab)
        store.write(lab)
        entries = {entry.host: entry for entry in store.journal.may_exist()}
        for host in lab.hosts:
            if host.name not in entries:
                entries[host.name] = store.journal.intend(FOLDER, target(lab, host).folder, host.name)
        with Connections(store, lab) as connections:
            player = Player(connections)

            def one(host: Host) -> Found:
                if not host.host_key:
                    raise ProviderError(_unknown_key(host))
                report(host.name, "logging in")
                return player.on(host, prepare(target(lab, host)))

            try:
                outcomes = player.each(lab.hosts, one)
            except HostKeyChanged as error:
                raise ProviderError(str(error)) from None
        hosts = []
        for outcome in outcomes:
            host = outcome.host
            if outcome.made is None:
                hosts.append(structs.replace(host, state="failed", detail=str(outcome.error)))
            else:
                store.journal.made(entries[host.name], outcome.made.root)
                hosts.append(structs.replace(host, state="ready", detail=""))
            report(host.name, "ready" if outcome.made else str(outcome.error))
        lab = lab.with_hosts(hosts)
        store.write(lab)
        return lab

    def inspect(self, store: Store, lab: Lab) -> Lab:
        with reach.dialing(self._testbed) as dial, Connections(store, lab) as connections:
            outcomes = Player(connections).each(lab.hosts, lambda host: self._seen(host, dial))
        return lab.with_hosts(outcome.made for outcome in outcomes if outcome.made is not None)

    def _seen(self, host: Host, dial: reach.Dial) -> Host:
        if not host.address or host.state == "planned":
            return host
        problem = reach.answer(host.address, host.port, self._testbed.timeouts.connect_s, dial)
        return structs.replace(host, state="failed" if problem else "ready", detail=problem)

    def release(self, store: Store, lab: Lab, report: TellOfHost) -> Released:
        entries = {entry.host: entry for entry in store.journal.may_exist()}
        hosts = [host for host in lab.hosts if host.name in entries]
        with Connections(store, lab) as connections:
            player = Player(connections)

            def one(host: Host) -> None:
                where = target(lab, host)
                found = player.on(host, prepare(where))
                player.on(host, stop_any(where, found))
                player.on(host, clear(where, found))

            try:
                outcomes = player.each(hosts, one)
            except HostKeyChanged as error:
                raise ProviderError(str(error)) from None
        deleted: list[Resource] = []
        left: list[Resource] = []
        for outcome in outcomes:
            entry = entries[outcome.host.name]
            why = str(outcome.error or "")
            thing = Resource(FOLDER, outcome.host.name, f"{outcome.host.address}:~/{entry.name}", why)
            if not why:
                store.journal.gone(entry)
            (left if why else deleted).append(thing)
            report(outcome.host.name, why or "cleared")
        return Released(tuple(deleted), tuple(left))

    def examine(self, brokers: int, clients: int) -> list[Check]:
        lab = labs.sized(labs.new("examined", self._testbed, time.time()), brokers, clients)
        try:
            lab = self._assigned(lab)
        except ProviderError as error:
            return [Check("hosts", False, str(error), "write more under `hosts`, or ask for fewer")]
        checks = [Check("hosts", True, f"{len(self._entries)}, of which {len(lab.hosts)} are needed")]
        with Connections(Store("examined"), lab) as connections:
            player = Player(connections)

            def one(host: Host) -> Look:
                name = f"{host.name} ({host.address})"
                if not host.host_key:
                    return Look(name, problem=_unknown_key(host))
                asked_s = time.time()
                try:
                    found = player.on(host, prepare(target(lab, host)))
                    answered_s = time.time()
                    player.on(host, clear(target(lab, host), found))
                except LabError as error:
                    return Look(name, problem=str(error))
                return Look(name, found, asked_s, answered_s)

            outcomes = player.each(lab.hosts, one)
        checks += fitness.judge([outcome.made for outcome in outcomes if outcome.made is not None])
        return [*checks, Check("TLS", True, NOTE, required=False)]

    def close(self) -> None:
        """Connections are closed by whoever has opened them."""

    def _assigned(self, lab: Lab) -> Lab:
        """Every host of the lab with the machine that it is; those that are assigned stay so."""
        taken = {host.provider_id for host in lab.hosts if host.provider_id}
        free = [(_identity(entry), entry) for entry in self._entries if _identity(entry) not in taken]
        hosts = []
        for host in lab.hosts:
            if host.provider_id:
                # Once it was ready its key is the lab's; before that, the file may have been corrected.
                known = {_identity(entry): entry for entry in self._entries}.get(host.provider_id)
                if known is not None and host.state != "ready":
                    host = self._as(host, host.provider_id, known)  # noqa: PLW2901 - the same, corrected
                hosts.append(host)
                continue
            fit = next((each for each in free if each[1].role == host.role), None) or next(
                (each for each in free if each[1].role is None), None
            )
            if fit is None:
                raise ProviderError(
                    f"no machine is left for {host.name}: the testbed has {len(self._entries)}, and the lab "
                    f"wants {len(lab.hosts)}; write more under `hosts`"
                )
            free.remove(fit)
            hosts.append(self._as(host, *fit))
        return lab.with_hosts(hosts)

    def _as(self, host: Host, identity: str, entry: HostEntry) -> Host:
        port = entry.port or self._testbed.ssh.port
        key = entry.host_key or known_key(entry.address, port)
        return structs.replace(
            host,
            provider_id=identity,
            address=entry.address,
            inside=entry.inside or entry.address,
            port=port,
            user=entry.user or self._testbed.user,
            host_key=" ".join(key.split()[:2]),
        )


def _identity(entry: HostEntry) -> str:
    return entry.name or f"{entry.address}:{entry.port}"


def known_key(address: str, port: int) -> str:
    """What the user's own files say; empty when they say nothing."""
    from paramiko import HostKeys

    for name in KNOWN_HOSTS:
        path = Path(name).expanduser()
        if not path.exists():
            continue
        found = HostKeys(str(path)).lookup(keys.known_name(address, port))
        if found:
            kind = "ssh-ed25519" if "ssh-ed25519" in found else next(iter(found.keys()))
            return f"{kind} {found[kind].get_base64()}"
    return ""


def _unknown_key(host: Host) -> str:
    return (
        f"the host key of {host.address} is not known; write it as `host_key` in the testbed file, or log in "
        "once with ssh and compare it"
    )


def connect(testbed: Testbed) -> Hosts:
    return Hosts(testbed)
