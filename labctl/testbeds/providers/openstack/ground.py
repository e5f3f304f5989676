"""What a lab's machines stand on: network, router, security group, server group.

Each step looks at what is there already, so that a second run completes what a first one began. Rules,
router interfaces and tags belong to their owner and go with it; they have no journal entry.
"""

from __future__ import annotations

import socket
from typing import Any

from msgspec import Struct

from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers.openstack import kinds
from labctl.testbeds.providers.openstack.choose import Choice
from labctl.testbeds.providers.openstack.cloud import Cloud, plainly
from labctl.testbeds.providers.openstack.inventory import Inventory, create
from labctl.testbeds.providers.openstack.kinds import Kind, Thing
from labctl.testbeds.providers.provider import ProviderError
from labctl.testbeds.testbed import Bastion, Floating, MadeNetwork, OpenStackOptions


class Ground(Struct, frozen=True):
    network_id: str
    security_group_id: str
    server_group_id: str = ""


class Rule(Struct, frozen=True):
    """What may come in; everything else may not."""

    protocol: str | None
    port: int | None
    source: str
    """A network, or empty: the lab's own machines."""

    @property
    def family(self) -> str:
        return "IPv6" if ":" in self.source else "IPv4"


def names(lab: Lab) -> dict[Kind, str]:
    """What the lab needs besides its machines, in the order of creation."""
    options = lab.testbed.options
    assert isinstance(options, OpenStackOptions)
    needed: dict[Kind, str] = {}
    if isinstance(options.network, MadeNetwork):
        needed |= {kinds.NETWORK: f"labctl-{lab.name}", kinds.SUBNET: f"labctl-{lab.name}"}
        if isinstance(lab.testbed.reach, Floating):
            needed[kinds.ROUTER] = f"labctl-{lab.name}"
    needed[kinds.SECURITY_GROUP] = f"labctl-{lab.name}"
    if options.placement == "spread":
        needed[kinds.SERVER_GROUP] = f"labctl-{lab.name}"
    return needed


def sources(cloud: Cloud, lab: Lab) -> tuple[str, ...]:
    """From where SSH is let in: what the file says, else from where we are."""
    if lab.testbed.ssh.allow_from:
        return lab.testbed.ssh.allow_from
    if isinstance(lab.testbed.reach, Bastion):
        bastion = lab.testbed.reach
        try:
            found = socket.getaddrinfo(bastion.host, bastion.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ProviderError(
                f"the bastion {bastion.host} has no address that is known here: {error.strerror}"
            ) from None
        return tuple(dict.fromkeys(_single(str(each[4][0])) for each in found))
    return (_single(cloud.own_address()),)


def _single(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def rules(lab: Lab, allowed: tuple[str, ...]) -> tuple[Rule, ...]:
    """SSH from where we are; brokers' ports, and all else, only between the lab's own machines."""
    return (*(Rule("tcp", lab.testbed.ssh.port, source) for source in allowed), Rule(None, None, ""))


def lay(cloud: Cloud, store: Store, lab: Lab, choice: Choice, inventory: Inventory) -> Ground:
    needed = names(lab)
    network_id = choice.network.id if choice.network else ""
    if kinds.NETWORK in needed:
        network_id = _network(cloud, store, lab, needed, inventory)
    group = _security_group(cloud, store, lab, needed[kinds.SECURITY_GROUP], inventory)
    if kinds.ROUTER in needed and choice.external:
        _router(cloud, store, lab, needed, inventory, choice.external.id)
    together = ""
    if kinds.SERVER_GROUP in needed:
        thing = inventory.of(kinds.SERVER_GROUP) or create(
            cloud,
            store,
            kinds.SERVER_GROUP,
            needed[kinds.SERVER_GROUP],
            lambda entry: cloud.compute.create_server_group(
                name=kinds.group_name(lab, entry.mark), policies=["soft-anti-affinity"]
            ),
        )
        together = thing.id
    return Ground(network_id, group, together)


def _network(cloud: Cloud, store: Store, lab: Lab, needed: dict[Kind, str], inventory: Inventory) -> str:
    options = lab.testbed.options
    assert isinstance(options, OpenStackOptions)
    assert isinstance(options.network, MadeNetwork)
    made = options.network
    network = inventory.of(kinds.NETWORK) or create(
        cloud,
        store,
        kinds.NETWORK,
        needed[kinds.NETWORK],
        lambda entry: cloud.network.create_network(
            name=needed[kinds.NETWORK], description=kinds.description(lab, entry.mark)
        ),
    )
    tag(cloud, lab, network)
    gateway = {} if kinds.ROUTER in needed else {"gateway_ip": None}
    subnet = inventory.of(kinds.SUBNET) or create(
        cloud,
        store,
        kinds.SUBNET,
        needed[kinds.SUBNET],
        lambda entry: cloud.network.create_subnet(
            name=needed[kinds.SUBNET],
            description=kinds.description(lab, entry.mark),
            network_id=network.id,
            ip_version=6 if ":" in made.cidr else 4,
            cidr=made.cidr,
            dns_nameservers=list(made.dns),
            **gateway,
        ),
    )
    tag(cloud, lab, subnet)
    return network.id


def _security_group(cloud: Cloud, store: Store, lab: Lab, name: str, inventory: Inventory) -> str:
    group = inventory.of(kinds.SECURITY_GROUP) or create(
        cloud,
        store,
        kinds.SECURITY_GROUP,
        name,
        lambda entry: cloud.network.create_security_group(
            name=name, description=kinds.description(lab, entry.mark)
        ),
    )
    tag(cloud, lab, group)
    present = {
        Rule(raw.get("protocol"), raw.get("port_range_min"), raw.get("remote_ip_prefix") or "")
        for raw in group.raw.security_group_rules or ()
        if raw.get("direction") == "ingress"
    }
    missing = [rule for rule in rules(lab, sources(cloud, lab)) if rule not in present]
    if missing:
        with plainly(cloud, f"write the rules of the security group {name}"):
            cloud.network.create_security_group_rules([_request(rule, group.id) for rule in missing])
    return group.id


def _request(rule: Rule, group_id: str) -> dict[str, Any]:
    request: dict[str, Any] = {
        "security_group_id": group_id,
        "direction": "ingress",
        "ethertype": rule.family,
    }
    if rule.protocol:
        request |= {"protocol": rule.protocol, "port_range_min": rule.port, "port_range_max": rule.port}
    return request | ({"remote_ip_prefix": rule.source} if rule.source else {"remote_group_id": group_id})


def _router(
    cloud: Cloud, store: Store, lab: Lab, needed: dict[Kind, str], inventory: Inventory, external_id: str
) -> None:
    name = needed[kinds.ROUTER]
    router = inventory.of(kinds.ROUTER) or create(
        cloud,
        store,
        kinds.ROUTER,
        name,
        lambda entry: cloud.network.create_router(
            name=name,
            description=kinds.description(lab, entry.mark),
            external_gateway_info={"network_id": external_id},
        ),
    )
    tag(cloud, lab, router)
    subnet = next(e.id for e in store.journal.may_exist() if e.kind == kinds.SUBNET.name)
    if subnet not in interfaces(cloud, router.id):
        with plainly(cloud, f"connect the router {name} to the lab's network"):
            cloud.network.add_interface_to_router(router.id, subnet_id=subnet)


def interfaces(cloud: Cloud, router_id: str) -> tuple[str, ...]:
    """The subnets that a router is connected to, apart from its gateway."""
    with plainly(cloud, "list the interfaces of the lab's router"):
        ports = list(cloud.network.ports(device_id=router_id))
    inner = [port for port in ports if port.device_owner != "network:router_gateway"]
    return tuple(fixed["subnet_id"] for port in inner for fixed in port.fixed_ips or ())


def tag(cloud: Cloud, lab: Lab, thing: Thing) -> None:
    """For people and for listings; the description says the same since the creation."""
    if lab.tag not in (thing.raw.tags or ()):
        with plainly(cloud, f"tag the {thing.kind} {thing.name}"):
            cloud.network.set_tags(thing.raw, [*(thing.raw.tags or ()), lab.tag])
