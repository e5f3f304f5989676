"""Both routing tables of a broker: whose records go with whom."""

from __future__ import annotations

from broker.matching.records import Record
from broker.protocol.filters import make_filter
from broker.protocol.hops import broker_hop
from broker.protocol.vocabulary import NO_KEY
from broker.routing.tables import Routing

ONE, OTHER = broker_hop("b1"), broker_hop("b3")


def with_records_of(client: str, incarnation: int) -> Routing:
    """It lies behind `ONE`."""
    tables = Routing((ONE, OTHER), "all", 100)
    for number, kind in enumerate(("adv", "sub"), 1):
        stamp = (NO_KEY, 1, incarnation, number)
        tables.apply(Record(kind, client, stamp, make_filter({"x": number})), ONE)  # type: ignore[arg-type]
    return tables


def count(tables: Routing) -> int:
    return len(tables.srt) + len(tables.prt)


def test_a_client_that_leaves_takes_its_records_with_it() -> None:
    tables = with_records_of("c", 7)
    tables.remove_client("c", 7, ONE)
    assert count(tables) == 0


def test_one_that_was_refused_does_not_take_the_records_of_the_accepted_one() -> None:
    tables = with_records_of("c", 7)
    tables.remove_client("c", 8, OTHER)
    tables.remove_client("c", 8, ONE)
    tables.remove_client("c", 7, OTHER)
    assert count(tables) == 2
