"""What a lab has in the cloud: the journal's entries and the cloud's listings, laid side by side.

Also the one way to create something, since it is the other half of the same promise.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from labctl.testbeds.labs.journal import LabEntry
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers.openstack import kinds
from labctl.testbeds.providers.openstack.cloud import Cloud, CloudRefused, plainly
from labctl.testbeds.providers.openstack.kinds import Kind, Thing
from labctl.testbeds.providers.provider import Resource


class OwnedThing(Struct, frozen=True):
    """A thing of ours, and the entry that says so."""

    entry: LabEntry
    thing: Thing


class Inventory(Struct, frozen=True):
    held: tuple[OwnedThing, ...] = ()
    absent: tuple[LabEntry, ...] = ()
    """Recorded, and not there."""
    young: tuple[LabEntry, ...] = ()
    """Asked for a moment ago without an answer, and not there yet: it may still come."""
    doubtful: tuple[Resource, ...] = ()
    """Recorded, but not to be told from somebody else's: not touched, and not gone either."""
    strangers: tuple[Resource, ...] = ()
    """They carry the lab's tag, but labctl has not made them."""

    def of(self, kind: Kind, host: str = "") -> Thing | None:
        for held in self.held:
            if held.entry.kind == kind.name and held.entry.host == host:
                return held.thing
        return None


def take(cloud: Cloud, store: Store, lab: Lab) -> Inventory:
    """Look once; neither the cloud nor the journal is changed."""
    entries = [entry for entry in store.journal.entries() if entry.state != "refused"]
    if not entries:
        return Inventory()
    listed = _list_all(cloud, lab)
    held, absent, young, doubtful = [], [], [], []
    for entry in entries:
        found = [thing for thing in listed if kinds.ours(thing, entry, lab)]
        if len(found) == 1 and (entry.may_exist or not entry.id):
            held.append(OwnedThing(entry, found[0]))
        elif len(found) > 1:
            doubtful += [_doubt(thing, "several carry the same mark") for thing in found]
        elif not entry.may_exist:
            continue
        elif entry.id:
            thing = kinds.look(cloud, kinds.BY_NAME[entry.kind], entry.id)
            if thing is None:
                absent.append(entry)
            elif kinds.ours(thing, entry, lab):
                held.append(OwnedThing(entry, thing))
            else:
                doubtful.append(_doubt(thing, "it does not carry the lab's tag any more"))
        elif time.time() - entry.at_s < lab.testbed.timeouts.settle_s:
            young.append(entry)
        else:
            absent.append(entry)
    known = {doubt.id for doubt in doubtful}
    strange = [
        _doubt(thing, "it carries the lab's tag, but labctl has not made it")
        for thing in listed
        if thing.id not in known and not any(kinds.ours(thing, entry, lab) for entry in entries)
    ]
    return Inventory(tuple(held), tuple(absent), tuple(young), tuple(doubtful), tuple(strange))


def settle(cloud: Cloud, store: Store, lab: Lab) -> Inventory:
    """Look until nothing can come any more, and write down what was found and what was not."""
    inventory = take(cloud, store, lab)
    while inventory.young:
        time.sleep(lab.testbed.timeouts.poll_s)
        inventory = take(cloud, store, lab)
    for entry in inventory.absent:
        store.journal.gone(entry)
    held = []
    for each in inventory.held:
        entry = each.entry if each.entry.state == "made" else store.journal.made(each.entry, each.thing.id)
        held.append(OwnedThing(entry, each.thing))
    return Inventory(tuple(held), (), (), inventory.doubtful, inventory.strangers)


def create(
    cloud: Cloud, store: Store, kind: Kind, name: str, request: Callable[[LabEntry], Any], host: str = ""
) -> Thing:
    """Write the intent down, ask, write the answer down."""
    entry = store.journal.intend(kind.name, name, host)
    try:
        with plainly(cloud, f"create the {kind.name} {name}"):
            raw = request(entry)
    except CloudRefused as error:
        store.journal.refused(entry, str(error))
        raise
    store.journal.made(entry, raw.id)
    return kind.read(raw)


def _list_all(cloud: Cloud, lab: Lab) -> list[Thing]:
    with ThreadPoolExecutor(len(kinds.IN_ORDER_OF_DELETION)) as pool:
        lists = pool.map(lambda kind: kinds.everything(cloud, kind, lab), kinds.IN_ORDER_OF_DELETION)
        return [thing for things in lists for thing in things]


def _doubt(thing: Thing, why: str) -> Resource:
    return Resource(thing.kind, thing.name, thing.id, why)
