"""Image, flavor and networks as the testbed file names them; what is missing or ambiguous is said with
the candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from labctl.testbeds.providers.openstack.cloud import Cloud, plainly
from labctl.testbeds.providers.provider import ProviderError
from labctl.testbeds.testbed import ExistingNetwork, FlavorSize, Floating, OpenStackOptions, Testbed
from labctl.yamlfaults import nearest

CANDIDATES_MAX = 12


class Named(Struct, frozen=True):
    id: str
    name: str


class Image(Named, frozen=True):
    min_disk_gb: int = 0
    min_memory_mb: int = 0


class Flavor(Named, frozen=True):
    vcpus: int
    memory_mb: int
    disk_gb: int

    def __str__(self) -> str:
        return f"{self.name} ({self.vcpus} vCPU, {self.memory_mb / 1024:g} GB, disk {self.disk_gb} GB)"


Thing = TypeVar("Thing", bound=Named)


class Choice(Struct, frozen=True):
    image: Image
    flavor: Flavor
    network: Named | None
    """None: one is made."""
    external: Named | None
    """Where floating addresses come from."""


def choose(cloud: Cloud, testbed: Testbed) -> Choice:
    options = testbed.options
    assert isinstance(options, OpenStackOptions)
    image = find_image(cloud, options.image)
    network = (
        find_network(cloud, options.network.name) if isinstance(options.network, ExistingNetwork) else None
    )
    external = find_external(cloud, testbed.reach.network) if isinstance(testbed.reach, Floating) else None
    return Choice(image, find_flavor(cloud, options.flavor, image), network, external)


def find_image(cloud: Cloud, wanted: str) -> Image:
    with plainly(cloud, "list images"):
        images = [
            Image(raw.id, raw.name or "", int(raw.min_disk or 0), int(raw.min_ram or 0))
            for raw in cloud.image.images()
            if raw.status == "active"
        ]
    return pick("image", wanted, images)


def find_flavor(cloud: Cloud, wanted: str | FlavorSize, image: Image) -> Flavor:
    with plainly(cloud, "list flavors"):
        flavors = [
            Flavor(raw.id, raw.name, int(raw.vcpus), int(raw.ram), int(raw.disk or 0))
            for raw in cloud.compute.flavors()
        ]
    return pick_flavor(wanted, image, flavors)


def pick_flavor(wanted: str | FlavorSize, image: Image, flavors: Sequence[Flavor]) -> Flavor:
    """By name or id; or the smallest that is large enough, memory counting most."""
    if isinstance(wanted, str):
        for flavor in flavors:
            if wanted in (flavor.id, flavor.name):
                return _fitting(flavor, image)
        hint = _hint(wanted, (flavor.name for flavor in flavors))
        raise ProviderError(f"there is no flavor {wanted!r}; {hint}")
    fitting = [
        flavor
        for flavor in flavors
        if flavor.vcpus >= wanted.vcpus
        and flavor.memory_mb >= max(wanted.memory_gb * 1024, image.min_memory_mb)
        and (flavor.disk_gb == 0 or flavor.disk_gb >= max(wanted.disk_gb, image.min_disk_gb))
    ]
    if not fitting:
        candidates = "; ".join(map(str, sorted(flavors, key=_size, reverse=True)[:3])) or "none"
        raise ProviderError(
            f"no flavor has {wanted.vcpus} vCPU, {wanted.memory_gb:g} GB of memory and "
            f"{max(wanted.disk_gb, image.min_disk_gb):g} GB of disk; the largest are {candidates}"
        )
    return min(fitting, key=_size)


def _size(flavor: Flavor) -> tuple[int, int, int, str]:
    return flavor.memory_mb, flavor.vcpus, flavor.disk_gb, flavor.name


def _fitting(flavor: Flavor, image: Image) -> Flavor:
    too_small = 0 < flavor.disk_gb < image.min_disk_gb or flavor.memory_mb < image.min_memory_mb
    if too_small:
        raise ProviderError(
            f"the image {image.name!r} needs {image.min_disk_gb} GB of disk and {image.min_memory_mb} MB of "
            f"memory, which the flavor {flavor} does not have"
        )
    return flavor


def find_network(cloud: Cloud, wanted: str) -> Named:
    with plainly(cloud, "list networks"):
        networks = [Named(raw.id, raw.name or "") for raw in cloud.network.networks()]
    return pick("network", wanted, networks)


def find_external(cloud: Cloud, wanted: str) -> Named:
    with plainly(cloud, "list external networks"):
        networks = [Named(raw.id, raw.name or "") for raw in cloud.network.networks(is_router_external=True)]
    return pick("external network", wanted, networks)


def pick(what: str, wanted: str, things: Sequence[Thing]) -> Thing:
    """By id, or by a name that only one has."""
    found = [thing for thing in things if wanted in (thing.id, thing.name)]
    if len(found) == 1:
        return found[0]
    if found:
        several = ", ".join(thing.id for thing in found)
        raise ProviderError(f"the {what} {wanted!r} is ambiguous: name one by its id: {several}")
    raise ProviderError(f"there is no {what} {wanted!r}; {_hint(wanted, (thing.name for thing in things))}")


def _hint(wanted: str, names: Iterable[str]) -> str:
    known = sorted({name for name in names if name})
    if not known:
        return "the cloud shows none at all"
    if len(known) == 1:
        return f"there is {known[0]}"
    meant = nearest(wanted, known)
    if len(known) <= CANDIDATES_MAX:
        return f"{meant} (there are {', '.join(known)})"
    return meant if "did you" in meant else f"there are {len(known)}"
