"""Give everything back that is a lab's, in the order of dependence, and look whether it is gone.

Only what `kinds.ours` accepts is deleted. What the cloud still needs is tried again for a while; what
remains is said, and the lab is kept so that it can be tried once more.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from labctl.retry import look_until, try_again
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers.openstack import ground, kinds
from labctl.testbeds.providers.openstack.cloud import Cloud, Conflict, plainly
from labctl.testbeds.providers.openstack.inventory import Inventory, OwnedThing, settle, take
from labctl.testbeds.providers.openstack.kinds import Kind, Thing
from labctl.testbeds.providers.provider import ProviderError, Released, Resource, TellOfHost

REQUESTS_AT_ONCE = 8


def release_all(cloud: Cloud, store: Store, lab: Lab, report: TellOfHost) -> Released:
    inventory = settle(cloud, store, lab)
    deleted: list[Resource] = []
    left: list[Resource] = list(inventory.doubtful)
    for kind in kinds.IN_ORDER_OF_DELETION:
        held = [each for each in inventory.held if each.thing.kind == kind.name]
        if not held:
            continue
        problems = _delete_kind(cloud, lab, kind, held, report)
        for each in held:
            resource = Resource(each.thing.kind, each.thing.name, each.thing.id)
            if problem := problems.get(each.thing.id):
                left.append(Resource(resource.kind, resource.name, resource.id, problem))
            else:
                store.journal.gone(each.entry)
                deleted.append(resource)
    last = take(cloud, store, lab)
    known = {resource.id for resource in left}
    left += [resource for resource in _still_there(last) if resource.id not in known]
    return Released(tuple(deleted), tuple(left), last.strangers)


def _still_there(inventory: Inventory) -> list[Resource]:
    """The last look must find nothing."""
    found = [Resource(h.thing.kind, h.thing.name, h.thing.id, "it is still listed") for h in inventory.held]
    return [*found, *inventory.doubtful]


def delete_server(cloud: Cloud, store: Store, lab: Lab, thing: Thing) -> None:
    """One machine that is to be replaced."""
    entry = next(e for e in store.journal.may_exist() if e.id == thing.id)
    problems = _delete_kind(cloud, lab, kinds.SERVER, [OwnedThing(entry, thing)], lambda _host, _text: None)
    if thing.id in problems:
        raise ProviderError(f"the server {thing.name} cannot be replaced: {problems[thing.id]}")
    store.journal.gone(entry)


def _delete_kind(
    cloud: Cloud, lab: Lab, kind: Kind, held: Sequence[OwnedThing], report: TellOfHost
) -> dict[str, str]:
    """Ask for all at once, then watch them go. Returns id to problem, for those that stay."""

    def ask(each: OwnedThing) -> str:
        report(each.entry.host or kind.name, f"deleting the {kind.name}")
        try:
            _ask(cloud, lab, kind, each.thing)
        except ProviderError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        answers = list(pool.map(ask, held))
    problems = {each.thing.id: said for each, said in zip(held, answers, strict=True) if said}
    waiting = [each for each in held if each.thing.id not in problems]
    timeouts = lab.testbed.timeouts

    def left() -> list[OwnedThing]:
        nonlocal waiting
        waiting = _not_gone(cloud, lab, kind, waiting)
        return waiting

    if look_until(operator.not_, left, timeouts.delete_s, timeouts.poll_s):
        late = f"still there {timeouts.delete_s:g} s after its deletion"
        return problems | {each.thing.id: late for each in waiting}
    for each in held:
        if each.thing.id not in problems:
            report(each.entry.host or kind.name, f"the {kind.name} is gone")
    return problems


def _not_gone(cloud: Cloud, lab: Lab, kind: Kind, waiting: Sequence[OwnedThing]) -> list[OwnedThing]:
    """One listing for all; what it does not show is asked for by its id, to be sure."""
    listed = {thing.id for thing in kinds.everything(cloud, kind, lab)} if waiting else set()
    return [
        each
        for each in waiting
        if each.thing.id in listed or kinds.look(cloud, kind, each.thing.id) is not None
    ]


def _ask(cloud: Cloud, lab: Lab, kind: Kind, thing: Thing) -> None:
    """Repeated while the cloud says that it is in use: what used it may need a moment to go."""

    def delete() -> None:
        if kind is kinds.ROUTER:
            _disconnect(cloud, thing)
        with plainly(cloud, f"delete the {kind.name} {thing.name}"):
            kind.delete(cloud, thing.id)

    timeouts = lab.testbed.timeouts
    try_again(lambda error: isinstance(error, Conflict), delete, timeouts.conflict_s, timeouts.poll_s)


def _disconnect(cloud: Cloud, router: Thing) -> None:
    for subnet in ground.interfaces(cloud, router.id):
        with plainly(cloud, f"disconnect the router {router.name}"):
            cloud.network.remove_interface_from_router(router.id, subnet_id=subnet)
