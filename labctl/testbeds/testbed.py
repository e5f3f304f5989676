"""The testbed file, read once into frozen types; an error names file, line and the nearest valid word.

`experiments/testbeds/` holds commented examples. Keys that every provider understands are fields of
`Testbed`; what only one provider understands is in its own options type. Nothing here talks to a
cloud or to a host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeVar, get_args

from msgspec import Struct, structs

from labctl import yamlfile
from labctl.exits import UsageProblem
from labctl.testbeds.timeouts import Timeouts
from labctl.yamlfile import Node, nearest

Kind = Literal["local", "netns", "hosts", "openstack"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Placement = Literal["spread", "any"]
Readiness = Literal["ssh", "active"]
Role = Literal["broker", "client"]
ROLES: tuple[Role, ...] = get_args(Role)

SSH_PORT = 22
LIFETIME_S = 8 * 3600.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ENDPOINT = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?")


class TestbedError(UsageProblem):
    """A testbed file, or an option in its place, says what cannot be."""

    __test__ = False  # pytest would take the name for that of a test


class FlavorSize(Struct, frozen=True):
    """Any flavor with at least this; the smallest is taken. The defaults are the paper's machines."""

    vcpus: int = 2
    memory_gb: float = 4.0
    disk_gb: float = 0.0


class ExistingNetwork(Struct, frozen=True, tag="existing"):
    name: str
    """Or its id."""


class MadeNetwork(Struct, frozen=True, tag="made"):
    """A network of the lab's own, deleted with it."""

    cidr: str = "10.77.0.0/22"
    dns: tuple[str, ...] = ()


class Direct(Struct, frozen=True, tag="direct"):
    """The hosts' own addresses can be reached from here."""


class Bastion(Struct, frozen=True, tag="bastion"):
    """Through a host that can reach them."""

    host: str
    user: str = ""
    """Empty: the user of the hosts."""
    port: int = SSH_PORT
    host_key: str = ""
    """As in known_hosts, without the name; empty: the user's own known_hosts must have it."""
    identity: str = ""
    """The private key that opens it; empty: that of the hosts, if there is one, else what ssh itself would use."""


class Floating(Struct, frozen=True, tag="floating"):
    """Each host gets an address of an external network."""

    network: str


Reach = Direct | Bastion | Floating


class SshOptions(Struct, frozen=True):
    port: int = SSH_PORT
    allow_from: tuple[str, ...] = ()
    """Who may use SSH, as CIDR; empty: the address from which the provider sees us."""


class OpenStackOptions(Struct, frozen=True, tag="openstack"):
    cloud: str = ""
    """Its name in clouds.yaml; empty: OS_CLOUD, or the OS_ variables themselves."""
    image: str = "debian-12"
    """Name or id."""
    flavor: str | FlavorSize = FlavorSize()
    network: ExistingNetwork | MadeNetwork = MadeNetwork()
    placement: Placement = "spread"
    ready: Readiness = "ssh"
    """`active`: take the cloud's word for it, and do not wait for sshd."""


class HostEntry(Struct, frozen=True):
    """A machine that exists already."""

    address: str
    name: str = ""
    """Empty: after its role, broker-1 and so on."""
    role: Role | None = None
    """None: whichever is needed, brokers first."""
    user: str = ""
    port: int = 0
    inside: str = ""
    """The address at which the other hosts reach it; empty: the same as `address`."""
    host_key: str = ""
    """As in known_hosts, without the name; empty: the user's own known_hosts must have it."""


class HostsOptions(Struct, frozen=True, tag="hosts"):
    hosts: tuple[HostEntry, ...] = ()
    identity: str = ""
    """Private key file that opens them; empty: what ssh would use."""


class NetnsOptions(Struct, frozen=True, tag="netns"):
    cidr: str = "10.78.0.0/22"
    """Addresses of the namespaces; must not be in use on this machine."""


class LocalOptions(Struct, frozen=True, tag="local"):
    """Processes of this machine: there is nothing to choose."""


Options = OpenStackOptions | HostsOptions | NetnsOptions | LocalOptions


class Testbed(Struct, frozen=True):
    """What a testbed file says, with the defaults filled in."""

    __test__ = False  # pytest would take the name for that of a test

    provider: Kind
    options: Options
    reach: Reach = Direct()
    machines: int | None = None
    """A lab has at most so many hosts, which brokers and clients share; None: one for each of them."""
    lifetime_s: float = LIFETIME_S
    user: str = "debian"
    ssh: SshOptions = SshOptions()
    timeouts: Timeouts = Timeouts()


DEFAULT_OPTIONS: dict[Kind, Options] = {
    "local": LocalOptions(),
    "netns": NetnsOptions(),
    "hosts": HostsOptions(),
    "openstack": OpenStackOptions(),
}


DEFAULT_USERS: dict[Kind, str] = {"local": "", "netns": "root", "hosts": "debian", "openstack": "debian"}


def resolve(word: str) -> Testbed:
    """`--testbed`: a kind, with all defaults, or the path of a file."""
    for kind in KINDS:
        if word == kind:
            return Testbed(kind, DEFAULT_OPTIONS[kind], user=DEFAULT_USERS[kind])
    path = Path(word)
    if path.suffix not in {".yaml", ".yml"} and not path.exists():
        raise TestbedError(f"{word!r} is neither a file nor a kind of testbed; {nearest(word, KINDS)}")
    return load(path)


def load(path: Path) -> Testbed:
    document = yamlfile.read(path, TestbedError)
    every = {key for reader in _OPTION_READERS.values() for key in reader} | _COMMON.keys() | {"provider"}
    provider = document.mapping(sorted(every)).get("provider")
    if provider is None:
        raise document.error(f"which provider? Write provider: and one of {', '.join(KINDS)}")
    kind = _word(provider, KINDS)
    readers = _OPTION_READERS[kind]
    parts = document.mapping(["provider", *_COMMON, *readers])
    options = structs.replace(DEFAULT_OPTIONS[kind], **_read(parts, readers))
    common = _read(parts, _COMMON)
    testbed = structs.replace(Testbed(kind, options, user=DEFAULT_USERS[kind]), **common)
    if problem := contradiction(testbed):
        raise document.error(problem)
    return testbed


def contradiction(testbed: Testbed) -> str:
    """What is allowed word by word and still cannot be together; empty when all is well."""
    floating = isinstance(testbed.reach, Floating)
    if floating and testbed.provider != "openstack":
        return f"floating addresses come from a cloud; the provider {testbed.provider} has none"
    if isinstance(testbed.reach, Bastion) and testbed.provider in ("local", "netns"):
        return f"the hosts of the provider {testbed.provider} are on this machine, where no bastion is needed"
    return ""


def duration_s(text: str) -> float | None:
    """`90m`, `8h`, `2d`; None when it is none."""
    match = _DURATION.fullmatch(text.strip())
    return float(match[1]) * _UNIT_S[match[2]] if match else None


Reader = Callable[[Node], object]
_Word = TypeVar("_Word", bound=str)


def _read(parts: Mapping[str, Node], readers: Mapping[str, Reader]) -> dict[str, object]:
    return {_FIELDS.get(key, key): readers[key](node) for key, node in parts.items() if key in readers}


def _word(node: Node, valid: tuple[_Word, ...]) -> _Word:
    given = node.text()
    for each in valid:
        if each == given:
            return each
    raise node.error(f"unknown word {given!r}; {nearest(given, valid)}")


def _read_lifetime(node: Node) -> float:
    found = duration_s(node.text())
    if not found:
        raise node.error("a lifetime is a number and a unit: 90m, 8h or 2d")
    return found


def _read_cidr(node: Node) -> str:
    text = node.text()
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise node.error(f"{error}; a network is written like 10.77.0.0/22") from None


def _read_flavor(node: Node) -> str | FlavorSize:
    if not node.is_mapping:
        return node.text()
    keys = node.mapping(FlavorSize.__struct_fields__)
    size = FlavorSize(
        vcpus=keys["vcpus"].integer() if "vcpus" in keys else FlavorSize().vcpus,
        memory_gb=keys["memory_gb"].number() if "memory_gb" in keys else FlavorSize().memory_gb,
        disk_gb=keys["disk_gb"].number() if "disk_gb" in keys else 0.0,
    )
    if size.vcpus < 1 or size.memory_gb <= 0:
        raise node.error("a machine has at least one vCPU and some memory")
    return size


def _read_network(node: Node) -> ExistingNetwork | MadeNetwork:
    if not node.is_mapping:
        return ExistingNetwork(node.text())
    keys = node.mapping(MadeNetwork.__struct_fields__)
    made = MadeNetwork()
    return MadeNetwork(
        cidr=_read_cidr(keys["cidr"]) if "cidr" in keys else made.cidr,
        dns=tuple(server.text() for server in keys["dns"].sequence()) if "dns" in keys else made.dns,
    )


def _read_reach(node: Node) -> Reach:
    if not node.is_mapping:
        _word(node, ("direct",))
        return Direct()
    keys = node.mapping(("bastion", "floating", "host_key", "identity"))
    if ("bastion" in keys) == ("floating" in keys):
        raise node.error("hosts are reached through a bastion or by floating addresses: name one of the two")
    if "floating" in keys:
        return Floating(keys["floating"].text())
    host, user, port = _endpoint(keys["bastion"])
    given = {name: keys[name].text() for name in ("host_key", "identity") if name in keys}
    return Bastion(host, user, port or SSH_PORT, **given)


def _endpoint(node: Node) -> tuple[str, str, int]:
    """`user@host:port`, of which only the host must be there."""
    match = _ENDPOINT.fullmatch(node.text())
    if match is None or int(match["port"] or 0) > 65535:
        raise node.error(f"{node.text()!r} is not user@host:port")
    return match["host"].strip("[]"), match["user"] or "", int(match["port"] or 0)


def _read_ssh(node: Node) -> SshOptions:
    keys = node.mapping(SshOptions.__struct_fields__)
    allowed = keys["allow_from"].sequence() if "allow_from" in keys else []
    return SshOptions(
        port=_read_port(keys["port"]) if "port" in keys else SSH_PORT,
        allow_from=tuple(_read_cidr(each) for each in allowed),
    )


def _read_machines(node: Node) -> int:
    if node.integer() < 1:
        raise node.error("a lab has at least one machine; left out, each broker and client has its own")
    return node.integer()


def _read_port(node: Node) -> int:
    port = node.integer()
    if not 0 < port < 65536:
        raise node.error(f"{port} is not a port: 1 to 65535")
    return port


def _read_timeouts(node: Node) -> Timeouts:
    keys = node.mapping(Timeouts.__struct_fields__)
    for each in keys.values():
        if each.number() <= 0:
            raise each.error("a time-out is longer than nothing")
    return structs.replace(Timeouts(), **{name: each.number() for name, each in keys.items()})


def _read_hosts(node: Node) -> tuple[HostEntry, ...]:
    entries = tuple(_read_host(each) for each in node.sequence())
    for position, entry in enumerate(entries):
        if entry.name and entry.name in {other.name for other in entries[:position]}:
            raise node.error(f"the host name {entry.name!r} is there twice")
    return entries


def _read_host(node: Node) -> HostEntry:
    if not node.is_mapping:
        host, user, port = _endpoint(node)
        return HostEntry(host, user=user, port=port)
    keys = node.mapping(HostEntry.__struct_fields__)
    if "address" not in keys:
        raise node.error("a host has an address")
    texts = {name: keys[name].text() for name in ("name", "user", "inside", "host_key") if name in keys}
    return HostEntry(
        address=keys["address"].text(),
        role=_word(keys["role"], ROLES) if "role" in keys else None,
        port=_read_port(keys["port"]) if "port" in keys else 0,
        **texts,
    )


_COMMON: dict[str, Reader] = {
    "reach": _read_reach,
    "machines": _read_machines,
    "lifetime": _read_lifetime,
    "user": Node.text,
    "ssh": _read_ssh,
    "timeouts": _read_timeouts,
}
_FIELDS = {"lifetime": "lifetime_s"}
"""Where the word of the file is not the name of the field."""
_OPTION_READERS: dict[Kind, dict[str, Reader]] = {
    "local": {},
    "netns": {"cidr": _read_cidr},
    "hosts": {"hosts": _read_hosts, "identity": Node.text},
    "openstack": {
        "cloud": Node.text,
        "image": Node.text,
        "flavor": _read_flavor,
        "network": _read_network,
        "placement": lambda node: _word(node, get_args(Placement)),
        "ready": lambda node: _word(node, get_args(Readiness)),
    },
}
