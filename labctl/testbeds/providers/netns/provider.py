"""Network namespaces of this machine as a provider of hosts."""

from __future__ import annotations

import ipaddress
import os
import pwd
import shutil
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import structs

from labctl.checkup import Check
from labctl.host import processes
from labctl.host.processes import Process
from labctl.testbeds.labs import lab as labs
from labctl.testbeds.labs.journal import LabEntry
from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers.netns import commands
from labctl.testbeds.providers.netns.commands import Plot
from labctl.testbeds.providers.netns.machine import NEEDED, ThisMachine, missing_programs, program
from labctl.testbeds.providers.provider import (
    AcquirePlan,
    Creation,
    ProviderError,
    Released,
    Resource,
    TellOfHost,
)
from labctl.testbeds.ssh import reach
from labctl.testbeds.testbed import NetnsOptions, Testbed

BRIDGE = "bridge"
NAMESPACE = "namespace"
AT_ONCE = 8
LOOK_AGAIN_S = 0.02
MISSED_MAX = 5
"""Looks in a row that do not see a host's first process, before it counts as ended."""
NOTE = "brokers of this lab speak without TLS; they listen only on its own network, inside this machine"


class Namespaces:
    def __init__(self, testbed: Testbed) -> None:
        assert isinstance(testbed.options, NetnsOptions)
        self._testbed = testbed
        self._cidr = testbed.options.cidr
        self._prefix = ipaddress.ip_network(self._cidr).prefixlen
        self._machine = ThisMachine(testbed.timeouts)
        self._writing = threading.Lock()

    def plan(self, store: Store, lab: Lab) -> AcquirePlan:
        present = self._machine.namespaces()
        create = [Creation(NAMESPACE, host.name) for host in lab.hosts if host.provider_id not in present]
        if not any(entry.kind == BRIDGE for entry in store.journal.may_exist()):
            create.insert(0, Creation(BRIDGE, lab.name))
        notes = [NOTE, *([self._no_root()] if os.geteuid() else [])]
        return AcquirePlan(tuple(create), notes=tuple(notes))

    def acquire(self, store: Store, lab: Lab, report: TellOfHost) -> Lab:
        self._refuse_without_means(lab)
        entries = store.journal.may_exist()
        bridge = self._bridge(store, lab, [entry for entry in entries if entry.kind == BRIDGE])
        lab = self._with_addresses(lab)
        by_host = {entry.host: entry for entry in entries if entry.kind == NAMESPACE}

        def one(host: Host) -> Host:
            try:
                made = self._host(store, lab, host, bridge, by_host.get(host.name), report)
            except ProviderError as error:
                made = structs.replace(host, state="failed", detail=str(error))
            report(host.name, "ready" if made.state == "ready" else made.detail)
            return made

        with ThreadPoolExecutor(AT_ONCE) as pool:
            lab = lab.with_hosts(list(pool.map(one, lab.hosts)))
        store.write(lab)
        return lab

    def inspect(self, store: Store, lab: Lab) -> Lab:
        present = self._machine.namespaces()
        return lab.with_hosts(self._seen(host, present) for host in lab.hosts)

    def release(self, store: Store, lab: Lab, report: TellOfHost) -> Released:
        deleted: list[Resource] = []
        left: list[Resource] = []
        # Namespaces first: the bridge is what they are plugged into.
        for entry in sorted(store.journal.may_exist(), key=lambda entry: entry.kind == BRIDGE):
            why = self._remove(store, entry)
            name = entry.host or entry.name
            thing = Resource(entry.kind, name, _name(entry), why)
            (left if why else deleted).append(thing)
            report(name, why or "gone")
        return Released(tuple(deleted), tuple(left))

    def examine(self, brokers: int, clients: int) -> list[Check]:
        missing = missing_programs()
        python = program("python3")
        checks = [
            _check("root", os.geteuid() == 0, "yes" if os.geteuid() == 0 else "no", self._no_root()),
            _check(
                "programs",
                not missing,
                ", ".join(name for name in NEEDED if name not in missing),
                f"install {', '.join(missing)}; Debian: apt-get install openssh-server iproute2 util-linux",
            ),
            _check("python3", python is not None, python or "not in the PATH of hosts", "install python3"),
        ]
        hosts = len(labs.sized(labs.new("examined", self._testbed, time.time()), brokers, clients).hosts)
        free = len(commands.addresses(self._cidr, hosts)[1])
        checks.append(_check("addresses", free == hosts, f"{free} in {self._cidr}", "write a larger cidr"))
        if not missing:
            using = self._machine.using(self._cidr)
            detail = "; ".join(f"{network} at {link}" for link, network in using) or "free"
            checks.append(_check("network", not using, detail, f"write another cidr than {self._cidr}"))
        checks.append(Check("TLS", True, NOTE, required=False))
        return checks

    def close(self) -> None:
        """There is no connection."""

    # Making

    def _refuse_without_means(self, lab: Lab) -> None:
        if os.geteuid():
            raise ProviderError(self._no_root())
        if missing := missing_programs():
            raise ProviderError(
                f"{', '.join(missing)} is not installed; Debian: apt-get install openssh-server iproute2"
            )
        for user in {host.user for host in lab.hosts}:
            _home_of(user)

    def _no_root(self) -> str:
        return "network namespaces need root; run labctl as root (sudo -E labctl ...), or use another testbed"

    def _bridge(self, store: Store, lab: Lab, entries: list[LabEntry]) -> str:
        """The one that is there, whole; or a new one."""
        links = self._machine.links()
        for entry in entries:
            if entry.state == "made" and _name(entry) in links:
                return _name(entry)
            if why := self._remove(store, entry):
                raise ProviderError(f"the remains of {_name(entry)} cannot be removed: {why}")
        if using := self._machine.using(self._cidr):
            [(link, network), *_] = using
            raise ProviderError(
                f"{self._cidr} is in use on this machine: {network} at {link}; write another `cidr` in the "
                "testbed file, or destroy the lab that has it"
            )
        entry = store.journal.intend(BRIDGE, lab.name)
        name = commands.bridge_name(entry.mark)
        address, _ = commands.addresses(self._cidr, 0)
        for command in commands.make_bridge(name, address, self._prefix):
            self._machine.run(command)
        store.journal.made(entry, name)
        return name

    def _with_addresses(self, lab: Lab) -> Lab:
        _, offered = commands.addresses(self._cidr, len(lab.hosts))
        if len(offered) < len(lab.hosts):
            raise ProviderError(
                f"{self._cidr} has {len(offered)} addresses for {len(lab.hosts)} hosts; write a larger `cidr`"
            )
        taken = {host.address for host in lab.hosts}
        free = iter([address for address in offered if address not in taken])
        hosts = []
        for host in lab.hosts:
            address = host.address or next(free)
            hosts.append(structs.replace(host, address=address, inside=address))
        return lab.with_hosts(hosts)

    def _host(
        self, store: Store, lab: Lab, host: Host, bridge: str, entry: LabEntry | None, report: TellOfHost
    ) -> Host:
        if entry is not None:
            if entry.state == "made" and self._answers(host):
                return structs.replace(host, state="ready", detail="")
            report(host.name, "replacing what is there and does not answer")
            if why := self._remove(store, entry):
                raise ProviderError(f"the remains of {host.name} cannot be removed: {why}")
        report(host.name, "making its namespace")
        with self._writing:
            entry = store.journal.intend(NAMESPACE, host.name, host.name)
        plot = Plot.of(entry.mark, host.address, self._prefix)
        for command in commands.make_namespace(plot, bridge):
            self._machine.run(command)
        files = self._files(store, host, plot)
        command = commands.start_host(
            plot, program("sshd") or "sshd", files, _home_of(host.user), f"{lab.name}-{host.name}"
        )
        first = self._machine.start(command, files / "sshd.log")
        with self._writing:
            store.journal.made(entry, plot.namespace)
        host = structs.replace(host, provider_id=plot.namespace)
        report(host.name, "waiting for sshd")
        return self._wait(host, first, files / "sshd.log")

    def _files(self, store: Store, host: Host, plot: Plot) -> Path:
        """What sshd reads, and an empty home."""
        files = store.folder / "hosts" / host.name
        shutil.rmtree(files, ignore_errors=True)
        (files / "home").mkdir(parents=True, mode=0o700)
        user = pwd.getpwnam(host.user)
        os.chown(files / "home", user.pw_uid, user.pw_gid)
        alive_s = self._testbed.timeouts.keepalive_s
        (files / "sshd_config").write_text(commands.sshd_config(plot, host.port, host.user, alive_s))
        (files / "authorized_keys").write_text(store.public_key() + "\n")
        shutil.copyfile(store.host_key_file(host.name), files / "host_key")
        (files / "host_key").chmod(0o600)
        return files

    def _wait(self, host: Host, first: Process | None, log: Path) -> Host:
        deadline = time.monotonic() + self._testbed.timeouts.boot_s
        missed = 0
        while not self._answers(host):
            # A process that is becoming another program has no arguments for a moment.
            missed = 0 if _runs(first) else missed + 1
            if missed > MISSED_MAX or time.monotonic() > deadline:
                lines = log.read_text(errors="replace").strip().splitlines()
                said = lines[-1] if lines else "it said nothing"
                return structs.replace(host, state="failed", detail=f"its sshd does not answer: {said}")
            time.sleep(LOOK_AGAIN_S)
        return structs.replace(host, state="ready", detail="")

    def _answers(self, host: Host) -> bool:
        return not reach.answer(host.address, host.port, self._testbed.timeouts.connect_s)

    # Looking and removing

    def _seen(self, host: Host, present: Iterable[str]) -> Host:
        if not host.provider_id:
            return host
        if host.provider_id not in present:
            return structs.replace(host, state="gone", detail="its namespace is not there any more")
        if not self._machine.inhabitants(host.provider_id):
            return structs.replace(host, state="stopped", detail="nothing runs in its namespace")
        return structs.replace(host, state="ready", detail="")

    def _remove(self, store: Store, entry: LabEntry) -> str:
        """What keeps it from going; nothing when it has been seen to be gone."""
        name = _name(entry)
        try:
            if entry.kind == NAMESPACE:
                if name in self._machine.namespaces():
                    if why := self._machine.empty(name):
                        return why
                    self._machine.run(commands.remove_namespace(name))
                name = Plot.of(entry.mark, "", 0).outside
            # The other end may have taken it along already.
            why = self._machine.try_run(commands.remove_link(name)) if name in self._machine.links() else ""
            if name in self._machine.links():
                return why or "it is still listed"
            if _name(entry) in self._machine.namespaces():
                return "it is still listed"
        except ProviderError as error:
            return str(error)
        with self._writing:
            store.journal.gone(entry)
        return ""


def _name(entry: LabEntry) -> str:
    make = commands.bridge_name if entry.kind == BRIDGE else commands.namespace_name
    return make(entry.mark)


def _runs(process: Process | None) -> bool:
    now = process and processes.look(process.pid)
    return now is not None and process is not None and now.started == process.started and bool(now.arguments)


def _home_of(user: str) -> str:
    try:
        return pwd.getpwnam(user).pw_dir
    except KeyError:
        raise ProviderError(
            f"hosts of this testbed have the users of this machine, and {user!r} is none of them; write "
            "`user: root` in the testbed file"
        ) from None


def _check(name: str, ok: bool, detail: str, advice: str) -> Check:
    return Check(name, ok, detail, "" if ok else advice)


def connect(testbed: Testbed) -> Namespaces:
    return Namespaces(testbed)
