"""What is told to `ip`, `unshare` and `sshd`; pure, so that it can be tested and shown."""

from __future__ import annotations

import ipaddress
import shlex
from pathlib import Path

from msgspec import Struct

Command = list[str]

SETTINGS = "/run/lab"
"""Inside the host."""
FILES = ("sshd_config", "host_key", "authorized_keys")

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Plot(Struct, frozen=True):
    """Names of a host's parts. They hold the marks from the journal, by which they are recognised."""

    namespace: str
    outside: str
    """The end of the veth pair that is plugged into the bridge."""
    address: str
    prefix: int

    @classmethod
    def of(cls, mark: str, address: str, prefix: int) -> Plot:
        return cls(namespace_name(mark), f"lv{mark[:12]}", address, prefix)


def namespace_name(mark: str) -> str:
    return f"labctl-{mark}"


def bridge_name(mark: str) -> str:
    """The kernel takes 15 letters at most."""
    return f"lb{mark[:12]}"


def addresses(cidr: str, count: int) -> tuple[str, list[str]]:
    """The bridge's address and those of so many hosts; fewer when the network is too small."""
    network = ipaddress.ip_network(cidr)
    hosts = network.hosts()
    bridge = str(next(hosts))
    return bridge, [str(address) for _, address in zip(range(count), hosts, strict=False)]


def make_bridge(name: str, address: str, prefix: int) -> list[Command]:
    """With a hardware address that stays. Otherwise it would be the lowest of what is plugged in; when another
    host came or went, answers that were on their way to the old one would be lost, for half a minute."""
    return [
        ["ip", "link", "add", name, "address", hardware_address(address), "type", "bridge"],
        ["ip", "address", "add", f"{address}/{prefix}", "dev", name],
        ["ip", "link", "set", name, "up"],
    ]


def remove_link(name: str) -> Command:
    return ["ip", "link", "delete", name]


def make_namespace(plot: Plot, bridge: str) -> list[Command]:
    inside = ["ip", "-n", plot.namespace]
    peer = ["peer", "name", "eth0", "address", hardware_address(plot.address), "netns", plot.namespace]
    return [
        ["ip", "netns", "add", plot.namespace],
        ["ip", "link", "add", plot.outside, "type", "veth", *peer],
        ["ip", "link", "set", plot.outside, "master", bridge, "up"],
        [*inside, "address", "add", f"{plot.address}/{plot.prefix}", "dev", "eth0"],
        [*inside, "link", "set", "eth0", "up"],
        [*inside, "link", "set", "lo", "up"],
    ]


def hardware_address(address: str) -> str:
    """Always the same for an address: whoever has spoken with a host finds the one that replaces it."""
    packed = ipaddress.ip_address(address).packed[-4:]
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x4C, *packed))


def remove_namespace(name: str) -> Command:
    return ["ip", "netns", "delete", name]


def start_host(plot: Plot, sshd: str, files: Path, users_home: str, hostname: str) -> Command:
    """The host's first process: it makes a /run and a home of its own, and becomes sshd.

    `files` holds what sshd reads, and the home. It is copied first: the home may lie over it.
    """
    first = " && ".join(
        [
            "mount -t tmpfs -o mode=755,size=1m tmpfs /run",
            f"mkdir -m 755 /run/sshd {SETTINGS}",
            f"cp {' '.join(shlex.quote(str(files / name)) for name in FILES)} {SETTINGS}/",
            f"mount --bind {shlex.quote(str(files / 'home'))} {shlex.quote(users_home)}",
            f"hostname {shlex.quote(hostname)}",
            f"exec {shlex.quote(sshd)} -D -e -f {SETTINGS}/sshd_config",
        ]
    )
    apart = ["unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["ip", "netns", "exec", plot.namespace, *apart, "sh", "-c", first]


def sshd_config(plot: Plot, port: int, user: str, alive_s: float) -> str:
    """Only this user, only with the lab's key, only on the lab's network."""
    lines = {
        "AddressFamily": "inet",
        "ListenAddress": plot.address,
        "Port": port,
        "HostKey": f"{SETTINGS}/host_key",
        "PidFile": "none",
        "AuthorizedKeysFile": f"{SETTINGS}/authorized_keys",
        "StrictModes": "no",
        "AllowUsers": user,
        "PermitRootLogin": "prohibit-password",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "UsePAM": "no",
        "AllowAgentForwarding": "no",
        "AllowTcpForwarding": "no",
        "X11Forwarding": "no",
        "PermitUserEnvironment": "no",
        "PrintMotd": "no",
        "PrintLastLog": "no",
        "UseDNS": "no",
        "MaxStartups": "100:30:200",
        "MaxSessions": "50",
        "ClientAliveInterval": f"{alive_s:.0f}",
        "ClientAliveCountMax": 4,
        "SetEnv": f"PATH={PATH}",
        "Subsystem": "sftp internal-sftp",
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items())
