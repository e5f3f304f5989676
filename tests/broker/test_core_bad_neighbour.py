"""What a neighbour says that cannot be true in a tree of honest brokers is refused, and changes nothing."""

from __future__ import annotations

import pytest

from broker import status
from broker.core import Broker
from broker.protocol.filters import make_filter
from broker.protocol.messages import (
    Announce,
    Forget,
    Join,
    JoinAnswer,
    Leave,
    Operation,
    Request,
    Settle,
    Settled,
)
from broker.protocol.vocabulary import NO_KEY, Kind
from broker.protocol.wire import AnyMessage
from broker.routing.joining import ClientArrived, ClientGone
from broker.routing.ready import ProtocolError


def operation(kind: Kind, client: str, life: int, number: int, n: int) -> Operation:
    return Operation(kind, client, (NO_KEY, 1, life, number), make_filter({"n": n}))


@pytest.fixture
def broker() -> Broker:
    """b2 between b1 and b3; b4 lies behind b3. F is at b1, G at b3, and both have records here."""
    core = Broker("b2", ["b1", "b3"], 2)
    for source, message in (
        ("broker:b1", Announce("b1", 1, "")),
        ("broker:b3", Announce("b3", 3, "")),
        ("broker:b3", Announce("b4", 4, "b3")),
        ("broker:b1", Join("F", 10, "b1")),
        ("broker:b3", Join("G", 20, "b3")),
        ("broker:b1", operation("adv", "F", 10, 1, 1)),
        ("broker:b1", operation("sub", "F", 10, 2, 2)),
        ("broker:b3", operation("sub", "G", 20, 1, 1)),
    ):
        core.handle(0.0, source, message)
    return core


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("broker:b3", Join("H", 30, "b1")),
        ("broker:b1", Join("H", 30, "b2")),
        ("broker:b1", Join("H", 30, "nobody")),
        ("broker:b1", Join("F", 11, "b1")),
        ("broker:b3", Leave("F", 10, "b1")),
        ("broker:b1", Leave("E", 5, "b2")),
        ("broker:b1", operation("adv", "F", 10, 1, 7)),
        ("broker:b1", operation("sub", "F", 10, 2, 7)),
        ("broker:b1", operation("sub", "F", 11, 3, 7)),
        ("broker:b3", operation("sub", "F", 10, 3, 7)),
        ("broker:b3", Forget("F", (NO_KEY, 1, 10, 2))),
    ],
    ids=[
        "a client from the wrong side",
        "a client of our own",
        "a client of an unknown broker",
        "a second life without the end of the first",
        "a leave from the wrong side",
        "a leave of our own client",
        "an advertisement with a stamp that is taken",
        "a subscription with a stamp that is taken",
        "an operation of a life that has not joined",
        "an operation from the wrong side",
        "a forget from the wrong side",
    ],
)
def test_it_is_refused_and_changes_nothing(broker: Broker, source: str, message: AnyMessage) -> None:
    before = status.describe(broker, dump=True)
    with pytest.raises(ProtocolError):
        broker.handle(0.0, source, message)
    assert status.describe(broker, dump=True) == before


def test_of_two_lives_of_one_client_only_the_first_has_records(broker: Broker) -> None:
    """Both from the same side; while their claims are disputed, neither may act, and one of them did."""
    broker.handle(0.0, "broker:b3", Join("G", 21, "b4"))
    with pytest.raises(ProtocolError, match="another life"):
        broker.handle(0.0, "broker:b3", operation("sub", "G", 21, 1, 5))
    broker.handle(0.0, "broker:b3", Leave("G", 21, "b4"))
    assert [record.client for _, record in broker.routing.prt] == ["F", "G"]
    broker.handle(0.0, "broker:b3", Leave("G", 20, "b3"))
    assert [record.client for _, record in broker.routing.prt] == ["F"]


def test_a_client_named_like_a_broker_does_not_have_that_brokers_settles_counted(broker: Broker) -> None:
    broker.handle(0.0, "client:b1", ClientArrived(7))
    for neighbour in ("broker:b1", "broker:b3"):
        broker.handle(0.0, neighbour, JoinAnswer("b1", 7, "b2", ""))
    broker.handle(0.0, "client:b1", Settle("b1", 1))
    broker.handle(0.0, "broker:b1", Settle("X/7", 1))
    broker.handle(0.0, "broker:b3", Settled("X/7", 1))
    assert broker.state.guests["b1"].settles == 1


def test_a_refused_settle_is_not_counted(broker: Broker) -> None:
    broker.handle(0.0, "client:E", ClientArrived(7))
    for neighbour in ("broker:b1", "broker:b3"):
        broker.handle(0.0, neighbour, JoinAnswer("E", 7, "b2", ""))
    broker.handle(0.0, "client:E", Settle("E", 1))
    with pytest.raises(ProtocolError, match="under way"):
        broker.handle(0.0, "client:E", Settle("E", 1))
    assert broker.state.guests["E"].settles == 1


def test_a_subscription_that_outlives_a_newer_one_with_its_filter_goes_with_its_client(
    broker: Broker,
) -> None:
    """S's first subscription is known to b1, its second is not, so the first stays and the second is void."""
    broker.handle(0.0, "client:S", ClientArrived(7))
    for neighbour in ("broker:b1", "broker:b3"):
        broker.handle(0.0, neighbour, JoinAnswer("S", 7, "b2", ""))
    wanted = make_filter({"n": 1})
    broker.handle(0.0, "client:S", Request(1, "sub", wanted))
    broker.handle(0.0, "broker:b1", operation("uadv", "F", 10, 3, 1))
    broker.handle(0.0, "client:S", Request(2, "usub", wanted))
    broker.handle(0.0, "client:S", Request(3, "sub", wanted))
    assert [r.stamp[3] for _, r in broker.routing.prt if r.client == "S"] == [1]
    broker.handle(0.0, "client:S", ClientGone("it said goodbye"))
    assert "S" not in {record.client for record in broker.routing.prt.index}
