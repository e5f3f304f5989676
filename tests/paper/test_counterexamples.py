"""D-TX and D-TX_NI where the paper's algorithms fail: each hole's schedule, and what happens in it here.

The names are those of the holes in docs/protocols.md. Every schedule is also put to all the checks:
atomicity, order, serializability, tables that have converged, and nothing left of what has ended.
"""

from __future__ import annotations

import pytest

from broker.protocol.vocabulary import Protocol
from labctl.simulate.programs.programs import Op
from tests.support.scripted import Script, adv, ask, call, line, pub, sub, uadv, usub

ISOLATED: tuple[Protocol, ...] = ("d-tx", "d-tx-optimistic")
DYNAMIC: tuple[Protocol, ...] = (*ISOLATED, "d-tx-ni")
ONE: tuple[()] = ()
"""A single broker."""

dynamic = pytest.mark.parametrize("protocol", DYNAMIC)
isolated = pytest.mark.parametrize("protocol", ISOLATED)


def committed_alone(script: Script, client: str, protocol: Protocol, *body: Op) -> None:
    """Run one transaction that has no reason to fail."""
    started = script.transaction(client, protocol, *body)
    script.run()
    assert script.outcome(started) == "committed"
    assert script.faults() == []


@dynamic
def test_h1_an_operation_that_goes_nowhere_is_acknowledged(protocol: Protocol) -> None:
    script = Script(ONE, {"c0": "b0", "c1": "b0"}, [("c1", adv(0))])
    committed_alone(script, "c0", protocol, sub(0))
    assert script.reaches("c1", 0) == {"c0"}


@dynamic
def test_h2_a_subscription_that_is_attracted_later_is_not_acknowledged_twice(protocol: Protocol) -> None:
    setup = [("c0", adv(3)), ("c1", sub(3)), ("c2", sub(3))]
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1", "c2": "b0"}, setup)
    script.slow({"b1>c1": 10})  # c2's subscription is complete when c1 advertises
    asked = call(3, c1=[adv(0)], c2=[sub(0)])
    committed_alone(script, "c0", protocol, asked, ask("c1", pub(0)))
    assert script.got("c2") == [0]


@dynamic
def test_h2_the_owner_of_an_attracted_regular_subscription_is_not_disturbed(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1"}, [("c1", sub(0))])
    committed_alone(script, "c0", protocol, adv(0), pub(0))
    assert script.got("c1") == [0]


@dynamic
def test_h3_a_coordinator_that_is_asked_back_answers_beside_what_it_waits_for(protocol: Protocol) -> None:
    script = Script(ONE, {"c0": "b0", "c1": "b0"}, [("c1", adv(0))])
    committed_alone(script, "c0", protocol, ask("c1", ask("c0", sub(0))), ask("c1", pub(0)))
    assert script.got("c0") == [0]


@dynamic
def test_h3_two_participants_that_ask_each_other_do_not_wait_for_ever(protocol: Protocol) -> None:
    setup = [("c0", adv(3)), ("c1", sub(3)), ("c2", sub(3)), ("c0", adv(0, 1))]
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b0", "c2": "b1"}, setup)
    asked = call(3, c1=[ask("c2", sub(0))], c2=[ask("c1", sub(1))])
    committed_alone(script, "c0", protocol, asked, pub(0), pub(1))
    assert (script.got("c1"), script.got("c2")) == ([1], [0])


@dynamic
def test_h4_an_advertisement_attracts_what_went_elsewhere_before(protocol: Protocol) -> None:
    setup = [("c3", adv(0)), ("c2", sub(0, 1))]
    script = Script(line("b0", "b1", "b2"), {"c3": "b0", "c2": "b1", "c0": "b2"}, setup)
    committed_alone(script, "c0", protocol, adv(1), pub(1))
    assert script.got("c2") == [1]


@dynamic
def test_h5_a_commit_does_not_undo_what_another_committed_meanwhile(protocol: Protocol) -> None:
    setup = [("c0", adv(2)), ("c2", adv(1)), ("c2", sub(0))]
    script = Script(ONE, {"c0": "b0", "c1": "b0", "c2": "b0"}, setup)
    one = script.transaction("c1", protocol, adv(0))
    other = script.transaction("c0", protocol, sub(1), pub(2))
    script.run()
    assert [script.outcome(one), script.outcome(other)] == ["committed", "committed"]
    assert script.faults() == []
    assert (script.reaches("c1", 0), script.reaches("c2", 1)) == ({"c2"}, {"c0"})


def skew(protocol: Protocol) -> tuple[str, str, Script]:
    """Each publishes what the other subscribes to; the one with the smaller key is slower."""
    setup = [("c0", adv(0, 1)), ("c1", adv(0, 1))]
    script = Script(ONE, {"c0": "b0", "c1": "b0"}, setup)
    script.slow({"c0>b0": 5}, at=2)
    first = script.transaction("c0", protocol, pub(0), sub(1))
    second = script.transaction("c1", protocol, pub(1), sub(0))
    script.run()
    assert script.faults() == []
    assert script.got("c0") == script.got("c1") == []
    return script.outcome(first), script.outcome(second), script


def test_h6_of_two_that_miss_each_other_the_larger_key_waits_and_conflicts() -> None:
    first, second, script = skew("d-tx")
    assert (first, second) == ("committed", "aborted")
    assert script.reaches("c1", 1) == {"c0"}


def test_h6_without_waiting_the_smaller_key_is_late() -> None:
    first, second, script = skew("d-tx-optimistic")
    assert (first, second) == ("aborted", "committed")
    assert script.reaches("c0", 0) == {"c1"}


def test_h6_a_subscription_whose_place_is_before_a_publication_that_missed_it_is_late() -> None:
    script = Script(ONE, {"c0": "b0", "c1": "b0"}, [("c1", adv(1))])
    script.slow({"c0>b0": 8}, at=2)
    subscribing = script.transaction("c0", "d-tx-optimistic", sub(1))
    publishing = script.transaction("c1", "d-tx-optimistic", pub(1))
    script.run()
    assert script.faults() == []
    assert (script.outcome(subscribing), script.outcome(publishing)) == ("aborted", "committed")
    assert "too late" in script.reason(subscribing)


def test_h6_a_transaction_that_a_broker_hears_of_after_a_larger_has_its_vote_is_late() -> None:
    setup = [("c0", adv(0)), ("c3", adv(1))]
    script = Script(line("b0", "b1"), {"c0": "b0", "c2": "b1", "c3": "b1"}, setup)
    script.slow({"b0>b1": 8}, at=9.5)  # the smaller one's begin; b1 votes on the larger one at 11
    smaller = script.transaction("c0", "d-tx", pub(0), ask("c2", sub(1)), at=9)
    larger = script.transaction("c3", "d-tx", pub(1), sub(0))
    script.run()
    assert script.faults() == []
    assert (script.outcome(smaller), script.outcome(larger)) == ("aborted", "committed")
    assert "too late" in script.reason(smaller)
    assert (script.got("c2"), script.got("c3")) == ([], [])


@isolated
def test_h7_transactions_with_another_base_are_waited_for_too(protocol: Protocol) -> None:
    homes = {"c0": "b0", "c1": "b0", "c2": "b0"}
    script = Script(ONE, homes, [("c1", adv(0, 1)), ("c2", adv(0, 1))])
    script.slow({"c1>b0": 30}, at=7.5)  # c1's commit is long under way
    between = script.transaction("c0", protocol, sub(2), at=0.5)
    in_doubt = script.transaction("c1", protocol, pub(1), sub(0))
    after = script.transaction("c2", protocol, pub(0), sub(1), at=12)
    script.run()
    assert script.faults() == []
    assert [script.outcome(t) for t in (between, in_doubt, after)] == ["committed", "committed", "aborted"]
    assert "conflict" in script.reason(after)


@isolated
def test_h8_a_smaller_id_that_comes_later_and_alone_commits(protocol: Protocol) -> None:
    script = Script(ONE, {"c0": "b0", "c1": "b0"}, [("c0", adv(0))])
    before = script.transaction("c1", protocol, sub(0))
    after = script.transaction("c0", protocol, pub(0), at=50)
    script.run()
    assert script.faults() == []
    assert (script.outcome(before), script.outcome(after)) == ("committed", "committed")
    assert script.got("c1") == [0]


@isolated
def test_h9_a_tcm_beside_a_move_reaches_somebody(protocol: Protocol) -> None:
    setup = [("c0", adv(0)), ("c3", sub(0))]
    script = Script(line("b0", "b1"), {"c0": "b0", "c2": "b0", "c3": "b1"}, setup)
    script.slow({"b1>b0": 15}, at=20)  # the move's commit, on its way to where the tcm starts
    move = script.transaction("c3", protocol, usub(0), ask("c2", sub(0)))
    ask_owner = script.transaction("c0", protocol, call(0, c2=[], c3=[]), at=22)
    script.run()
    assert script.faults() == []
    assert (script.outcome(move), script.outcome(ask_owner)) == ("committed", "committed")
    assert script.asked(ask_owner) == {"{'s': 'd', 'x': 0}": {"c2"}}


@dynamic
def test_h10_a_transaction_does_not_conflict_with_itself(protocol: Protocol) -> None:
    script = Script(ONE, {"c0": "b0", "c1": "b0"}, [("c0", adv(0))])
    committed_alone(script, "c0", protocol, ask("c1", sub(0)), pub(0))
    assert script.got("c1") == [0]


def test_h9_a_tcm_to_who_has_moved_away_since_conflicts() -> None:
    setup = [("c0", adv(0)), ("c3", sub(0))]
    script = Script(line("b0", "b1"), {"c0": "b0", "c2": "b0", "c1": "b1", "c3": "b1"}, setup)
    script.slow({"c1>b1": 20}, at=17)  # the move's question for votes, when its operations are done
    move = script.transaction("c1", "d-tx", ask("c3", usub(0)), ask("c2", sub(0)))
    ask_owner = script.transaction("c2", "d-tx", ask("c0", call(0, c2=[], c3=[])), at=8)
    script.run()
    assert script.faults() == []
    assert (script.outcome(move), script.outcome(ask_owner)) == ("committed", "aborted")
    assert script.asked(ask_owner)["{'s': 'd', 'x': 0}"] == {"c3"}


@pytest.mark.parametrize(
    ("protocol", "outcomes"),
    [
        ("d-tx", ("committed", "aborted")),  # the larger key waits, and finds a conflict
        ("d-tx-optimistic", ("aborted", "committed")),  # it has voted: the smaller is late
    ],
)
def test_h11_of_an_advertisement_and_a_subscription_that_missed_each_other_one_is_aborted(
    protocol: Protocol, outcomes: tuple[str, str]
) -> None:
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1"})
    advertising = script.transaction("c0", protocol, adv(0))
    subscribing = script.transaction("c1", protocol, sub(0))
    script.run()
    assert script.faults() == []
    assert (script.outcome(advertising), script.outcome(subscribing)) == outcomes


def test_h11_an_advertisement_that_missed_a_subscription_conflicts() -> None:
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1"})
    subscribing = script.transaction("c0", "d-tx", sub(0))
    advertising = script.transaction("c1", "d-tx", adv(0))
    script.run()
    assert script.faults() == []
    assert (script.outcome(subscribing), script.outcome(advertising)) == ("committed", "aborted")


@isolated
def test_h11_a_vote_that_comes_after_an_advertisement_has_committed_is_no(protocol: Protocol) -> None:
    homes = {"c0": "b1", "c1": "b2", "c2": "b3", "c3": "b3"}
    setup = [("c3", sub(0)), ("c3", adv(1))]
    script = Script((("b0", "b1"), ("b0", "b2"), ("b0", "b3")), homes, setup)
    script.slow({"c2>b3": 60}, at=23)  # all its operations are done: the question for votes is slow
    subscribing = script.transaction("c2", protocol, ask("c1", sub(0)), sub(1))
    advertising = script.transaction("c0", protocol, adv(0), at=5)
    publishing = script.transaction("c0", protocol, ask("c3", pub(1)), pub(0), at=60)
    script.run()
    assert script.faults() == []
    outcomes = [script.outcome(t) for t in (subscribing, advertising, publishing)]
    assert outcomes == ["aborted", "committed", "committed"]
    assert [script.got(client) for client in ("c1", "c2", "c3")] == [[], [], [0]]


@dynamic
def test_h12_records_of_a_client_that_arrive_out_of_order_keep_their_order(protocol: Protocol) -> None:
    setup = [("c0", adv(1)), ("c1", sub(0, 1))]
    script = Script(line("b0", "b1"), {"c0": "b1", "c1": "b0"}, setup)
    script.transaction("c1", protocol, usub(0), sub(0, 1))
    script.transaction("c0", protocol, adv(0), pub(0), at=60)
    script.run()
    assert script.faults() == []
    assert script.got("c1") == [0]


@isolated
def test_h13_what_was_advertised_between_vote_and_commit_gets_the_subscription(protocol: Protocol) -> None:
    script = Script(line("b0", "b1", "b2"), {"c0": "b0", "c1": "b2"})
    started = script.transaction("c1", protocol, sub(0))
    script.regular("c0", adv(0), at=9)  # at b2 between its vote, at 9, and the commit, at 15
    script.run()
    assert script.faults() == []
    assert script.outcome(started) == "committed"
    assert script.reaches("c0", 0) == {"c1"}


@dynamic
@pytest.mark.parametrize("crashes", [False, True], ids=["abort", "crash"])
def test_h14_an_abort_that_overtakes_the_answers_to_begin_leaves_nothing(
    protocol: Protocol, crashes: bool
) -> None:
    script = Script(line("b0", "b1", "b2"), {"c0": "b0", "c1": "b2"})
    script.slow({"b2>b1": 20})
    started = script.transaction("c0", protocol, sub(0), aborts_at=None if crashes else 1.5)
    if crashes:
        script.crash("c0", at=1.5)
    script.run()
    assert script.faults() == []
    assert script.history.transactions[started.tx].aborted_at == {"b0", "b1", "b2"}


@dynamic
def test_h15_nobody_waits_for_a_coordinator_that_is_gone(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1", "c2": "b1"}, [("c1", adv(0))])
    script.slow({"b1>c2": 500})
    script.transaction("c0", protocol, ask("c2", sub(0)))
    waiting = script.transaction("c1", protocol, pub(0))
    script.crash("c0", at=30)
    script.run()
    assert script.faults() == []
    assert script.outcome(waiting) == "committed"
    assert waiting.ended < 60


@dynamic
def test_h15_a_participant_that_is_gone_aborts_the_transaction(protocol: Protocol) -> None:
    setup = [("c0", adv(0)), ("c2", sub(0))]
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1", "c2": "b1"}, setup)
    script.slow({"b1>c1": 500})
    started = script.transaction("c0", protocol, pub(0), ask("c1", sub(0)))
    script.crash("c1", at=30)
    script.run()
    assert script.faults() == []
    assert (script.outcome(started), script.got("c2")) == ("aborted", [])
    assert "c1 is gone" in script.reason(started)


@dynamic
def test_h15_a_coordinator_whose_commit_is_lost_has_delivered_nothing_to_itself(protocol: Protocol) -> None:
    setup = [("c1", adv(0)), ("c0", sub(0)), ("c2", sub(0))]
    script = Script(ONE, {"c0": "b0", "c1": "b0", "c2": "b0"}, setup)
    script.slow({"c0>b0": 50}, at=11.5)  # its commit, which is sent at 12
    script.transaction("c0", protocol, ask("c1", pub(0)))
    script.crash("c0", at=14, lost=1)
    script.run()
    (transaction,) = script.history.transactions.values()
    assert [m.name for m in script.world.moments if m.node == "b0" and m.name == "voted"] == ["voted"]
    assert transaction.aborted_at == {"b0"}
    assert (script.got("c0"), script.got("c2")) == ([], [])
    assert script.faults() == []


@dynamic
def test_h15_a_coordinator_that_aborts_sends_nothing_more_from_its_other_frames(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"c3": "b0", "c0": "b1", "c1": "b1"}, [("c3", adv(0)), ("c1", sub(0))])
    script.slow({"c3>b0": 10}, at=12.5)  # its abort; the first publication is acknowledged at 16
    started = script.transaction("c3", protocol, ask("c0", ask("c3", pub(0), pub(0))), aborts_at=13)
    script.run()
    assert script.faults() == []
    assert (script.outcome(started), script.got("c1")) == ("aborted", [])


@dynamic
def test_h16_filters_that_share_an_attribute_and_no_value_do_not_overlap(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1"}, [("c0", adv(0))])
    committed_alone(script, "c1", protocol, sub(1))
    assert any("x = 1" in text for text in script.tables()["b1"])
    assert not any("x = 1" in text for text in script.tables()["b0"])


def test_n1_an_aborted_record_goes_also_where_another_transaction_has_brought_it() -> None:
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1", "c2": "b1"}, [("c1", sub(0))])
    script.slow({"b1>c2": 60})
    aborted = script.transaction("c1", "d-tx-ni", usub(0), ask("c2", sub(3)), aborts_at=40)
    carrying = script.transaction("c0", "d-tx-ni", adv(0), at=10)
    script.run()
    assert script.faults() == []
    assert (script.outcome(aborted), script.outcome(carrying)) == ("aborted", "committed")
    assert script.reaches("c0", 0) == {"c1"}


def test_n2_what_is_subscribed_beside_a_withdrawal_that_is_aborted_arrives() -> None:
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1", "c2": "b1"}, [("c0", adv(0))])
    script.slow({"b1>c2": 60})
    aborted = script.transaction("c0", "d-tx-ni", uadv(0), ask("c2", sub(3)), aborts_at=40)
    subscribing = script.transaction("c1", "d-tx-ni", sub(0), at=10)
    script.run()
    assert script.faults() == []
    assert (script.outcome(aborted), script.outcome(subscribing)) == ("aborted", "committed")
    assert script.reaches("c0", 0) == {"c1"}


def test_n3_a_record_of_an_aborted_transaction_is_not_passed_on_to_who_has_forgotten_it() -> None:
    homes = {"c0": "b1", "c1": "b2", "c2": "b3", "c3": "b3"}
    script = Script((("b0", "b1"), ("b0", "b2"), ("b0", "b3")), homes)
    script.slow({"b3>c2": 80})
    script.slow({"b2>b0": 25}, at=19)  # what the advertisement attracts at b2
    aborted = script.transaction("c3", "d-tx-ni", ask("c1", sub(0)), ask("c2", sub(3)), aborts_at=24)
    advertising = script.transaction("c0", "d-tx-ni", adv(0), at=12)
    script.run()
    assert script.faults() == []
    assert (script.outcome(aborted), script.outcome(advertising)) == ("aborted", "committed")
    assert script.reaches("c0", 0) == set()
