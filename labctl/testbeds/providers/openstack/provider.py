"""An OpenStack cloud as a provider of hosts."""

from __future__ import annotations

import time

from msgspec import structs

from labctl.checkup import Check
from labctl.testbeds.labs.lab import Host, Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers.openstack import examine, ground, kinds, plan, release
from labctl.testbeds.providers.openstack.choose import choose
from labctl.testbeds.providers.openstack.cloud import Cloud, open_cloud
from labctl.testbeds.providers.openstack.inventory import settle, take
from labctl.testbeds.providers.openstack.kinds import Thing
from labctl.testbeds.providers.openstack.machines import Ledger, fault, raise_all
from labctl.testbeds.providers.provider import AcquirePlan, ProviderError, Released, TellOfHost
from labctl.testbeds.testbed import Testbed


class OpenStack:
    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._opened: Cloud | None = None

    @property
    def _cloud(self) -> Cloud:
        """Logged in when first needed: `doctor` wants to report that it fails."""
        if self._opened is None:
            self._opened = open_cloud(self._testbed)
        return self._opened

    def plan(self, store: Store, lab: Lab) -> AcquirePlan:
        inventory = take(self._cloud, store, lab)
        return plan.draw(self._cloud, lab, choose(self._cloud, lab.testbed), inventory, time.time())

    def acquire(self, store: Store, lab: Lab, report: TellOfHost) -> Lab:
        cloud = self._cloud
        choice = choose(cloud, lab.testbed)
        inventory = settle(cloud, store, lab)
        if inventory.doubtful:
            raise ProviderError(
                "the lab cannot be completed: "
                + "; ".join(f"{thing.kind} {thing.id}: {thing.why}" for thing in inventory.doubtful)
            )
        base = ground.lay(cloud, store, lab, choice, inventory)
        ledger = Ledger(store, lab, report)
        raise_all(cloud, ledger, store, choice, base, inventory)
        return ledger.lab

    def inspect(self, store: Store, lab: Lab) -> Lab:
        things = {thing.id: thing for thing in kinds.everything(self._cloud, kinds.SERVER, lab)}
        return lab.with_hosts(_seen(host, things.get(host.provider_id)) for host in lab.hosts)

    def release(self, store: Store, lab: Lab, report: TellOfHost) -> Released:
        return release.release_all(self._cloud, store, lab, report)

    def examine(self, brokers: int, clients: int) -> list[Check]:
        return examine.examine(self._testbed, brokers, clients)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


def _seen(host: Host, thing: Thing | None) -> Host:
    """The host as the cloud shows it now. That it runs does not say that it answers."""
    if not host.provider_id:
        return host
    if thing is None:
        return structs.replace(host, state="gone", detail="the server is not there any more")
    status = thing.raw.status
    if status == "ERROR":
        return structs.replace(host, state="failed", detail=fault(thing))
    if status == "SHUTOFF":
        return structs.replace(host, state="stopped", detail="the server is shut off")
    if status == "ACTIVE":
        known = host.state in {"stopped", "gone"}
        return structs.replace(host, state="ready", detail="") if known else host
    return structs.replace(host, detail=f"the server is in {status}")


def connect(testbed: Testbed) -> OpenStack:
    return OpenStack(testbed)
