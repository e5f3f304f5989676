"""The testbed file as it is written, and what it means; an error names file, line and the nearest valid word.

`experiments/testbeds/` holds commented examples. What only one provider understands is in a model of its own.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, cast

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from labctl import yamlfile
from labctl.testbeds.testbed import (
    DEFAULT_OPTIONS,
    DEFAULT_USERS,
    DURATION,
    KINDS,
    SSH_PORT,
    Bastion,
    Cidr,
    Direct,
    ExistingNetwork,
    FlavorSize,
    Floating,
    HostEntry,
    HostsOptions,
    LocalOptions,
    MadeNetwork,
    NetnsOptions,
    OpenStackOptions,
    Options,
    Placement,
    Port,
    Reach,
    Readiness,
    Role,
    SshOptions,
    Testbed,
    TestbedError,
    contradiction,
    duration_s,
)
from labctl.testbeds.timeouts import Timeouts
from labctl.yamlfaults import nearest
from labctl.yamlfile import Document, Place, given

_ENDPOINT = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<host>\[[0-9a-fA-F:]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?")
_NO_MACHINE = "a lab has at least one machine; left out, each broker and client has its own"
EndpointText = Annotated[str, Meta(description="As user@host:port; only the host must be there.")]


class NetworkSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """A network that is made for the lab, and deleted with it."""

    cidr: Cidr = MadeNetwork().cidr
    """Its addresses."""
    dns: tuple[str, ...] = MadeNetwork().dns
    """Name servers."""


class Through(Struct, frozen=True, forbid_unknown_fields=True):
    """Hosts that cannot be reached directly: through a bastion, or by floating addresses."""

    bastion: EndpointText | UnsetType = UNSET
    """A host that can reach them."""
    floating: str | UnsetType = UNSET
    """An external network, of which each host gets an address."""
    host_key: str = ""
    """The bastion's, as in known_hosts, without the name; left out: your own known_hosts must have it."""
    identity: str = ""
    """The private key that opens the bastion; left out: that of the hosts, or what ssh itself would use."""


class HostSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine that exists already."""

    address: Annotated[str, Meta(extra={"missing": "a host has an address"})]
    """At which it is reached from here."""
    name: str | UnsetType = UNSET
    """Left out: after its role, broker-1 and so on."""
    role: Role | UnsetType = UNSET
    """Left out: whichever is needed, brokers first."""
    user: str | UnsetType = UNSET
    """Who logs in; left out: the user of the file."""
    port: Port | UnsetType = UNSET
    """Of its sshd; left out: that of the file."""
    inside: str | UnsetType = UNSET
    """The address at which the other hosts reach it; left out: the same."""
    host_key: str | UnsetType = UNSET
    """As in known_hosts, without the name; left out: your own known_hosts must have it."""


class AnyFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="provider"):
    """What every provider understands."""

    reach: Literal["direct"] | Through = "direct"
    """How hosts are reached from here."""
    machines: Annotated[int, Meta(ge=1, extra={"problem": _NO_MACHINE})] | UnsetType = UNSET
    """A lab has at most so many hosts; left out: one for each broker and client."""
    lifetime: Annotated[str, Meta(extra_json_schema={"pattern": f"^{DURATION.pattern}$"})] = "8h"
    """Until every machine shuts itself down: 90m, 8h or 2d."""
    user: str = DEFAULT_USERS["hosts"]
    """Who logs in."""
    ssh: SshOptions = SshOptions()
    timeouts: Timeouts = Timeouts()


class LocalFile(AnyFile, frozen=True, tag="local"):
    """Processes of this machine: there is nothing to choose."""

    user: str = DEFAULT_USERS["local"]
    """Without a meaning here."""


class NetnsFile(AnyFile, frozen=True, tag="netns"):
    """Hosts without a cloud: network namespaces of this machine."""

    user: str = DEFAULT_USERS["netns"]
    """Who logs in."""
    cidr: Cidr = NetnsOptions().cidr
    """Addresses of the namespaces; must not be in use on this machine."""


class HostsFile(AnyFile, frozen=True, tag="hosts"):
    """Machines that exist already and answer SSH."""

    hosts: tuple[EndpointText | HostSettings, ...] = ()
    """As user@address:port, of which only the address must be there, or by their parts."""
    identity: str = ""
    """The private key file that opens them; left out: what ssh itself would use."""


class OpenStackFile(AnyFile, frozen=True, tag="openstack"):
    """An OpenStack cloud: a machine for each broker and client."""

    cloud: str = ""
    """Its name in clouds.yaml; left out: OS_CLOUD, or the OS_ variables themselves."""
    image: str = OpenStackOptions().image
    """Its name or id."""
    flavor: str | FlavorSize = OpenStackOptions().flavor
    """Its name or id; or a size: the smallest one that has at least this."""
    network: str | NetworkSettings = NetworkSettings()
    """The name or id of one that exists; or one that is made for the lab."""
    placement: Placement = OpenStackOptions().placement
    """Spread: on different hypervisors where there are enough. Any: wherever."""
    ready: Readiness = OpenStackOptions().ready
    """Ssh: when its sshd answers with the right key. Active: when the cloud says so."""


BedFile = OpenStackFile | HostsFile | NetnsFile | LocalFile


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
    document: Document[BedFile] = yamlfile.read(path, cast("type[BedFile]", BedFile), TestbedError)
    written = document.value
    options = _options(document, written)
    lifetime_s = duration_s(written.lifetime)
    if not lifetime_s:
        raise document.error("a lifetime is a number and a unit: 90m, 8h or 2d", "lifetime")
    allowed = (
        _network(document, each, "ssh", "allow_from", n) for n, each in enumerate(written.ssh.allow_from)
    )
    testbed = Testbed(
        next(kind for kind, default in DEFAULT_OPTIONS.items() if type(default) is type(options)),
        options,
        _reach(document, written.reach),
        None if written.machines is UNSET else written.machines,
        lifetime_s,
        written.user,
        structs.replace(written.ssh, allow_from=tuple(allowed)),
        written.timeouts,
    )
    if problem := contradiction(testbed):
        raise document.error(problem)
    return testbed


def _options(document: Document[BedFile], written: BedFile) -> Options:
    match written:
        case OpenStackFile():
            network: ExistingNetwork | MadeNetwork
            if isinstance(written.network, str):
                network = ExistingNetwork(written.network)
            else:
                cidr = _network(document, written.network.cidr, "network", "cidr")
                network = MadeNetwork(cidr, written.network.dns)
            return OpenStackOptions(
                written.cloud, written.image, written.flavor, network, written.placement, written.ready
            )
        case HostsFile():
            return HostsOptions(_hosts(document, written.hosts), written.identity)
        case NetnsFile():
            return NetnsOptions(_network(document, written.cidr, "cidr"))
        case LocalFile():
            return LocalOptions()


def _hosts(document: Document[BedFile], written: Sequence[str | HostSettings]) -> tuple[HostEntry, ...]:
    entries: list[HostEntry] = []
    for position, each in enumerate(written):
        if isinstance(each, str):
            host, user, port = _endpoint(document, each, "hosts", position)
            entries.append(HostEntry(host, user=user, port=port))
        else:
            entries.append(HostEntry(**given(each)))
        name = entries[-1].name
        if name and name in {other.name for other in entries[:-1]}:
            raise document.error(f"the host name {name!r} is there twice", "hosts", position)
    return tuple(entries)


def _reach(document: Document[BedFile], written: Literal["direct"] | Through) -> Reach:
    if not isinstance(written, Through):
        return Direct()
    if (written.bastion is UNSET) == (written.floating is UNSET):
        text = "hosts are reached through a bastion or by floating addresses: name one of the two"
        raise document.error(text, "reach")
    if written.bastion is UNSET:
        return Floating(str(written.floating))
    host, user, port = _endpoint(document, written.bastion, "reach", "bastion")
    return Bastion(host, user, port or SSH_PORT, written.host_key, written.identity)


def _endpoint(document: Document[BedFile], text: str, *place: Place) -> tuple[str, str, int]:
    """`user@host:port`, of which only the host must be there."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match["port"] or 0) > 65535:
        raise document.error(f"{text!r} is not user@host:port", *place)
    return match["host"].strip("[]"), match["user"] or "", int(match["port"] or 0)


def _network(document: Document[BedFile], text: str, *place: Place) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise document.error(f"{error}; a network is written like 10.77.0.0/22", *place) from None
