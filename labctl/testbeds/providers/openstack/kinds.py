"""The kinds of things that a lab has in a cloud: how each is marked, found, and deleted.

Everything carries the lab's tag and the mark of its journal entry. Nova's servers take both in the
request that creates them. Neutron's things take the mark as their description then, and the tag in a
second request. A server group has nothing but its name, which holds both.

What is ours is decided in `ours`, and only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from labctl.testbeds.labs.journal import LabEntry
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.providers.openstack.cloud import Cloud, patiently, plainly

MARK_KEY = "labctl-mark"
LAB_KEY = "labctl-lab"


class Thing(Struct, frozen=True):
    """Something in the cloud, reduced to what tells whose it is."""

    kind: str
    id: str
    name: str
    tags: frozenset[str]
    mark: str
    raw: Any = None


class Kind(Struct, frozen=True):
    name: str
    listing: Callable[[Cloud, Lab], Iterable[Any]]
    """At least all that the lab has of this kind."""
    get: Callable[[Cloud, str], Any]
    """None when it is not there."""
    delete: Callable[[Cloud, str], Any]
    read: Callable[[Any], Thing]


def description(lab: Lab, mark: str) -> str:
    return f"{lab.tag} {mark}"


def group_name(lab: Lab, mark: str) -> str:
    return f"{lab.tag}-{mark}"


def metadata(lab: Lab, mark: str) -> dict[str, str]:
    return {LAB_KEY: lab.id, MARK_KEY: mark}


def ours(thing: Thing, entry: LabEntry, lab: Lab) -> bool:
    """By tag and by record: it says that it is the lab's, and the journal says so, too."""
    recorded = entry.kind == thing.kind and (not entry.id or entry.id == thing.id)
    return recorded and lab.tag in thing.tags and thing.mark == entry.mark


def _from_network(kind: str) -> Callable[[Any], Thing]:
    def read(raw: Any) -> Thing:
        said, _, mark = str(raw.description or "").partition(" ")
        return Thing(kind, raw.id, raw.name or "", frozenset({*(raw.tags or ()), said}), mark, raw)

    return read


def _read_floating(raw: Any) -> Thing:
    said, _, mark = str(raw.description or "").partition(" ")
    return Thing(
        "floating-ip", raw.id, raw.floating_ip_address, frozenset({*(raw.tags or ()), said}), mark, raw
    )


def _read_server(raw: Any) -> Thing:
    said = raw.metadata or {}
    tags = {*(raw.tags or ()), f"labctl-{said.get(LAB_KEY, '')}"}
    return Thing("server", raw.id, raw.name, frozenset(tags), said.get(MARK_KEY, ""), raw)


def _read_group(raw: Any) -> Thing:
    tag, _, mark = raw.name.rpartition("-")
    return Thing("server-group", raw.id, raw.name, frozenset({tag}), mark, raw)


def _network_kind(kind: str, many: str, one: str) -> Kind:
    return Kind(
        name=kind,
        listing=lambda cloud, _: getattr(cloud.network, many)(project_id=cloud.project),
        get=lambda cloud, thing: getattr(cloud.network, f"get_{one}")(thing),
        delete=lambda cloud, thing: getattr(cloud.network, f"delete_{one}")(thing, ignore_missing=True),
        read=_read_floating if kind == "floating-ip" else _from_network(kind),
    )


SERVER = Kind(
    name="server",
    listing=lambda cloud, lab: cloud.compute.servers(details=True, tags=lab.tag),
    get=lambda cloud, thing: cloud.compute.get_server(thing),
    delete=lambda cloud, thing: cloud.compute.delete_server(thing, ignore_missing=True),
    read=_read_server,
)
SERVER_GROUP = Kind(
    name="server-group",
    listing=lambda cloud, _: cloud.compute.server_groups(),
    get=lambda cloud, thing: cloud.compute.get_server_group(thing),
    delete=lambda cloud, thing: cloud.compute.delete_server_group(thing, ignore_missing=True),
    read=_read_group,
)
FLOATING_IP = _network_kind("floating-ip", "ips", "ip")
ROUTER = _network_kind("router", "routers", "router")
SUBNET = _network_kind("subnet", "subnets", "subnet")
NETWORK = _network_kind("network", "networks", "network")
SECURITY_GROUP = _network_kind("security-group", "security_groups", "security_group")

IN_ORDER_OF_DELETION = (
    FLOATING_IP,
    SERVER,
    SERVER_GROUP,
    SECURITY_GROUP,
    ROUTER,
    SUBNET,
    NETWORK,
)
"""What uses something stands before it."""
BY_NAME = {kind.name: kind for kind in IN_ORDER_OF_DELETION}


def look(cloud: Cloud, kind: Kind, identity: str) -> Thing | None:
    return patiently(lambda: _look(cloud, kind, identity), cloud.timeouts)


def _look(cloud: Cloud, kind: Kind, identity: str) -> Thing | None:
    from openstack import exceptions

    with plainly(cloud, f"look at the {kind.name} {identity}"):
        try:
            raw = kind.get(cloud, identity)
        except exceptions.NotFoundException:
            return None
    thing = kind.read(raw)
    # Nova may still answer for a server that it has deleted.
    return None if kind is SERVER and raw.status in {"DELETED", "SOFT_DELETED"} else thing


def everything(cloud: Cloud, kind: Kind, lab: Lab) -> list[Thing]:
    """What says of itself that it is this lab's."""
    return patiently(lambda: _everything(cloud, kind, lab), cloud.timeouts)


def _everything(cloud: Cloud, kind: Kind, lab: Lab) -> list[Thing]:
    with plainly(cloud, f"list the {kind.name}s of the project"):
        things = [kind.read(raw) for raw in kind.listing(cloud, lab)]
    return [thing for thing in things if lab.tag in thing.tags]
