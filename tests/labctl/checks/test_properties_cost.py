"""What the checks may spend on a long run: so many questions, not so much time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.matching import boxes
from broker.matching.buckets import Names
from broker.matching.records import Record
from broker.matching.table import Table
from broker.protocol.filters import Event, Filter
from client.scenarios.stage import Options
from labctl.checks import properties, spaces
from labctl.checks.history import read
from labctl.checks.judge import probes
from labctl.checks.verdict import Verdict
from labctl.simulate.stage import play
from labctl.simulate.world import World

pytestmark = pytest.mark.slow

HOMES = {"E": "b1", "D": "b2", "A1": "b3", "A2": "b1"}


class Meter:
    """Counts filters that were asked, and records that were found without asking."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        matches, contains, matching = Filter.matches, boxes.contains, Table.matching

        def matches_(filter_: Filter, event: Event) -> bool:
            self.count += 1
            return matches(filter_, event)

        def contains_(filter_: Filter, event: Event) -> bool:
            self.count += 1
            return contains(filter_, event)

        def matching_(table: Table, event: Event, names: Names) -> Iterator[Record]:
            self.count += 1
            for record in matching(table, event, names):
                self.count += 1
                yield record

        monkeypatch.setattr(Filter, "matches", matches_)
        monkeypatch.setattr(boxes, "contains", contains_)
        monkeypatch.setattr(spaces, "contains", contains_)
        monkeypatch.setattr(Table, "matching", matching_)


def a_world(approach: str, transactions: int) -> World:
    world = World([("b1", "b2"), ("b2", "b3")], ["b1"], seed=1)
    report = play(world, "dispatching", HOMES, Options(approach, transactions, concurrency=2))
    assert report.summary()["committed"] == transactions
    return world


def judged(world: World) -> list[Verdict]:
    history = read(world.moments)
    return [
        properties.atomicity(history, list(world.brokers)),
        properties.consistency(history),
        properties.serializability(history),
        properties.recipients(history),
        # Where the brokers would send an event is their business: here they send nothing.
        properties.convergence(history, lambda *_: (), probes(history)),
        properties.liveness(history, []),
    ]


@pytest.mark.parametrize("approach", ["d-tx", "s-tx"])
def test_the_checks_ask_in_proportion_to_the_transactions(
    approach: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = [a_world(approach, transactions) for transactions in (300, 1200)]
    meter = Meter(monkeypatch)
    counts = []
    for world in worlds:
        before = meter.count
        judged(world)
        counts.append(meter.count - before)
    assert 300 < counts[0] < 300 * 100
    assert counts[1] < 5 * counts[0]
