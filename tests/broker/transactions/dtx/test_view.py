"""What a D-TX transaction sees: while its view is current, everything would be decided as it was."""

from __future__ import annotations

from random import Random

from broker.matching.records import Record
from broker.protocol.hops import broker_hop, client_hop
from broker.protocol.vocabulary import Kind
from broker.routing.tables import Routing
from broker.transactions.dtx.view import Decision, View
from tests.support.indexing import record

NEIGHBOURS = (broker_hop("b1"), broker_hop("b2"))
HOMES = {"c1": NEIGHBOURS[0], "c2": NEIGHBOURS[1], "c3": client_hop("c3")}
KINDS: tuple[Kind, ...] = ("adv", "uadv", "sub", "usub")
TAGS = ("t1", "t2")


class World:
    """A broker's tables with random contents, and a transaction that looks at them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"view {seed}")
        self.number = 0
        self.routing = Routing(NEIGHBOURS, "all", 1000)
        for _ in range(self.random.randrange(5, 25)):
            self.change()
        self.operations = [self.draw() for _ in range(self.random.randrange(1, 4))]
        self.view = View(self.routing)
        self.decisions = self.decide(self.view)

    def draw(self) -> Record:
        self.number += 1
        constraints = {"a": self.random.randrange(2)} | ({"b": 1} if self.random.random() < 0.3 else {})
        return record(self.random.choice(KINDS), self.random.choice(list(HOMES)), self.number, constraints)

    def decide(self, view: View) -> list[Decision]:
        """Each operation, and a publication behind it."""
        found: list[Decision] = []
        for each in self.operations:
            found.append(view.record(each, HOMES[each.client]))
            found.append(view.publication({"a": 1, "b": 1}, "c3", HOMES["c3"]))
        return found

    def change(self) -> str:
        what = self.random.choice(("place", "place", "tag", "commit", "drop", "leave", "mark"))
        if what in ("place", "tag"):
            each = self.draw()
            each.tag = self.random.choice(TAGS) if what == "tag" else None
            self.routing.place(each, HOMES[each.client])
        elif what == "commit":
            self.routing.commit(self.random.choice(TAGS))
        elif what == "drop":
            self.routing.drop(self.random.choice(TAGS))
        elif what == "leave":
            client = self.random.choice(list(HOMES))
            self.routing.remove_client(client, 1, HOMES[client])
        else:
            for _, each in self.routing.prt:
                self.routing.mark_sent(each.client, each.stamp, NEIGHBOURS[1])
        return what


def test_a_view_is_current_while_everything_would_be_decided_as_it_was() -> None:
    differed, stayed = set(), 0
    for seed in range(2000):
        world = World(seed)
        assert world.view.is_current
        what = world.change()
        if world.view.is_current:
            stayed += 1
        if world.decide(View(world.routing)) != world.decisions:
            differed.add(what)
            assert not world.view.is_current, (seed, what)
    assert differed == {"place", "commit", "leave", "mark"}
    assert stayed
