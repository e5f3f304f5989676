"""Schedules to order for what happens behind transactions, as in `tests.mutations.schedules`.

Beside the checks, each looks itself at what it was written for: who has committed, who got what, what is left.
"""

from __future__ import annotations

from random import Random

from broker.protocol.hops import Hop
from broker.protocol.vocabulary import Protocol
from tests.mutations.schedules import STAR, Faults
from tests.support.scripted import CROSSING_S, Script, Started, adv, ask, line, pub, sub, uadv, usub

BOUND_S = 2.0


def a_slow_one_beside_fast_ones_elsewhere() -> Faults:
    """H17: a larger key commits meanwhile, on another space."""
    script = Script(line("b1", "b2"), {"c1": "b1", "c2": "b2"}, [("c1", adv(0)), ("c2", adv(1))])
    script.slow({"c1>b1": 20})
    slow = script.transaction("c1", "d-tx", sub(0), pub(0))
    script.transaction("c2", "d-tx-optimistic", pub(1), at=30)
    return [*script.run().faults(), *_uncommitted(script, slow)]


def others_wait_for_a_silent_one() -> Faults:
    """H18: it has begun, and says nothing more."""
    script = Script(line("b1", "b2"), {"c0": "b1", "c1": "b2"}, [("c1", adv(0))])
    script.slow({"c0>b1": 1e6}, at=0.5)
    script.transaction("c0", "d-tx")
    return _late(script, script.transaction("c1", "d-tx", pub(0), at=20))


def others_wait_for_one_that_does_not_decide() -> Faults:
    """H18: it has subscribed to what they publish, knows the votes, and says nothing more."""
    script = Script(line("b1", "b2"), {"c0": "b1", "c1": "b2"}, [("c1", adv(0))])
    script.slow({"c0>b1": 1e5}, at=11)
    script.transaction("c0", "d-tx", sub(0))
    return _late(script, script.transaction("c1", "d-tx", pub(0), at=40))


def events_cross_a_commit(
    protocol: Protocol = "d-tx", coordinator: str = "b2", owner: str = "b3", at: float = 30
) -> Faults:
    """H19: the publisher's broker learns of the commit last."""
    homes = {"C": coordinator, "D": "b2", "A": owner, "E": "b1"}
    script = Script(STAR, homes, [("E", adv(0)), ("D", sub(0))])
    script.transaction("C", protocol, ask("A", sub(0)), ask("D", usub(0)))
    script.slow({"b0>b1": 40}, at=at)
    for time in range(1, 160):
        script.regular("E", pub(0), at=time)
    faults = script.run().faults()
    reached = {d.op for d in script.history.deliveries if d.client in ("A", "D")}
    lost = [o.op for o in script.history.regular["E"] if o.op not in reached]
    return [*faults, *(("recipients", f"regular pub {op} reached nobody") for op in lost)]


def events_cross_the_commit_of_a_plan() -> Faults:
    return events_cross_a_commit("s-tx", at=8)


def events_cross_a_commit_from_the_middle() -> Faults:
    """Three brokers answer to the coordinator's, one after the other."""
    return events_cross_a_commit(coordinator="b0", owner="b1", at=28.5)


def somebody_moves_away_at_the_edge() -> Faults:
    """H19: the last to hear that it is over is the edge broker of the old owner."""
    homes = {"C": "b2", "D": "b1", "A": "b3", "E": "b2"}
    script = Script(STAR, homes, [("E", adv(0)), ("D", sub(0))])
    script.transaction("C", "d-tx", ask("A", sub(0)), ask("D", usub(0)))
    return script.run().faults()


def a_publication_follows_a_move() -> Faults:
    """H19: it has begun before, comes when not all know that the move is over, and must see it all the same."""
    homes = {"C": "b2", "D": "b2", "A": "b3", "E": "b1", "F": "b1"}
    script = Script(STAR, homes, [("E", adv(0)), ("D", sub(0))])
    script.slow({"F>b1": 40, "b3>b0": 30}, at=39.5)
    script.transaction("C", "d-tx", ask("A", sub(0)), ask("D", usub(0)))
    second = script.transaction("E", "d-tx", ask("F", sub(3)), pub(0), at=28)
    return [*script.run().faults(), *_uncommitted(script, second)]


def moves_there_and_back(protocol: Protocol = "d-tx") -> Faults:
    """H20: six of them, each undoing the one before."""
    homes = {"E": "b1", "D": "b2", "A": "b3", "F": "b3"}
    setup = [("E", adv(0, 1)), ("F", adv(0, 1)), ("D", sub(0, 1))]
    script = Script(line("b1", "b2", "b3"), homes, setup)
    before = script.tables()
    for pair in range(3):
        script.transaction("E", protocol, ask("D", ask("A", sub(0)), usub(0)), pub(0), at=1600.0 * pair)
        script.transaction("E", protocol, ask("A", ask("D", sub(0)), usub(0)), pub(0), at=1600.0 * pair + 800)
    faults = script.run().faults()
    grown = {name for name, rows in script.tables().items() if len(rows) > len(before[name])}
    return [*faults, *(("residue", f"the tables of {name} have grown") for name in sorted(grown))]


def plans_there_and_back() -> Faults:
    return moves_there_and_back("s-tx")


def a_record_is_compacted_under_an_open_transaction() -> Faults:
    """H20: what its advertisement has attracted goes, and that is no conflict."""
    homes = {"E": "b1", "D": "b2", "F": "b3"}
    script = Script(line("b1", "b2", "b3"), homes, [("E", adv(0)), ("D", sub(0, 1)), ("D", usub(0))])
    script.transaction("E", "d-tx", ask("D", sub(0)), at=0)  # covers the usub, and has no effect then
    script.slow({"F>b3": 1200}, at=44)  # it has attracted all of them, and asks for the votes late
    late = script.transaction("F", "d-tx", adv(0, 1), at=36)
    return [*script.run().faults(), *_uncommitted(script, late)]


def a_subscription_ends_while_nobody_advertises() -> Faults:
    """H20: b1 has heard of the subscription, and not of its end, when somebody there advertises again."""
    script = Script(line("b1", "b2"), {"E": "b1", "D": "b2"}, [("E", adv(0)), ("D", sub(0))])
    script.regular("E", uadv(0))
    script.transaction("D", "d-tx-ni", usub(0, 1), at=20)
    script.regular("E", adv(0), at=1600)
    return script.run().faults()


def a_participant_comes_back_where_others_are_awaited() -> Faults:
    """H21: the question waits at b3 for R, and the `tcm` to Q is still on its way when there is another Q."""
    homes = {"C": "b1", "P": "b2", "Q": "b3", "R": "b3", "S": "b1"}
    script = Script(STAR, homes, [("Q", adv(0)), ("S", sub(0))])
    script.slow({"R>b3": 20})
    script.slow({"b0>b3": 60}, at=3.5)
    script.transaction("C", "s-tx-safe", ask("R", sub(1)), ask("P", ask("Q", pub(0))))
    script.crash("Q", at=10)
    script.come_back("Q", at=10.5)
    return script.run().faults()


def an_undecided_record_hides_a_candidate() -> Faults:
    """H20: a plan that will be aborted subscribes to more than what is looked at meanwhile."""
    homes = dict.fromkeys("EDFGH", "b1")
    script = Script((), homes, [("E", adv(0, 1, 2, 3))])
    script.slow({"H>b1": 300, "G>b1": 1500})
    script.transaction("F", "d-tx-ni", ask("H", sub(2)))  # open when the record has become everybody's
    script.transaction("E", "d-tx-ni", ask("D", sub(0)), at=20)
    script.transaction("E", "s-tx", ask("D", sub(0, 1)), ask("G", sub(3)), at=600, aborts_at=1300)
    return script.run().faults()


def a_repair_is_sent_with_its_commit() -> Faults:
    """H13: of the two, what is sent second takes its time, while the advertiser that it is for publishes."""
    homes = {"z": "b0", "y": "b0", "a": "b2"}
    script = Script(line("b0", "b1", "b2"), homes)
    latency, sent = script.world._latency, list[float]()

    def slow_in_the_end(random: Random, source: Hop, target: Hop) -> float:
        usual_s = latency(random, source, target)
        if (source, target) != (
            "broker:b2",
            "broker:b1",
        ) or script.world.now < script.start + 14.5 * CROSSING_S:
            return usual_s
        sent.append(script.world.now)
        return usual_s * (1 if len(sent) == 1 else 40)

    script.world._latency = slow_in_the_end
    script.slow({"y>b0": 20}, at=6)
    script.transaction("a", "d-tx", sub(0))
    script.regular("z", adv(0), at=9)
    last = script.transaction("z", "d-tx", ask("y", sub(3)), pub(0))
    faults = [*script.run().faults(), *_uncommitted(script, last)]
    # The checks claim nothing beside regular advertisements; this one is everywhere long before.
    return faults if script.got("a") == [0] else [*faults, ("recipients", f"{last.tx} was missed by a")]


def a_void_comes_where_the_plan_has_ended() -> Faults:
    """S-H23: b2 finds that nobody is there to ask when b1 has ended the plan, and b4 waits for what is nested in it."""
    homes = {"C": "b3", "P": "b4", "Q": "b2"}
    script = Script(line("b4", "b3", "b1", "b2"), homes)
    script.slow({"b3>b1": 3})
    script.crash("Q", at=7.5)
    script.transaction("C", "s-tx", ask("P", ask("Q", ask("P", sub(3)))))
    return script.run().faults()


def an_advertisement_fetches_what_a_plan_has_hidden() -> Faults:
    """H19: b0 has committed when it gets D's `usub`, and A, who takes over, has not even subscribed."""
    script = Script(STAR, {"C": "b2", "D": "b2", "A": "b3", "E": "b1"}, [("D", sub(0))])
    script.slow({"A>b3": 40})
    script.transaction("C", "s-tx", ask("A", sub(0)), ask("D", usub(0)))
    return _unreached(script, advertised_at=8)


def an_advertisement_fetches_what_a_commit_has_hidden() -> Faults:
    """H19: the same with D-TX; that all have committed comes to b3 long after the advertisement."""
    script = Script(STAR, {"C": "b2", "D": "b2", "A": "b3", "E": "b1"}, [("D", sub(0))])
    script.transaction("C", "d-tx", ask("A", sub(0)), ask("D", usub(0)))
    script.slow({"b0>b3": 30}, at=22)
    return _unreached(script, advertised_at=25)


def _unreached(script: Script, advertised_at: float) -> Faults:
    """E advertises, and publishes when that has gone round among those that it takes no time to reach."""
    script.regular("E", adv(0), at=advertised_at)
    for time in range(6, 60):
        script.regular("E", pub(0), at=advertised_at + time)
    faults = script.run().faults()
    reached = {d.op for d in script.history.deliveries if d.client in ("A", "D")}
    lost = [o.op for o in script.history.regular["E"] if o.kind == "pub" and o.op not in reached]
    return [*faults, *(("recipients", f"regular pub {op} reached nobody") for op in lost)]


def _uncommitted(script: Script, *transactions: Started) -> Faults:
    return [
        ("liveness", f"{t.tx} of {t.client}: {script.outcome(t)}, {script.reason(t)}")
        for t in transactions
        if script.outcome(t) != "committed"
    ]


def _late(script: Script, other: Started) -> Faults:
    script.run()
    took_s = (other.ended - other.began) * CROSSING_S
    late = [("liveness", f"it took {took_s:.1f} s")] if took_s > BOUND_S else []
    return [*_uncommitted(script, other), *late]
