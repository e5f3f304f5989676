"""The machines of a lab: asked for in parallel, watched in one listing, made ready in parallel.

A host that cannot be had is `failed`, with the reason, and does not keep the others from coming up.
"""

from __future__ import annotations

import base64
import operator
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import structs

from labctl.retry import look_until
from labctl.testbeds.labs.journal import LabEntry
from labctl.testbeds.labs.lab import Host, HostState, Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers.openstack import kinds, release
from labctl.testbeds.providers.openstack.choose import Choice
from labctl.testbeds.providers.openstack.cloud import Cloud, plainly
from labctl.testbeds.providers.openstack.ground import Ground, tag
from labctl.testbeds.providers.openstack.inventory import Inventory, create
from labctl.testbeds.providers.openstack.kinds import Thing
from labctl.testbeds.providers.openstack.userdata import user_data
from labctl.testbeds.providers.provider import ProviderError, TellOfHost
from labctl.testbeds.ssh import reach
from labctl.testbeds.testbed import OpenStackOptions

REQUESTS_AT_ONCE = 8
CONSOLE_LINES = 8


class Ledger:
    """The lab's state while threads work on its hosts: one change at a time, each written down."""

    def __init__(self, store: Store, lab: Lab, report: TellOfHost) -> None:
        self._store = store
        self._report = report
        self._guard = threading.Lock()
        self.lab = lab

    def change(self, name: str, state: HostState, detail: str = "", **fields: Any) -> None:
        with self._guard:
            before = self.lab.host(name)
            after = structs.replace(before, state=state, detail=detail, **fields)
            if after == before:
                return
            self.lab = self.lab.with_host(after)
            self._store.write(self.lab)
        self._report(name, detail or state)

    def hosts(self, *states: HostState) -> list[Host]:
        return [host for host in self.lab.hosts if host.state in states]


def raise_all(
    cloud: Cloud, ledger: Ledger, store: Store, choice: Choice, ground: Ground, inventory: Inventory
) -> None:
    """Every host of the ledger's lab ends `ready` or `failed`."""

    def ask(host: Host) -> None:
        thing = inventory.of(kinds.SERVER, host.name)
        _ask_for(cloud, ledger, store, choice, ground, host, thing)

    _each(ledger, ledger.lab.hosts, ask)
    _watch(cloud, ledger)
    if choice.external:
        external = choice.external.id
        _each(ledger, _running(ledger), lambda host: _float(cloud, ledger, store, inventory, host, external))
    options = ledger.lab.testbed.options
    assert isinstance(options, OpenStackOptions)
    running = _running(ledger)
    if options.ready == "ssh":
        _wait_for_sshd(cloud, ledger, running)
    else:
        for host in running:
            ledger.change(host.name, "ready")


def _running(ledger: Ledger) -> list[Host]:
    return [host for host in ledger.hosts("building") if host.inside]


def _each(ledger: Ledger, hosts: Iterable[Host], work: Callable[[Host], None]) -> None:
    """In parallel; what fails for one host is that host's failure."""

    def guarded(host: Host) -> None:
        try:
            work(host)
        except ProviderError as error:
            ledger.change(host.name, "failed", str(error))

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        list(pool.map(guarded, hosts))


def _ask_for(
    cloud: Cloud,
    ledger: Ledger,
    store: Store,
    choice: Choice,
    ground: Ground,
    host: Host,
    thing: Thing | None,
) -> None:
    """Take what is there, wake it up, or replace it."""
    lab = ledger.lab
    if thing is not None and thing.raw.status == "ERROR":
        ledger.change(host.name, "building", "replacing a machine in ERROR")
        release.delete_server(cloud, store, lab, thing)
        thing = None
    if thing is not None and thing.raw.status == "SHUTOFF":
        ledger.change(host.name, "building", "starting")
        with plainly(cloud, f"start the server {thing.name}"):
            cloud.compute.start_server(thing.id)
    elif thing is None:
        ledger.change(host.name, "building", "asking for a machine")
        thing = create(
            cloud,
            store,
            kinds.SERVER,
            server_name(lab, host),
            lambda entry: cloud.compute.create_server(
                **request(lab, host, entry, choice, ground, _first_boot(store, lab, host))
            ),
            host.name,
        )
    # Where it is, is asked anew each time: it may have been replaced, or started again.
    ledger.change(host.name, "building", "building", provider_id=thing.id, address="", inside="")


def server_name(lab: Lab, host: Host) -> str:
    return f"labctl-{lab.name}-{host.name}"


def request(
    lab: Lab, host: Host, entry: LabEntry, choice: Choice, ground: Ground, first_boot: str
) -> dict[str, Any]:
    """A server's creation, with tag and mark in the same request. Its port is Nova's, and goes with it."""
    body: dict[str, Any] = {
        "name": server_name(lab, host),
        "image_id": choice.image.id,
        "flavor_id": choice.flavor.id,
        "networks": [{"uuid": ground.network_id}],
        "security_groups": [{"name": ground.security_group_id}],
        "metadata": kinds.metadata(lab, entry.mark),
        "tags": [lab.tag, "labctl"],
        "config_drive": True,
        "user_data": base64.b64encode(first_boot.encode()).decode(),
    }
    if ground.server_group_id:
        body["scheduler_hints"] = {"group": ground.server_group_id}
    return body


def _first_boot(store: Store, lab: Lab, host: Host) -> str:
    private = store.host_key_file(host.name).read_text(encoding="ascii")
    return user_data(host, f"{lab.name}-{host.name}", store.public_key(), private, lab.expires_at_s)


def _watch(cloud: Cloud, ledger: Ledger) -> None:
    """One listing for all, until every machine runs, has failed, or is late."""
    timeouts = ledger.lab.testbed.timeouts

    def still_waiting() -> list[Host]:
        things = {thing.id: thing for thing in kinds.everything(cloud, kinds.SERVER, ledger.lab)}
        for host in ledger.hosts("building"):
            # The listing may be a moment behind the creation.
            thing = things.get(host.provider_id) or kinds.look(cloud, kinds.SERVER, host.provider_id)
            _note_state(ledger, host, thing)
        return [host for host in ledger.hosts("building") if not host.inside]

    for host in look_until(operator.not_, still_waiting, timeouts.build_s, timeouts.poll_s):
        ledger.change(host.name, "failed", f"not running {timeouts.build_s:g} s after it was asked for")


def _note_state(ledger: Ledger, host: Host, thing: Thing | None) -> None:
    if thing is None:
        ledger.change(host.name, "failed", "somebody has deleted the server while it was built")
    elif thing.raw.status == "ERROR":
        ledger.change(host.name, "failed", fault(thing))
    elif thing.raw.status == "ACTIVE" and not thing.raw.task_state and (inside := fixed_address(thing.raw)):
        ledger.change(host.name, "building", "running", inside=inside, address=inside)


def fault(thing: Thing) -> str:
    """Nova's own words about a machine in ERROR."""
    said = (thing.raw.fault or {}).get("message", "no reason given")
    hint = ""
    if "No valid host" in said:
        hint = "; no hypervisor has room for the flavor, take a smaller one or try later"
    return f"the server is in ERROR: {said.rstrip('. ')}{hint}"


def fixed_address(raw: Any) -> str:
    """Its address on the lab's network, IPv4 if it has one; empty while it has none."""
    found = [
        (entry.get("version", 4), entry["addr"])
        for entries in (raw.addresses or {}).values()
        for entry in entries
        if entry.get("OS-EXT-IPS:type", "fixed") == "fixed"
    ]
    return str(min(found)[1]) if found else ""


def _float(
    cloud: Cloud, ledger: Ledger, store: Store, inventory: Inventory, host: Host, external_id: str
) -> None:
    """An address of the external network, unless it has one already."""
    lab = ledger.lab
    with plainly(cloud, f"find the port of {host.name}"):
        ports = list(cloud.network.ports(device_id=host.provider_id))
    if not ports:
        raise ProviderError(f"{host.name} has no port to which a floating address could point")
    port = ports[0].id
    thing = inventory.of(kinds.FLOATING_IP, host.name)
    if thing is None:
        thing = create(
            cloud,
            store,
            kinds.FLOATING_IP,
            server_name(lab, host),
            lambda entry: cloud.network.create_ip(
                floating_network_id=external_id,
                port_id=port,
                description=kinds.description(lab, entry.mark),
            ),
            host.name,
        )
    elif thing.raw.port_id != port:
        with plainly(cloud, f"point the floating address {thing.name} to {host.name}"):
            cloud.network.update_ip(thing.id, port_id=port)
    tag(cloud, lab, thing)
    ledger.change(host.name, "building", "has a floating address", address=thing.raw.floating_ip_address)


def _wait_for_sshd(cloud: Cloud, ledger: Ledger, hosts: list[Host]) -> None:
    for host in hosts:
        ledger.change(host.name, "building", "waiting for sshd")
    testbed = ledger.lab.testbed
    silent = reach.wait_for_sshd(hosts, testbed, lambda host: ledger.change(host.name, "ready"))

    def give_up(host: Host) -> None:
        raise ProviderError(
            f"SSH never came up at {host.address} port {host.port} within {testbed.timeouts.boot_s:g} s "
            f"({silent[host.name]}); {console(cloud, host)}"
        )

    _each(ledger, [host for host in hosts if host.name in silent], give_up)


def console(cloud: Cloud, host: Host) -> str:
    """The last lines that the machine wrote, which usually say why it does not answer."""
    try:
        with plainly(cloud, f"read the console of {host.name}"):
            said = cloud.compute.get_server_console_output(host.provider_id, length=CONSOLE_LINES)
    except ProviderError as error:
        return f"its console cannot be read: {error}"
    lines = [line.strip() for line in str(said.get("output") or "").splitlines() if line.strip()]
    return "its console says last: " + " | ".join(lines[-CONSOLE_LINES:]) if lines else "its console is empty"
