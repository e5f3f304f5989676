"""Make a run that broke a promise smaller: with fewer clients, transactions and operations, as long as it breaks that.

What is left out is a unit: all that clients and brokers say about it. The others stand at the places where they stood.
A smaller schedule counts only if each client that is left is told, unit by unit, just what it was told in the run; then it
would have said the same, and the schedule could have happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from broker import recorded
from broker.protocol.hops import is_client, name_of
from broker.protocol.messages import Publish
from broker.routing.joining import ClientArrived
from labctl.results.histories import NodeHistory
from labctl.simulate.programs.programs import Program
from labctl.simulate.recorded import judging
from labctl.simulate.recorded.schedule import CoreCall, Schedule
from labctl.simulate.recorded.world import RecordedWorld, Unit, unit_of


class Case(Struct, frozen=True):
    """A run, or what is left of it."""

    schedule: Schedule
    clients: tuple[NodeHistory, ...]
    without: frozenset[Unit] = frozenset()

    def world(self, traces: bool = True) -> RecordedWorld:
        kept = tuple(_kept(self.schedule.steps, self.without))
        return judging.run(replace(self.schedule, steps=kept), self.clients, traces)

    @property
    def program(self) -> Program:
        """Who is there, for a diagram."""
        made = self.schedule.made
        homes = {
            name_of(step.given.source): step.node
            for step in self.schedule.steps
            if step.given.client == ClientArrived.__name__
        }
        kept = {client: home for client, home in homes.items() if ("stay", client) not in self.without}
        return Program(self.schedule.links, tuple(one.broker for one in made), kept, (), ())

    def broken(self, world: RecordedWorld) -> dict[str, str]:
        """By property, the first fault."""
        found = judging.verdicts(world, self.clients, self.without)
        return {v.property: v.faults[0] for v in found if v.answer == "invalid" and v.faults}


def shrink(case: Case, property_: str, seconds: float = 10.0) -> Case:
    """The smallest case found in so much time that breaks the same."""
    deadline = monotonic() + seconds
    whole = case.world().said
    size = len(_units(case, whole))
    while size and monotonic() < deadline:
        units = _units(case, whole)
        for first in range(0, len(units), size):
            if monotonic() > deadline:
                break
            fewer = replace(case, without=case.without | frozenset().union(*units[first : first + size]))
            if _shows(fewer, property_, whole):
                case = fewer
        size //= 2
    return case


def _shows(case: Case, property_: str, whole: Mapping[tuple[str, Unit], list[str]]) -> bool:
    world = case.world()
    if world.impossible or any(
        said != whole[key] for key, said in world.said.items() if key[1][0] != "publication"
    ):
        return False
    return property_ in case.broken(world)


def _units(case: Case, said: Mapping[tuple[str, Unit], list[str]]) -> list[frozenset[Unit]]:
    """What can be left out, the largest first: a client with all that it takes part in, then each thing by itself."""
    own: defaultdict[str, set[Unit]] = defaultdict(set)
    for (client, unit), texts in said.items():
        if any(text.startswith(">") for text in texts):
            own[client].add(unit)
    clients = [frozenset(units | {("stay", client)}) for client, units in own.items()]
    single = [frozenset({unit}) for units in own.values() for unit in sorted(units) if unit[0] != "stay"]
    found = [*clients, *dict.fromkeys(single)]
    return [units for units in found if not units <= case.without]


def _kept(steps: Sequence[CoreCall], without: Collection[Unit]) -> Iterator[CoreCall]:
    for step in steps:
        given = step.given
        if not is_client(given.source):
            yield step
            continue
        client = name_of(given.source)
        if ("stay", client) in without:
            continue
        if given.act == "decide":
            publications = [
                m for m in given.all() if isinstance(m, Publish) and unit_of(client, m) not in without
            ]
            if publications:
                yield replace(step, given=recorded.decided(given.source, publications))
        elif given.first is not None and unit_of(client, given.first) not in without:
            yield step
