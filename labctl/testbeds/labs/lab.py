"""A lab and its hosts, as they are written down. Pure: where and how is the business of `store.py`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, structs

from labctl.exits import UsageProblem
from labctl.testbeds.testbed import Role, Testbed

HOSTS_MAX = 1000
HostState = Literal["planned", "building", "ready", "stopped", "failed", "gone"]
"""planned: not asked for yet. building: asked for, not ready. ready: runs, and answers as far as the
testbed wants it checked. stopped: there, but not running. failed: its provider gave it up, or it does
not answer. gone: was there, and is not any more."""
Phase = Literal["making", "ready", "incomplete", "removing"]
"""making: a provision began. ready: every host was. incomplete: it ended with hosts missing. removing:
a destroy began, which only another destroy can follow."""


class Host(Struct, frozen=True):
    name: str
    """`broker-1`, `client-2`; the same for the life of the lab."""
    role: Role
    user: str
    """Who logs in."""
    port: int = 22
    address: str = ""
    """Where SSH finds it from here, or from the bastion; empty until it has one."""
    inside: str = ""
    """Its address on the lab's own network: what brokers listen on and others connect to."""
    host_key: str = ""
    """`ssh-ed25519 AAAA...`, made by us before the machine was."""
    provider_id: str = ""
    """What the provider calls it: a server's id, a namespace's name; empty until it exists."""
    state: HostState = "planned"
    detail: str = ""
    """Why it is in this state, in the provider's words."""


class Lab(Struct, frozen=True):
    name: str
    """The user's word for it, unique on this machine."""
    id: str
    """Random; marks everything that belongs to the lab."""
    testbed: Testbed
    created_at_s: float
    """Seconds since 1970."""
    expires_at_s: float
    """Machines that can, shut themselves down then; `labctl gc` removes the lab afterwards."""
    hosts: tuple[Host, ...] = ()
    phase: Phase = "making"

    @property
    def may_share(self) -> bool:
        """Brokers and clients need not have a host each: there are as many machines as the user wanted."""
        return self.testbed.machines is not None

    @property
    def tag(self) -> str:
        """Carried by everything in a cloud that is this lab's."""
        return f"labctl-{self.id}"

    def of_role(self, role: Role) -> tuple[Host, ...]:
        return tuple(host for host in self.hosts if host.role == role)

    def host(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.hosts)
        raise UsageProblem(f"the lab {self.name} has no host {name!r}; it has {known or 'none'}")

    def with_host(self, changed: Host) -> Lab:
        return self.with_hosts((changed,))

    def with_hosts(self, changed: Iterable[Host]) -> Lab:
        """The same lab, hosts of these names replaced."""
        by_name = {host.name: host for host in changed}
        return structs.replace(self, hosts=tuple(by_name.get(host.name, host) for host in self.hosts))

    def in_phase(self, phase: Phase) -> Lab:
        return structs.replace(self, phase=phase)


def new(name: str, testbed: Testbed, now_s: float) -> Lab:
    return Lab(name, secrets.token_hex(8), testbed, now_s, now_s + testbed.lifetime_s)


def sized(lab: Lab, brokers: int, clients: int) -> Lab:
    """The lab with as many hosts as wanted: those it has, and planned ones for the rest."""
    brokers, clients = _within(lab, brokers, clients)
    if brokers + clients > HOSTS_MAX:
        raise UsageProblem(f"{brokers + clients} hosts; a lab has at most {HOSTS_MAX}")
    roles: tuple[tuple[Role, int], ...] = (("broker", brokers), ("client", clients))
    hosts: list[Host] = []
    for role, wanted in roles:
        present = lab.of_role(role)
        if len(present) > wanted:
            raise UsageProblem(
                f"the lab {lab.name} has {len(present)} {role}s and provision takes none away; ask for at "
                f"least as many, or begin again after `labctl destroy --lab {lab.name}`"
            )
        hosts += present
        for number in range(len(present) + 1, wanted + 1):
            user, port = lab.testbed.user, lab.testbed.ssh.port
            hosts.append(Host(f"{role}-{number}", role, user, port))
    if not hosts:
        raise UsageProblem("a lab without hosts; ask for some with --brokers and --clients")
    return structs.replace(lab, hosts=tuple(hosts))


def _within(lab: Lab, brokers: int, clients: int) -> tuple[int, int]:
    """As many hosts of each role as the testbed's `machines` allow.

    They are divided as the processes are, and apart as long as there are two: a client that shares the
    processors of a broker measures both.
    """
    machines = lab.testbed.machines
    if machines is None or brokers + clients <= machines:
        return brokers, clients
    has_brokers, has_clients = len(lab.of_role("broker")), len(lab.of_role("client"))
    if has_brokers + has_clients > machines:
        raise UsageProblem(
            f"the lab {lab.name} has {len(lab.hosts)} hosts and provision takes none away; allow at least as "
            f"many machines, or begin again after `labctl destroy --lab {lab.name}`"
        )
    if machines == 1:
        return (0, 1) if has_clients or not brokers else (1, 0)
    least = max(has_brokers, min(brokers, 1))
    most = machines - max(has_clients, min(clients, 1))
    for_brokers = min(max(round(machines * brokers / (brokers + clients)), least), most)
    return for_brokers, machines - for_brokers
