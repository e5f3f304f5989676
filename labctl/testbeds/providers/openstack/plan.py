"""What an acquire would create, and whether the project's quota has room for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.providers.openstack import ground, kinds
from labctl.testbeds.providers.openstack.choose import Choice
from labctl.testbeds.providers.openstack.cloud import Cloud, plainly
from labctl.testbeds.providers.openstack.inventory import Inventory
from labctl.testbeds.providers.openstack.machines import server_name
from labctl.testbeds.providers.provider import AcquirePlan, Creation, ProviderQuota
from labctl.testbeds.testbed import Floating

NO_TLS = (
    "brokers do not use TLS yet: they listen only on the lab's own network, and their ports are open only "
    "between its machines"
)


def draw(cloud: Cloud, lab: Lab, choice: Choice, inventory: Inventory, now_s: float) -> AcquirePlan:
    missing = [host for host in lab.hosts if _is_missing(inventory, host)]
    wanted = ground.names(lab)
    new_ground = [kind for kind in wanted if inventory.of(kind) is None]
    floating = [
        host
        for host in lab.hosts
        if isinstance(lab.testbed.reach, Floating) and inventory.of(kinds.FLOATING_IP, host.name) is None
    ]
    create = [Creation(kind.name, wanted[kind]) for kind in new_ground]
    create += [Creation("server", server_name(lab, host)) for host in missing]
    create += [Creation("floating-ip", server_name(lab, host)) for host in floating]
    need = {
        "instances": len(missing),
        "cores": len(missing) * choice.flavor.vcpus,
        "memory_mb": len(missing) * choice.flavor.memory_mb,
        "server_groups": new_ground.count(kinds.SERVER_GROUP),
        "server_group_members": len(lab.hosts) if kinds.SERVER_GROUP in wanted else 0,
        "networks": new_ground.count(kinds.NETWORK),
        "subnets": new_ground.count(kinds.SUBNET),
        "routers": new_ground.count(kinds.ROUTER),
        "security_groups": new_ground.count(kinds.SECURITY_GROUP),
        "security_group_rules": 4 * new_ground.count(kinds.SECURITY_GROUP),
        "ports": len(missing),
        "floating_ips": len(floating),
    }
    left = quota_left(cloud)
    quota = {name: ProviderQuota(count, left.get(name)) for name, count in need.items() if count}
    hours = max(0.0, lab.expires_at_s - now_s) / 3600
    return AcquirePlan(tuple(create), quota, round(len(missing) * hours, 2), _notes(cloud, lab, choice))


def _is_missing(inventory: Inventory, host: Host) -> bool:
    """A machine in ERROR is replaced."""
    thing = inventory.of(kinds.SERVER, host.name)
    return thing is None or thing.raw.status == "ERROR"


def _notes(cloud: Cloud, lab: Lab, choice: Choice) -> tuple[str, ...]:
    allowed = ", ".join(ground.sources(cloud, lab))
    return (
        f"each machine is a {choice.flavor} with the image {choice.image.name}",
        f"SSH is open for {allowed}",
        NO_TLS,
    )


def quota_left(cloud: Cloud) -> dict[str, int | None]:
    """By our names for things; None where there is no limit. What the cloud does not tell is not in it."""
    with plainly(cloud, "read the project's compute limits"):
        limits = cloud.compute.get_limits().absolute
    with plainly(cloud, "read the project's network quota"):
        network = cloud.network.get_quota(cloud.project, details=True)
    return {
        "instances": _left(limits.instances, limits.instances_used),
        "cores": _left(limits.total_cores, limits.total_cores_used),
        "memory_mb": _left(limits.total_ram, limits.total_ram_used),
        "server_groups": _left(limits.server_groups, limits.server_groups_used),
        # Of one group, which is the lab's own and has only the lab's machines.
        "server_group_members": _left(limits.server_group_members, 0),
        **{name: _detail(getattr(network, name)) for name in _NETWORK_QUOTA},
    }


_NETWORK_QUOTA = (
    "networks",
    "subnets",
    "routers",
    "security_groups",
    "security_group_rules",
    "ports",
    "floating_ips",
)


def _left(limit: Any, used: Any) -> int | None:
    return None if limit is None or limit < 0 else max(0, int(limit) - int(used or 0))


def _detail(said: Any) -> int | None:
    """Limit, used and reserved; a cloud that gives no details gives the limit alone."""
    if isinstance(said, Mapping):
        return _left(said["limit"], said["used"] + said["reserved"])
    return None
