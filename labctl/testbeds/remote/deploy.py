"""Prepare and deploy, for all hosts of a lab: what each lacks is brought, all at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import ModuleType

from labctl.exits import LabError
from labctl.testbeds.labs.lab import Host
from labctl.testbeds.remote import bundles, wheels
from labctl.testbeds.remote.bundles import Bundle
from labctl.testbeds.ssh.connections import TellOfHost
from labctl.testbeds.ssh.play import Player, PlayError, PlayResult, target
from playbooks.deploy import Deployed, deploy
from playbooks.prepare import Found, prepare, wait_for_start
from playbooks.steps import Playbook

SHOWN_MAX = 5


class BundleStore:
    """Bundles for any host: our code once, packages once for each kind of host."""

    def __init__(self, modules: Iterable[ModuleType] = ()) -> None:
        self._code = bundles.code(modules)
        self._packages: dict[wheels.HostKind, Bundle] = {}
        self._guard = threading.Lock()

    def for_host(self, found: Found) -> tuple[Bundle, Bundle]:
        kind = wheels.HostKind(*found.kind)
        with self._guard:
            if kind not in self._packages:
                self._packages[kind] = wheels.packages(kind)
        return self._code, self._packages[kind]


def everywhere(
    player: Player, hosts: Sequence[Host], shelf: BundleStore, say: TellOfHost
) -> dict[str, Deployed]:
    """By host. One host that cannot be had is enough to raise, and all that cannot be are named."""

    def playbook(host: Host) -> Playbook[Deployed]:
        where = target(player.lab, host)
        found = yield from prepare(where)
        wanted = shelf.for_host(found)
        if any(bundle.digest not in found.present for bundle in wanted):
            say(host.name, "deploying")
        made = yield from deploy(where, found, wanted)
        say(host.name, f"deployed: {', '.join(made.brought) or 'nothing new'}")
        if found.is_starting:
            say(host.name, "waiting for the end of its start")
            yield from wait_for_start()
        return made

    outcomes = player.everywhere(hosts, playbook)
    refuse_failures(outcomes, "deployed to")
    return {outcome.host.name: outcome.made for outcome in outcomes if outcome.made is not None}


def refuse_failures(outcomes: Sequence[PlayResult[Deployed]], what: str) -> None:
    errors: list[LabError] = [outcome.error for outcome in outcomes if outcome.error is not None]
    if not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    shown = "; ".join(str(error) for error in errors[:SHOWN_MAX])
    more = f"; and {len(errors) - SHOWN_MAX} more" if len(errors) > SHOWN_MAX else ""
    raise PlayError(f"{len(errors)} of {len(outcomes)} hosts could not be {what}: {shown}{more}")
