"""D-TX at one broker between two neighbours, message by message: what goes on, what is answered, and when."""

from __future__ import annotations

import pytest

from broker.core import Broker
from broker.protocol.dtx import (
    Abort,
    Begin,
    Begun,
    Commit,
    Ended,
    Prepare,
    Prepared,
    TxAck,
    TxPublish,
    TxRequest,
)
from broker.protocol.filters import make_filter
from broker.protocol.hops import Sends
from broker.protocol.messages import Request
from broker.protocol.vocabulary import D_TX, NO_KEY, Message
from broker.routing.joining import ClientArrived, ClientGone
from broker.routing.ready import ProtocolError
from broker.transactions.dtx.machine import DECISION_S

LEFT, RIGHT, HOME = "broker:b1", "broker:b3", "client:E"
TX = "E/7/1"
DATA, OTHER = make_filter({"a": 1}), make_filter({"b": 2})


class Between:
    """A broker that neighbours on both sides talk to, or, without them, a client."""

    def __init__(self, *neighbours: str) -> None:
        self.core = Broker("b2", neighbours, 1)
        self.now = 0.0

    def hear(self, source: str, message: Message | ClientArrived | ClientGone) -> Sends:
        return self.core.handle(self.now, source, message).sends  # type: ignore[arg-type]

    def wait(self, seconds: float) -> Sends:
        self.now += seconds
        return self.core.expire(self.now).sends

    @property
    def contexts(self) -> set[str]:
        return set(self.core.transactions.dtx.contexts)


def passing(*behind: str) -> Between:
    """A transaction of somebody behind b1 has begun at b1, b2 and those behind."""
    broker = Between("b1", *behind)
    begin = Begin(TX, D_TX, (1, TX), 1000)
    assert broker.hear(LEFT, begin) == [(f"broker:{name}", begin) for name in behind]
    answers = [broker.hear(f"broker:{name}", Begun(TX)) for name in behind]
    assert answers == [[]] * (len(behind) - 1) + [[(LEFT, Begun(TX))]]
    return broker


def at_home() -> Between:
    """A transaction of a client of the only broker there is; it advertises and subscribes to the same."""
    broker = Between()
    broker.hear(HOME, ClientArrived(7))
    for number, kind in enumerate(("adv", "sub"), 1):
        broker.hear(HOME, Request(number, kind, DATA))  # type: ignore[arg-type]
    assert broker.hear(HOME, Begin(TX, D_TX, NO_KEY, 60_000)) == [(HOME, Begun(TX))]
    return broker


def test_a_yes_is_passed_on_when_all_behind_have_said_it_and_a_no_at_once() -> None:
    for first, answer in ((Prepared(TX), []), (Prepared(TX, "full"), [(LEFT, Prepared(TX, "full"))])):
        broker = passing("b3", "b4")
        assert broker.hear(LEFT, Prepare(TX)) == [(RIGHT, Prepare(TX)), ("broker:b4", Prepare(TX))]
        assert broker.hear(RIGHT, first) == answer
        assert broker.hear(RIGHT, first) == [], "it has voted"
        assert broker.hear("broker:b4", Prepared(TX)) == ([] if answer else [(LEFT, Prepared(TX))])


def test_a_commit_is_over_for_a_broker_when_all_behind_it_have_taken_it() -> None:
    broker = passing("b3")
    broker.hear(LEFT, Prepare(TX))
    assert broker.hear(RIGHT, Prepared(TX)) == [(LEFT, Prepared(TX))]
    commit = Commit(TX, isolated=True)
    assert broker.hear(LEFT, commit) == [(RIGHT, commit)]
    assert broker.contexts == set()
    assert broker.core.has_open_transactions, "b3 has not answered"
    assert broker.hear(RIGHT, Ended(TX, committed=True)) == [(LEFT, Ended(TX, committed=True))]
    assert not broker.core.has_open_transactions


def test_an_abort_overtakes_votes_and_what_comes_later_of_it_means_nothing() -> None:
    broker = passing("b3")
    broker.hear(LEFT, Prepare(TX))
    assert broker.hear(LEFT, Abort(TX, "changed its mind")) == [(RIGHT, Abort(TX, "changed its mind"))]
    for late in (Prepared(TX), TxAck(TX, 1)):
        assert broker.hear(RIGHT, late) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (RIGHT, Prepare(TX)),
        (RIGHT, Commit(TX)),
        (RIGHT, Abort(TX, "")),
        (RIGHT, Begin(TX, D_TX, (1, TX), 1000)),
    ],
)
def test_only_where_a_transaction_comes_from_decides_about_it(source: str, message: Message) -> None:
    broker = passing("b3")
    with pytest.raises(ProtocolError):
        broker.hear(source, message)
    assert broker.contexts == {TX}
    assert broker.hear(LEFT, Prepare(TX)) == [(RIGHT, Prepare(TX))], "nothing has changed"


def test_a_context_past_its_lifetime_stays_but_is_not_voted_for() -> None:
    broker = passing("b3")
    assert broker.wait(1.5) == []
    (answer,) = broker.hear(LEFT, Prepare(TX))
    assert answer == (LEFT, Prepared(TX, "its lifetime is over"))


def test_a_coordinator_that_has_asked_for_votes_adds_nothing() -> None:
    broker = at_home()
    assert broker.hear(HOME, Prepare(TX)) == [(HOME, Prepared(TX))]
    with pytest.raises(ProtocolError, match="after votes were asked for"):
        broker.hear(HOME, TxRequest(TX, 1, "sub", OTHER))
    assert broker.hear(HOME, Commit(TX)) == [(HOME, Ended(TX, committed=True))]
    assert len(broker.core.routing.prt) == 1


def test_a_participant_that_is_late_is_refused_and_the_vote_is_no() -> None:
    broker = at_home()
    broker.hear("client:A", ClientArrived(3))
    broker.hear("client:A", Request(1, "sub", DATA))
    asked = TxPublish(TX, 1, "tcm", {"a": 1}, b"")
    assert broker.hear(HOME, asked) == [("client:A", asked)]
    ((_, vote),) = broker.hear(HOME, Prepare(TX))
    assert isinstance(vote, Prepared)
    assert "while operations were under way" in vote.reason
    late = broker.hear("client:A", TxRequest(TX, 1, "sub", OTHER))
    assert late == [("client:A", TxAck(TX, 1, vote.reason))]


def test_a_publication_is_done_when_everybody_it_reached_has_it() -> None:
    broker = at_home()
    broker.hear("client:A", ClientArrived(3))
    broker.hear("client:A", Request(1, "sub", DATA))
    publication = TxPublish(TX, 1, "pub", {"a": 1}, b"x")
    assert broker.hear(HOME, publication) == [("client:A", publication)], "nobody gets its own"
    assert broker.hear("client:A", TxAck(TX, 1)) == [(HOME, TxAck(TX, 1, reached=1))]


def test_a_coordinator_that_knows_the_votes_and_does_not_decide_loses_its_transaction() -> None:
    broker = at_home()
    broker.hear(HOME, Prepare(TX))
    assert broker.wait(DECISION_S / 2) == []
    assert any(isinstance(message, Abort) for _, message in broker.wait(DECISION_S))
    assert broker.contexts == set()


def test_a_coordinator_that_is_gone_takes_its_transaction_with_it() -> None:
    broker = at_home()
    broker.hear(HOME, TxRequest(TX, 1, "sub", OTHER))
    broker.hear(HOME, ClientGone(""))
    assert not broker.core.has_open_transactions
    assert len(broker.core.routing.prt) == 0
