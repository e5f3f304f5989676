"""S-TX where the paper's algorithm fails: each hole's schedule, and what happens in it here.

The names are those of the holes in docs/protocols.md. Every schedule is also put to all the checks:
atomicity, order, recipients, tables that have converged, and nothing left of what has ended.
"""

from __future__ import annotations

import pytest

from broker.protocol.vocabulary import PROTOCOLS, Protocol
from labctl.simulate.programs.generate import GENERATORS
from labctl.simulate.programs.programs import Op
from labctl.simulate.runner import simulate
from tests.support.scripted import Script, Started, adv, ask, line, pub, sub, uadv, usub

PLANNED: tuple[Protocol, ...] = ("s-tx", "s-tx-safe")
ONE: tuple[()] = ()
"""A single broker."""

planned = pytest.mark.parametrize("protocol", PLANNED)
every = pytest.mark.parametrize("protocol", PROTOCOLS)


def committed(script: Script, client: str, protocol: Protocol, *body: Op, at: float = 0.0) -> Started:
    """Run a transaction that has no reason to fail."""
    started = script.transaction(client, protocol, *body, at=at)
    script.run()
    assert script.outcome(started) == "committed"
    assert script.faults() == []
    return started


def dispatch(instance: int = 0) -> tuple[Op, ...]:
    return (ask("D", ask("A", sub(instance)), usub(instance)), pub(instance))


@every
def test_h1_on_one_broker_the_publication_waits_for_the_switch(protocol: Protocol) -> None:
    setup = [("E", adv(0, 1)), ("D", sub(0, 1))]
    script = Script(ONE, {"E": "b0", "D": "b0", "A": "b0"}, setup)
    committed(script, "E", protocol, *dispatch())
    assert (script.got("A"), script.got("D")) == ([0], [])


@every
def test_h1_a_broker_that_no_step_passes_does_not_wait_for_one(protocol: Protocol) -> None:
    setup = [("E", adv(0, 1)), ("D", sub(0, 1))]
    script = Script(line("b0", "b1"), {"E": "b1", "D": "b1", "A": "b1", "B": "b0"}, setup)
    committed(script, "E", protocol, *dispatch())
    assert (script.got("A"), script.got("D")) == ([0], [])


@every
def test_h1_a_second_advertiser_on_the_subscribers_side_does_not_hide_the_first(protocol: Protocol) -> None:
    setup = [("E", adv(0)), ("P", adv(0)), ("D", sub(0))]
    script = Script(line("b0", "b1", "b2"), {"E": "b0", "D": "b1", "A": "b2", "P": "b2"}, setup)
    committed(script, "E", protocol, *dispatch())
    assert (script.got("A"), script.got("D")) == ([0], [])
    assert script.reaches("P", 0) == script.reaches("E", 0) == {"A"}


@planned
def test_h2_the_commit_does_not_overtake_publications_of_others(protocol: Protocol) -> None:
    script = Script(ONE, {"C": "b0", "E": "b0"}, [("E", adv(0, 1)), ("C", sub(0, 1))])
    script.slow({"E>b0": 10})
    started = committed(script, "C", protocol, ask("E", pub(0), pub(1)))
    assert script.got("C") == [0, 1]
    assert started.ended > 12


@planned
def test_h2_news_of_a_publication_do_not_overtake_it(protocol: Protocol) -> None:
    """At b1 the publication waits for A's step; what tells that it has left E's broker has to wait too."""
    homes = {"E": "b0", "A": "b1", "C": "b2", "S": "b2"}
    script = Script(line("b0", "b1", "b2"), homes, [("E", adv(0)), ("S", sub(0))])
    script.slow({"A>b1": 30})
    committed(script, "C", protocol, ask("E", ask("A", sub(1)), pub(0)))
    assert script.got("S") == [0]


@planned
def test_h3_the_commit_waits_at_the_edge_for_what_its_client_was_asked_for(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"T": "b0", "c1": "b1"})
    script.slow({"c1>b1": 30})
    script.regular("T", adv(0), at=90)
    committed(script, "T", protocol, ask("c1", sub(0)))  # which nobody advertises yet
    assert script.reaches("T", 0) == {"c1"}


@every
def test_h4_figure_2_runs_when_the_attracted_subscription_is_slow(protocol: Protocol) -> None:
    script = Script(line("b1", "b0"), {"C1": "b1", "C2": "b0"}, [("C2", sub(0)), ("C1", adv(1))])
    script.slow({"b0>b1": 12})
    committed(script, "C1", protocol, adv(0), ask("C2", sub(1)), pub(1), pub(0))
    assert script.got("C2") == [1, 0]


@every
def test_h4_a_publication_waits_for_all_that_its_advertisement_attracts(protocol: Protocol) -> None:
    homes = {"C1": "b1", "C2": "b2", "C3": "b3"}
    script = Script(line("b1", "b2", "b3"), homes, [("C2", sub(0)), ("C3", sub(0))])
    script.slow({"b3>b2": 12})
    committed(script, "C1", protocol, adv(0), pub(0))
    assert (script.got("C2"), script.got("C3")) == ([0], [0])


@every
def test_h5_a_step_that_becomes_due_while_others_wait_is_waited_for(protocol: Protocol) -> None:
    homes = {"c1": "b0", "T": "b1", "c2": "b2"}
    script = Script(line("b0", "b1", "b2"), homes)
    script.slow({"b0>b1": 15, "b2>b1": 9})
    committed(script, "T", protocol, ask("c1", adv(0)), ask("c2", sub(0)), ask("c1", pub(0)))
    assert script.got("c2") == [0]


@planned
def test_h5_a_step_that_is_not_due_any_more_is_not_waited_for(protocol: Protocol) -> None:
    homes = {"c1": "b0", "T": "b0", "c2": "b2"}
    script = Script(line("b0", "b1", "b2"), homes, [("c1", adv(0))])
    script.slow({"c2>b2": 25})
    script.regular("c1", uadv(0), at=8)
    committed(script, "T", protocol, ask("c2", sub(0)))
    assert not any("x = 0" in text for text in script.tables()["b1"] if text.startswith("sub"))


@planned
def test_h6_publications_are_kept_by_their_receivers_and_not_by_brokers(protocol: Protocol) -> None:
    script = Script(ONE, {"T": "b0", "c1": "b0", "c2": "b0"}, [("T", adv(0)), ("c1", sub(0)), ("c1", adv(1))])
    committed(script, "T", protocol, pub(0), ask("c2", sub(1)), ask("c1", pub(1)), pub(0))
    assert (script.got("c1"), script.got("c2")) == ([0, 0], [1])


@every
def test_h6_publications_are_delivered_in_the_order_of_the_plan(protocol: Protocol) -> None:
    setup = [("T", adv(1)), ("Q", adv(0)), ("S", sub(0, 1))]
    script = Script(line("b0", "b1"), {"T": "b0", "S": "b0", "Q": "b1"}, setup)
    script.slow({"Q>b1": 20})  # what it publishes first arrives last
    committed(script, "T", protocol, ask("Q", pub(0)), pub(1))
    assert script.got("S") == [0, 1]


@every
def test_h7_a_publication_does_not_see_what_comes_after_it_in_the_plan(protocol: Protocol) -> None:
    homes = {"T": "b0", "X": "b1", "Y": "b1", "Q": "b2"}
    setup = [("Q", adv(0)), ("X", sub(0))]
    script = Script((("b0", "b1"), ("b0", "b2")), homes, setup)
    script.slow({"Q>b2": 20})
    committed(script, "T", protocol, ask("Q", pub(0)), ask("X", usub(0)), ask("Y", sub(0)))
    assert (script.got("X"), script.got("Y")) == ([0], [])
    assert script.reaches("Q", 0) == {"Y"}


@every
def test_h8_what_a_client_said_last_decides_also_where_it_arrives_first(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"c0": "b0", "c2": "b1"}, [("c0", adv(1))])
    script.regular("c0", adv(0), at=60)  # attracts the subscription, long after what took it back
    committed(script, "c2", protocol, sub(0), usub(0, 1))
    assert script.reaches("c0", 0) == set()


@every
def test_h9_what_was_taken_back_follows_an_advertisement_too(protocol: Protocol) -> None:
    setup = [("c3", adv(3)), ("c0", sub(3)), ("c3", uadv(3))]
    script = Script(line("b0", "b1"), {"c0": "b0", "c3": "b1"}, setup)
    script.regular("c3", adv(3), at=60)
    committed(script, "c0", protocol, usub(3))
    assert script.reaches("c3", 3) == set()
    assert script.world.brokers["b1"].routing.next_hops({"s": "d", "x": 3}, "client:c3") == ()


RESTORED = {
    "a part of a subscription": ([sub(0, 1, 2, 3)], [sub(1)], {0, 1, 2, 3}),
    "more than was subscribed": ([sub(0, 1)], [usub(1, 2, 3)], {0, 1}),
    "nothing, by sub and usub": ([], [sub(0), usub(0)], set()),
    "all, by usub and sub": ([sub(0)], [usub(0), sub(0)], {0}),
}


@every
@pytest.mark.parametrize("case", RESTORED)
def test_h10_an_abort_restores_the_tables(case: str, protocol: Protocol) -> None:
    before, body, wanted = RESTORED[case]
    setup = [("P", adv(0, 1, 2, 3)), *(("A", op) for op in before)]
    script = Script(line("b0", "b1", "b2"), {"P": "b0", "T": "b1", "A": "b2", "Z": "b2"}, setup)
    tables = script.tables()
    script.slow({"b2>Z": 200})
    started = script.transaction("T", protocol, ask("A", *body), ask("Z", sub(0)), aborts_at=60)
    script.run()
    assert script.outcome(started) == "aborted"
    assert script.faults() == []
    assert script.tables() == tables
    assert {value for value in range(4) if script.reaches("P", value)} == wanted


@planned
def test_h11_an_abort_does_not_wait_for_steps_that_have_not_come(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"T": "b0", "c1": "b1"}, [("T", adv(0))])
    script.slow({"b1>c1": 100})
    tables = script.tables()
    started = script.transaction("T", protocol, ask("c1", sub(0)), pub(0), aborts_at=10)
    script.crash("c1", at=20)  # it never gets its tcm, and nobody expects its steps
    script.run()
    assert script.outcome(started) == "aborted"
    assert started.ended < 30
    assert script.faults() == []
    assert not [text for broker in script.tables().values() for text in broker if "of c1" in text]
    assert script.tables()["b0"] == [text for text in tables["b0"] if "of c1" not in text]


@planned
def test_h11_steps_that_come_after_the_abort_are_dropped(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"T": "b0", "c1": "b1"}, [("T", adv(0))])
    script.slow({"c1>b1": 40})
    tables = script.tables()
    started = script.transaction("T", protocol, ask("c1", sub(0)), pub(0), aborts_at=10)
    script.run()
    assert script.outcome(started) == "aborted"
    assert script.faults() == []
    assert script.tables() == tables


def spoilt(protocol: Protocol) -> tuple[str, Script]:
    """c1 is to publish and c2 to subscribe, and c2 is gone; nobody else depends on c2."""
    homes = {"T": "b0", "c1": "b1", "S": "b1", "c2": "b2"}
    script = Script(line("b0", "b1", "b2"), homes, [("c1", adv(0)), ("S", sub(0))])
    script.slow({"b2>c2": 30})
    started = script.transaction("T", protocol, ask("c1", pub(0)), ask("c2", sub(1)))
    script.crash("c2", at=20)
    script.run()
    assert script.faults() == []
    return script.outcome(started), script


def test_h12_with_votes_a_participant_that_is_gone_aborts_the_plan() -> None:
    outcome, script = spoilt("s-tx-safe")
    assert (outcome, script.got("S")) == ("aborted", [])


def test_h12_without_votes_the_rest_of_the_plan_happens_and_the_outcome_is_unknown() -> None:
    outcome, script = spoilt("s-tx")
    assert (outcome, script.got("S")) == ("unknown", [0])


@planned
def test_h12_nobody_waits_for_a_coordinator_that_is_gone(protocol: Protocol) -> None:
    script = Script(line("b0", "b1"), {"T": "b0", "c1": "b1"}, [("T", adv(0))])
    script.slow({"c1>b1": 30})
    started = script.transaction("T", protocol, ask("c1", sub(0)), pub(0))
    script.crash("T", at=10)
    script.run()
    assert script.faults() == []
    assert script.history.transactions[started.tx].aborted_at == {"b0", "b1"}
    assert script.got("c1") == []


@planned
def test_h13_a_tcm_is_for_the_client_that_it_names(protocol: Protocol) -> None:
    homes = {"T": "b0", "c1": "b1", "c2": "b1"}
    script = Script(line("b0", "b1"), homes, [("T", adv(0))])
    script.world.complete(script.world.clients["c2"].subscribe({"s": "c"}))  # reads all control messages
    committed(script, "T", protocol, ask("c1", sub(0)), pub(0))
    assert (script.got("c1"), script.got("c2")) == ([0], [])


@planned
def test_h13_a_tcm_to_nobody_is_refused_at_once(protocol: Protocol) -> None:
    script = Script(ONE, {"T": "b0"}, [("T", adv(0))])
    started = script.transaction("T", protocol, ask("nobody", sub(0)), pub(0))
    script.run()
    assert (script.outcome(started), script.reason(started)) == ("aborted", "there is no client nobody")
    assert started.ended < 10
    assert script.residue() == []


@planned
def test_h14_advertisements_of_two_plans_do_not_wait_for_each_other(protocol: Protocol) -> None:
    homes = {"c0": "b0", "s0": "b0", "c1": "b1", "s1": "b1"}
    script = Script(line("b0", "b1"), homes)
    one = script.transaction("c0", protocol, ask("s0", sub(1)), ask("s1", sub(0)), adv(0), pub(0))
    other = script.transaction("c1", protocol, ask("s1", sub(0)), ask("s0", sub(1)), adv(1), pub(1))
    script.run()
    assert script.faults() == []
    assert (script.outcome(one), script.outcome(other)) == ("committed", "committed")
    assert (script.got("s0"), script.got("s1")) == ([1], [0])


@planned
def test_h15_a_step_that_comes_attracted_from_a_broker_that_has_committed_is_recognised(
    protocol: Protocol,
) -> None:
    script = Script(line("b0", "b1", "b2"), {"c0": "b0", "c1": "b2"})
    script.slow({"b1>b2": 6})
    script.regular("c0", adv(0))  # at b1 at 2, at b2 at 8; c1's plan is at b2 at 1, its commit at b1 at 2
    committed(script, "c1", protocol, sub(0), at=0.5)
    assert script.reaches("c0", 0) == {"c1"}


@planned
def test_h15_a_tcm_that_crosses_a_broker_that_has_committed_still_belongs_to_its_plan(
    protocol: Protocol,
) -> None:
    homes = {"T": "b1", "c1": "b0", "c3": "b2", "c0": "b2"}
    script = Script(line("b0", "b1", "b2"), homes, [("c0", adv(0))])
    script.slow({"b0>b1": 20})
    committed(script, "T", protocol, ask("c1", ask("c3", sub(0))))
    assert script.reaches("c0", 0) == {"c3"}


@planned
def test_h16_what_is_not_sent_is_not_waited_for(protocol: Protocol) -> None:
    """The filters share an attribute and no value: the same test decides for sending and for waiting."""
    script = Script(line("b0", "b1"), {"T": "b0", "c1": "b1"}, [("T", adv(0))])
    committed(script, "T", protocol, ask("c1", sub(1), usub(2)), pub(0))
    assert not any("of c1" in text and "x = 1" in text for text in script.tables()["b0"])


@every
@pytest.mark.parametrize("start", range(0, 48, 3))
def test_h17_a_regular_publication_during_the_switch_reaches_somebody(protocol: Protocol, start: int) -> None:
    setup = [("E", adv(0, 1)), ("D", sub(0, 1))]
    script = Script(line("b0", "b1", "b2"), {"E": "b1", "D": "b0", "A": "b2"}, setup)
    script.slow({"b2>b1": 7})
    script.regular("E", pub(0), at=start + 0.5)
    committed(script, "E", protocol, ask("D", ask("A", sub(0)), usub(0)))
    assert [0] in (script.got("A"), script.got("D"))


def test_h15_a_step_is_known_by_name_also_where_its_transaction_has_ended() -> None:
    """b1 and b3 have ended it when an advertisement fetches the step for b2, which still waits for it."""
    for overlay, homes, slow, moment in (
        (line("b2", "b1", "b3"), {"T": "b1", "P": "b3", "Y": "b2"}, 12, 6),
        (line("b2", "b1", "b3", "b4"), {"T": "b1", "P": "b4", "Y": "b2"}, 30, 14),
    ):
        script = Script(overlay, homes)
        script.slow({"b1>b2": slow})
        script.transaction("T", "s-tx", ask("P", sub(0)))
        script.regular("Y", adv(0), at=moment)
        script.run()
        assert not script.faults()


@pytest.mark.parametrize(
    ("protocol", "generator", "seed"),
    [
        ("s-tx", "crossing", 1453),  # a subscription comes where its transaction has ended already
        ("s-tx", "carve", 5043),  # an advertisement brings a step that a broker waits for, without its name
        ("s-tx", "circular", 64),  # a participant is lost while its publication waits at its edge broker
        ("s-tx-safe", "crossing", 2744),  # a publication begins to wait between vote and commit
    ],
)
def test_schedules_that_once_broke_a_promise_do_not_any_more(
    protocol: Protocol, generator: str, seed: int
) -> None:
    assert simulate(GENERATORS[generator](seed, [protocol])).faults == []


@every
def test_h22_a_step_that_is_asked_for_late_is_older_than_the_steps_behind_it(protocol: Protocol) -> None:
    """C takes back at once what it is asked for by A, and what stands before it in the plan."""
    homes = {"C": "b1", "A": "b2", "E": "b2"}
    script = Script(line("b1", "b2"), homes, [("E", adv(0))])
    committed(script, "C", protocol, ask("A", ask("C", sub(0))), usub(0))
    assert script.reaches("E", 0) == set()


@planned
def test_h22_what_is_said_beside_a_plan_is_newer_than_a_step_that_comes_late(protocol: Protocol) -> None:
    """Its later steps had come before: it cannot be newer than these, nor they than what came after them."""
    homes = {"C": "b1", "A": "b2", "E": "b2"}
    script = Script(line("b1", "b2"), homes, [("E", adv(0, 1))])
    script.slow({"b2>A": 40})
    script.regular("C", sub(0, 1), at=10)
    committed(script, "C", protocol, ask("A", ask("C", usub(1))), usub(0))
    assert script.reaches("E", 0) == script.reaches("E", 1) == {"C"}
