"""The subscription routing table: what it answers follows every change, however often it was asked before."""

from __future__ import annotations

from random import Random

from broker.matching.records import Record
from broker.protocol.filters import Filter, make_filter
from broker.protocol.vocabulary import Kind
from broker.routing.srt import SRT
from tests.support.indexing import CLIENTS, record

FILTERS = [make_filter({"a": a} | ({} if b is None else {"b": b})) for a in (1, 2) for b in (None, 1, 2)]
TAGS = ("t1", "t2")


class Twins:
    """A table that is asked all the time, and the changes that made it, for a fresh one that nobody has asked."""

    def __init__(self) -> None:
        self.asked = SRT("all")
        self.records: list[Record] = []

    def add(self, each: Record) -> None:
        self.asked.add(each, CLIENTS[each.client], compacts=False)
        self.records.append(each)

    def fresh(self) -> SRT:
        table = SRT("all")
        for each in self.records:
            table.add(each, CLIENTS[each.client], compacts=False)
        return table


def answers(table: SRT) -> list[bool]:
    return [table.wants(hop, filter_) for hop in set(CLIENTS.values()) for filter_ in FILTERS]


def change(twins: Twins, random: Random, number: int) -> None:
    tag, client = random.choice(TAGS), random.choice(list(CLIENTS))
    what = random.random()
    if what < 0.1:
        twins.asked.commit(tag)  # the records are those of the list: their tags are gone there too
    elif what < 0.2:
        twins.asked.drop(tag)
        twins.records = [each for each in twins.records if each.tag != tag]
    elif what < 0.25:
        twins.asked.remove_client(client)
        twins.records = [each for each in twins.records if each.client != client]
    else:
        filter_: Filter = random.choice(FILTERS)
        kind: Kind = "adv" if random.random() < 0.6 else "uadv"
        twins.add(record(kind, client, number, filter_.as_mapping(), random.choice((None, *TAGS))))


def test_who_wants_a_filter_is_answered_anew_after_every_change() -> None:
    random = Random("srt")
    seen = set()
    for _ in range(30):
        twins = Twins()
        for number in range(40):
            change(twins, random, number)
            given = answers(twins.asked)
            assert given == answers(twins.fresh())
            seen.add(tuple(given))
    assert len(seen) > 100


def test_a_commit_that_changes_no_advertisement_is_no_change() -> None:
    """What waits for one need not look again."""
    table = SRT("all")
    table.add(record("adv", "c1", 1, {"a": 1}), "north")
    before = table.changes
    table.commit("t1")
    table.drop("t2")
    assert table.changes == before
