"""`labctl doctor --testbed` for a cloud: credentials, services, image, flavor, networks, quota.

Each check says what was found and what to do; one that fails does not keep the others from being made.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from labctl.checkup import Check
from labctl.exits import LabError
from labctl.testbeds.labs import lab as labs
from labctl.testbeds.providers.openstack import choose, ground, plan
from labctl.testbeds.providers.openstack.cloud import COMPUTE_MICROVERSION, Cloud, open_cloud, plainly
from labctl.testbeds.providers.openstack.inventory import Inventory
from labctl.testbeds.providers.provider import ProviderError
from labctl.testbeds.testbed import Testbed


def examine(testbed: Testbed, brokers: int, clients: int) -> list[Check]:
    try:
        cloud = open_cloud(testbed)
    except ProviderError as error:
        return [Check("credentials", False, str(error), "check clouds.yaml and the name of the cloud")]
    try:
        return _with_cloud(cloud, testbed, brokers, clients)
    finally:
        cloud.close()


def _with_cloud(cloud: Cloud, testbed: Testbed, brokers: int, clients: int) -> list[Check]:
    lab = labs.sized(labs.new("doctor", testbed, time.time()), brokers, clients)
    checks = [Check("credentials", True, f"{cloud.user} may log in to the cloud {cloud.name}")]
    checks += [_service(cloud, name) for name in ("compute", "network", "image")]
    checks.append(_microversion(cloud))
    found: list[choose.Choice] = []

    def chosen() -> str:
        found.append(choose.choose(cloud, testbed))
        return f"image {found[0].image.name}, flavor {found[0].flavor}"

    checks.append(_checked("image, flavor, networks", chosen, "name others in the testbed file"))
    if found:
        checks.append(_quota(cloud, lab, found[0]))
    checks.append(
        _checked(
            "SSH from here",
            lambda: f"the security group will let in {', '.join(ground.sources(cloud, lab))}",
            "write ssh: {allow_from: [...]} into the testbed file",
        )
    )
    checks.append(
        Check("TLS between brokers", False, plan.NO_TLS, "keep others off the lab's network", False)
    )
    return checks


def _checked(name: str, look: Callable[[], str], advice: str) -> Check:
    try:
        return Check(name, True, look())
    except (LabError, OSError) as error:
        return Check(name, False, str(error), advice)


def _service(cloud: Cloud, name: str) -> Check:
    def look() -> str:
        with plainly(cloud, f"ask the {name} service"):
            proxy = getattr(cloud, name)
            where = proxy.get_endpoint()
            if not where:
                raise ProviderError(f"the catalogue has no {name} service")
            proxy.get_endpoint_data()
        return str(where)

    return _checked(f"{name} service", look, "ask whoever runs the cloud")


def _microversion(cloud: Cloud) -> Check:
    def look() -> str:
        with plainly(cloud, "ask which versions the compute service has"):
            newest = cloud.compute.get_endpoint_data().max_microversion
        wanted = tuple(int(part) for part in COMPUTE_MICROVERSION.split("."))
        shown = ".".join(map(str, newest or ("unknown",)))
        if not newest or tuple(newest) < wanted:
            raise ProviderError(f"{shown}, and {COMPUTE_MICROVERSION} is needed to tag what is created")
        return f"up to {shown}, {COMPUTE_MICROVERSION} needed"

    return _checked("compute API", look, "the cloud must run OpenStack Pike or later")


def _quota(cloud: Cloud, lab: labs.Lab, choice: choose.Choice) -> Check:
    def look() -> str:
        drawn = plan.draw(cloud, lab, choice, Inventory(), time.time())
        if drawn.shortages:
            raise ProviderError("; ".join(drawn.shortages))
        return ", ".join(f"{name} {quota.need} of {_left(quota.left)}" for name, quota in drawn.quota.items())

    return _checked("quota", look, "delete something, ask for more, or make the lab smaller")


def _left(left: int | None) -> str:
    return "any number" if left is None else str(left)
