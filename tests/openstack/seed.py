"""What a cloud needs before anybody can use it: users, the catalogue, flavors, an image, a public network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openstack
import yaml

from tests.openstack.configs import ADMIN_PASSWORD, APIS, SERVICE_PASSWORD, SERVICE_USER, Places

PROJECT = "lab"
IMAGE = "debian-12"
PUBLIC = "public"
FLAVORS = {
    "tiny": (512, 1, 1),
    "paper": (4096, 2, 10),
    "paper-more-disk": (4096, 2, 20),
    "large": (16384, 8, 40),
    "half": (500_000, 1, 1),
    "absurd": (900_000, 1, 1),
}
"""Name to memory in MB, vCPUs and disk in GB. The hypervisor has 800 000 MB: room for one `half` and for no
`absurd`."""


def write_clouds(places: Places, path: Path) -> None:
    """clouds.yaml: a member of the project, another one, and the administrator."""
    path.write_text(
        yaml.safe_dump(
            {
                "clouds": {
                    "member": _cloud(places, "member", "member-password", PROJECT),
                    "stranger": _cloud(places, "stranger", "stranger-password", PROJECT),
                    "admin": _cloud(places, "admin", ADMIN_PASSWORD, "admin"),
                    "wrong-password": _cloud(places, "member", "guessed", PROJECT),
                }
            }
        )
    )


def _cloud(places: Places, user: str, password: str, project: str) -> dict[str, object]:
    auth = {
        "auth_url": places.url("identity"),
        "username": user,
        "password": password,
        "project_name": project,
        "user_domain_id": "default",
        "project_domain_id": "default",
    }
    return {"auth": auth, "region_name": "RegionOne"}


def users_and_catalogue(places: Places, admin: openstack.connection.Connection) -> None:
    identity: Any = admin.identity
    roles = {role.name: role for role in identity.roles()}
    service = identity.create_project(name="service", domain_id="default")
    user = identity.create_user(name=SERVICE_USER, password=SERVICE_PASSWORD, domain_id="default")
    for role in ("admin", "service"):
        identity.assign_project_role_to_user(
            service, user, roles.get(role) or identity.create_role(name=role)
        )
    project = identity.create_project(name=PROJECT, domain_id="default")
    for name in ("member", "stranger"):
        member = identity.create_user(name=name, password=f"{name}-password", domain_id="default")
        identity.assign_project_role_to_user(project, member, roles["member"])
    for kind in APIS:
        if kind != "identity":
            entry = identity.create_service(name=kind, type=kind)
            identity.create_endpoint(
                service_id=entry.id, interface="public", url=places.url(kind), region_id="RegionOne"
            )


def blank_image(admin: openstack.connection.Connection) -> None:
    upload(admin, IMAGE, "raw", bytes(1 << 16))


def upload(
    admin: openstack.connection.Connection,
    name: str,
    disk_format: str,
    content: bytes,
    limit_s: int = 60,
    **properties: Any,
) -> str:
    """An image for everybody; returns its id."""
    image: Any = admin.image
    container = disk_format if disk_format in {"aki", "ari"} else "bare"
    made = image.create_image(
        name,
        data=content,
        disk_format=disk_format,
        container_format=container,
        visibility="public",
        wait=True,
        timeout=limit_s,
        **properties,
    )
    return str(made.id)


def flavors_and_public_network(admin: openstack.connection.Connection) -> None:
    compute: Any = admin.compute
    for name, (memory_mb, vcpus, disk_gb) in FLAVORS.items():
        compute.create_flavor(name=name, ram=memory_mb, vcpus=vcpus, disk=disk_gb)
    network: Any = admin.network
    public = network.create_network(
        name=PUBLIC,
        is_router_external=True,
        provider_network_type="flat",
        provider_physical_network="outside",
    )
    network.create_subnet(network_id=public.id, ip_version=4, cidr="198.51.100.0/24", is_dhcp_enabled=False)


def raise_quota(admin: openstack.connection.Connection) -> None:
    """Beyond what the tests need, so that only those about quota meet it."""
    admin.set_compute_quotas(
        PROJECT, instances=100, cores=400, ram=2_000_000, server_groups=50, server_group_members=100
    )
    admin.set_network_quotas(PROJECT, security_groups=100, networks=100, subnets=100, ports=500)
