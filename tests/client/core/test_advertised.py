"""What a client's library takes for advertised, when changes are not settled in the order in which they were said."""

from __future__ import annotations

from broker.protocol.filters import make_filter
from client.core.advertised import Advertised, Change
from labctl.simulate.programs.delays import DelayModel
from labctl.simulate.programs.programs import Op, Program, TxProgram
from labctl.simulate.runner import simulate

ADV, UADV = True, False


def change(place: int, positive: bool, x: int = 0, step: int = 0) -> Change:
    return Change((place, step), positive, make_filter({"x": x}))


def test_what_was_said_last_counts_and_not_what_is_settled_last() -> None:
    advertised = Advertised()
    in_transaction, regular = advertised.say(in_transaction=True), advertised.say()
    advertised.settle([regular], [change(regular, UADV)])
    advertised.settle([in_transaction], [change(in_transaction, ADV)])
    assert not advertised.space.contains({"x": 0})


def test_what_was_there_before_stays() -> None:
    advertised = Advertised()
    first = advertised.say()
    advertised.settle([first], [change(first, ADV), change(first, ADV, x=1)])
    in_transaction, regular = advertised.say(in_transaction=True), advertised.say()
    advertised.settle([regular], [change(regular, ADV)])
    advertised.settle([in_transaction], [change(in_transaction, UADV), change(in_transaction, UADV, x=1)])
    assert [advertised.space.contains({"x": x}) for x in (0, 1)] == [True, False]


def test_steps_of_a_plan_count_in_its_order() -> None:
    advertised = Advertised()
    later, earlier = advertised.say(in_transaction=True), advertised.say(in_transaction=True)
    advertised.settle([later, earlier], [change(later, UADV, step=4), change(later, ADV, step=3)])
    assert not advertised.space.contains({"x": 0})


def test_an_isolated_transaction_counts_behind_what_was_accepted_before_its_commit() -> None:
    advertised = Advertised()
    in_transaction, accepted, asked = advertised.say(in_transaction=True), advertised.say(), advertised.say()
    advertised.settle([accepted], [change(accepted, UADV), change(accepted, UADV, x=1)])
    changes = [change(in_transaction, ADV), change(in_transaction, ADV, x=1)]
    advertised.settle([in_transaction], advertised.at_commit([in_transaction], changes))
    advertised.settle([asked], [change(asked, UADV, x=1)])
    assert [advertised.space.contains({"x": x}) for x in (0, 1)] == [True, False]


def test_what_an_isolated_transaction_gave_and_took_is_gone_when_nothing_came_beside_it() -> None:
    """Whatever was under way: here, of a plan, what did not change anything."""
    advertised = Advertised()
    isolated, under_way = advertised.say(in_transaction=True), advertised.say(in_transaction=True)
    changes = [change(isolated, ADV), change(isolated, ADV, x=1), change(isolated, UADV)]
    advertised.settle([isolated], advertised.at_commit([isolated], changes))
    advertised.settle([under_way])
    assert [advertised.space.contains({"x": x}) for x in (0, 1)] == [False, True]


def test_two_isolated_transactions_beside_one_that_comes_to_nothing_count_in_their_order() -> None:
    advertised = Advertised()
    first, second, under_way = (advertised.say(in_transaction=True) for _ in range(3))
    for isolated, changes in ((first, [ADV, UADV, ADV]), (second, [UADV])):
        at_commit = advertised.at_commit([isolated], [change(isolated, positive) for positive in changes])
        advertised.settle([isolated], at_commit)
    advertised.settle([under_way])
    assert not advertised.space.contains({"x": 0})


def test_where_the_broker_alone_knows_the_order_nothing_is_held_back() -> None:
    advertised = Advertised()
    isolated, under_way = advertised.say(in_transaction=True), advertised.say(in_transaction=True)
    advertised.settle([isolated], advertised.at_commit([isolated], [change(isolated, UADV)]))
    advertised.settle([under_way], [change(under_way, ADV)])
    assert advertised.space.contains({"x": 0})


def test_what_was_said_beside_a_transaction_that_this_client_commits_is_not_held_back() -> None:
    """The edge broker has accepted it, perhaps behind another one's commit; then it counts as newer."""
    advertised = Advertised()
    isolated, beside = advertised.say(in_transaction=True), advertised.say()
    advertised.settle([beside], [change(beside, ADV)])
    commit = advertised.pass_on()
    advertised.settle([isolated], advertised.at_commit([isolated], [change(isolated, UADV)], commit))
    assert advertised.space.contains({"x": 0})


def test_what_was_said_before_a_transaction_is_older() -> None:
    """Also if another one is under way that comes to nothing."""
    advertised = Advertised()
    under_way, before, isolated = advertised.say(in_transaction=True), advertised.say(), advertised.say(True)
    advertised.settle([before], [change(before, ADV)])
    advertised.settle([isolated], advertised.at_commit([isolated], [change(isolated, UADV)]))
    advertised.settle([under_way])
    assert not advertised.space.contains({"x": 0})


def test_isolated_transactions_count_in_the_order_of_their_commits_whatever_is_beside_them() -> None:
    advertised = Advertised()
    second, other, first = (advertised.say(in_transaction=True) for _ in range(3))
    for said, positive in ((first, UADV), (second, ADV)):
        advertised.settle([said], advertised.at_commit([said], [change(said, positive)]))
    advertised.settle([other])
    assert advertised.space.contains({"x": 0})


def test_what_comes_to_nothing_changes_nothing_and_nothing_is_kept_behind_it() -> None:
    advertised = Advertised()
    for _ in range(100):
        place = advertised.say(in_transaction=True)
        other = advertised.say()
        advertised.settle([other], [change(other, ADV)])
        advertised.settle([place])
    assert advertised.space.contains({"x": 0})
    assert len(advertised.space.parts()) == 1
    assert not advertised._changes


def test_what_a_plan_asks_for_late_stands_before_what_was_said_behind_its_later_steps() -> None:
    """The second plan is over when the first asks its coordinator back, which has sent a later step of it before."""
    back = Op("tcm", to="c2", nested=(("c2", (Op("uadv", "d", (2,)),)),))
    first = (Op("tcm", to="c4", nested=(("c4", (back,)),)), Op("usub", "d", (3,)))
    plans = (TxProgram("c2", "s-tx", first), TxProgram("c2", "s-tx", (Op("adv", "d", (2,)),)))
    homes = {"c2": "b1", "c4": "b1"}
    program = Program((), ("b1",), homes, (), plans, delays=DelayModel("even"))
    assert simulate(program).faults == []
