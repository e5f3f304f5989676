"""What the commands have in common, whatever the provider: make or complete a lab, look at it, remove it.

Each function works under the lab's lock, writes down what it is about to do before it does it, and
returns what the command prints.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from msgspec import Struct, structs

from labctl.exits import UsageProblem
from labctl.testbeds.labs import lab as labs
from labctl.testbeds.labs import store
from labctl.testbeds.labs.lab import Lab
from labctl.testbeds.labs.store import Store
from labctl.testbeds.providers.provider import (
    AcquirePlan,
    Connect,
    LeftBehind,
    Provider,
    ProviderError,
    Released,
    Resource,
    TellOfHost,
)
from labctl.testbeds.ssh import reach
from labctl.testbeds.testbed import Testbed


class AcquireFailed(ProviderError):
    """It went wrong after something may have been created."""


class Size(Struct, frozen=True):
    brokers: int
    clients: int
    machines: int | None = None
    """Over what the testbed says: so many hosts at most, which brokers and clients share."""


def size_of_experiment(name: str) -> Size:
    """How many hosts the largest cell of an experiment wants: the one place that has to know."""
    from labctl.experiment import client_processes, experiment, selection

    cells = list(selection.cells_of(experiment.find(name)))
    return Size(
        max(cell.brokers for cell in cells), max(len(client_processes.clients(cell)) for cell in cells)
    )


def plan(name: str, testbed: Testbed | None, size: Size, connect: Connect) -> tuple[Lab, AcquirePlan]:
    """What `provision` would do; nothing is changed, not even here."""
    place = Store(name)
    lab = wanted(place, testbed, size, time.time())
    with closing(connect(lab.testbed)) as there:
        return lab, _draw(there, place, lab, size)


def _draw(there: Provider, place: Store, lab: Lab, size: Size) -> AcquirePlan:
    drawn = there.plan(place, lab)
    if len(lab.hosts) >= size.brokers + size.clients:
        return drawn
    shared = f"{size.brokers} brokers and {size.clients} clients share {len(lab.hosts)} hosts"
    return structs.replace(drawn, notes=(*drawn.notes, shared))


def provision(
    name: str,
    testbed: Testbed | None,
    size: Size,
    connect: Connect,
    report: TellOfHost,
    show: Callable[[Lab, AcquirePlan], None],
) -> Lab:
    """The plan is shown, then carried out; hosts that could not be had are `failed` in what is returned."""
    place = Store(name)
    with place.locked():
        if place.find() is None:
            # What a kill left of a folder whose lab was gone already.
            place.remove()
        lab = wanted(place, testbed, size, time.time())
        with closing(connect(lab.testbed)) as there:
            drawn = _draw(there, place, lab, size)
            show(lab, drawn)
            if drawn.shortages:
                raise ProviderError(
                    f"quota exceeded, nothing was created: {'; '.join(drawn.shortages)}; delete something, "
                    "ask for more, or make the lab smaller"
                )
            with reach.dialing(lab.testbed):
                pass  # a bastion that does not let us in is found out before anything is made
            lab = place.make_keys(lab.in_phase("making"))
            place.write(lab)
            try:
                lab = there.acquire(place, lab, report)
            except ProviderError as error:
                place.write(place.lab().in_phase("incomplete"))
                raise AcquireFailed(str(error)) from None
            whole = all(host.state == "ready" for host in lab.hosts)
            lab = lab.in_phase("ready" if whole else "incomplete")
            place.write(lab)
            return lab


def wanted(place: Store, testbed: Testbed | None, size: Size, now_s: float) -> Lab:
    """The lab as it shall be: a new one, or the one that is there with hosts added."""
    found = place.find()
    testbed = _with_machines(testbed, found, size)
    if found is None:
        if testbed is None:
            raise UsageProblem(f"there is no lab {place.name!r}; name a testbed to make one: --testbed FILE")
        return labs.sized(labs.new(place.name, testbed, now_s), size.brokers, size.clients)
    if found.phase == "removing":
        raise UsageProblem(
            f"the lab {place.name!r} is half removed; finish with `labctl destroy --lab {place.name}` first"
        )
    if testbed is not None and _essence(testbed) != _essence(found.testbed):
        raise UsageProblem(
            f"the lab {place.name!r} was made with another testbed; destroy it first, or choose another name "
            "with --lab"
        )
    if found.expires_at_s <= now_s:
        raise UsageProblem(
            f"the lifetime of the lab {place.name!r} is over; remove it with `labctl destroy --lab "
            f"{place.name}` or `labctl gc`"
        )
    if testbed is not None:
        found = structs.replace(found, testbed=testbed)
    return labs.sized(found, size.brokers, size.clients)


def _with_machines(testbed: Testbed | None, found: Lab | None, size: Size) -> Testbed | None:
    """The option, else the file, else what the lab has had so far: who repeats a command need not repeat it."""
    known = found.testbed if found else None
    if testbed is None and size.machines is None:
        return None
    given = testbed or known
    if given is None:
        return None
    machines = size.machines or given.machines or (known.machines if known else None)
    return structs.replace(given, machines=machines)


def _essence(testbed: Testbed) -> Testbed:
    """Time-outs and the number of machines may change from run to run; what the machines are, may not."""
    return structs.replace(testbed, timeouts=type(testbed.timeouts)(), machines=None)


def inspect(name: str, connect: Connect) -> Lab:
    """What the provider shows now; nothing is written down."""
    place = Store(name)
    lab = place.lab()
    with closing(connect(lab.testbed)) as there:
        return there.inspect(place, lab)


def destroy(name: str, connect: Connect, report: TellOfHost) -> Released:
    """Remove a lab and, when nothing of it is left, its folder. There is no harm in doing it twice."""
    place = Store(name)
    with place.locked():
        lab = place.find()
        if lab is None:
            return Released()
        lab = lab.in_phase("removing")
        place.write(lab)
        try:
            with closing(connect(lab.testbed)) as there:
                released = there.release(place, lab, report)
        except ProviderError as error:
            recorded = place.journal.may_exist()
            if not recorded:
                raise
            left = tuple(Resource(entry.kind, entry.name, entry.id or "id unknown") for entry in recorded)
            raise LeftBehind(f"{error}. This may be left in the cloud: {describe(left)}") from None
        if not released.left:
            place.remove()
        return released


def expired(now_s: float) -> list[Lab]:
    """Labs of this user whose lifetime is over."""
    found = [Store(name).lab() for name in store.names()]
    return [lab for lab in found if lab.expires_at_s <= now_s]


def describe(resources: tuple[Resource, ...]) -> str:
    return "; ".join(
        f"{each.kind} {each.name} ({each.id})" + (f": {each.why}" if each.why else "") for each in resources
    )
