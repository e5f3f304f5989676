"""A testbed: where machines come from, and how they are reached, in frozen types.

What every provider understands are fields of `Testbed`; what only one provider understands is in its own
options type. `labctl.testbeds.testbed_file` reads them from a file. Nothing here talks to a cloud or to a host.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from labctl.exits import UsageProblem
from labctl.testbeds.timeouts import Timeouts

Kind = Literal["local", "netns", "hosts", "openstack"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Placement = Literal["spread", "any"]
Readiness = Literal["ssh", "active"]
Role = Literal["broker", "client"]

SSH_PORT = 22
LIFETIME_S = 8 * 3600.0
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)")
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class TestbedError(UsageProblem):
    """A testbed file, or an option in its place, says what cannot be."""

    __test__ = False  # pytest would take the name for that of a test


_TOO_SMALL = {"problem": "a machine has at least one vCPU and some memory"}
Port = Annotated[int, Meta(ge=1, le=65535, extra={"problem": "{found} is not a port: 1 to 65535"})]
Cidr = Annotated[str, Meta(description="A network, as 10.77.0.0/22.")]


class FlavorSize(Struct, frozen=True, forbid_unknown_fields=True):
    """Any flavor with at least this; the smallest is taken. The defaults are the paper's machines."""

    vcpus: Annotated[int, Meta(ge=1, extra=_TOO_SMALL)] = 2
    """Virtual processors."""
    memory_gb: Annotated[float, Meta(gt=0, extra=_TOO_SMALL)] = 4.0
    """Main memory."""
    disk_gb: float = 0.0
    """Of its root; 0: whatever the image needs."""


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


class SshOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How hosts are logged in to."""

    port: Port = SSH_PORT
    """Of their sshd."""
    allow_from: tuple[Cidr, ...] = ()
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
    match = DURATION.fullmatch(text.strip())
    return float(match[1]) * _UNIT_S[match[2]] if match else None
