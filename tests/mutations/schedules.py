"""Schedules to order, for planted faults whose window random search seldom meets.

Each returns what the checks object to: nothing, unless a fault is planted.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.support.scripted import CROSSING_S, Script, adv, ask, line, pub, sub, uadv, usub

Faults = list[tuple[str, str]]
Schedule = Callable[[], Faults]

STAR = (("b0", "b1"), ("b0", "b2"), ("b0", "b3"))


def a_commit_is_lost_with_its_coordinator() -> Faults:
    """Its edge broker aborts: the coordinator must not have delivered to itself before."""
    script = Script((), {"c0": "b0", "c1": "b0"}, [("c1", adv(0)), ("c0", sub(0))])
    script.slow({"c0>b0": 50}, at=11.5)
    script.transaction("c0", "d-tx", ask("c1", pub(0)))
    script.crash("c0", at=14, lost=1)
    return script.run().faults()


def an_advertisement_comes_between_vote_and_commit() -> Faults:
    """H13: b2 has voted on a subscription when the regular advertisement floods past it."""
    script = Script(line("b0", "b1", "b2"), {"c0": "b0", "c1": "b2"})
    script.transaction("c1", "d-tx", sub(0))
    script.regular("c0", adv(0), at=9)
    return script.run().faults()


def a_subscription_is_repaired_late() -> Faults:
    """H11, the side of the subscription: its commit has come, what it lacks has not, and a third votes."""
    homes = {"c0": "b1", "c1": "b2", "c2": "b3", "c3": "b3"}
    script = Script(STAR, homes, [("c3", sub(0)), ("c3", adv(1))])
    script.slow({"c2>b3": 60}, at=23)  # the subscriber's question for votes: the advertisement is faster
    script.slow({"c2>b3": 1}, at=60)
    script.slow({"b3>b0": 30, "b2>b0": 200}, at=90.5)  # its commit, and the subscription behind it
    script.transaction("c2", "d-tx", ask("c1", sub(0)), sub(1))
    script.transaction("c0", "d-tx", adv(0), at=5)
    script.slow({"b3>c3": 30}, at=60)  # the third publishes from c3 when b3 has committed
    script.transaction("c0", "d-tx", ask("c3", pub(1)), pub(0), at=60)
    return script.run().faults()


def another_transaction_carries_a_record_off() -> Faults:
    """N1: an unsubscription stays at b1 until another transaction's advertisement takes it to b0."""
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1", "c2": "b1"}, [("c1", sub(0))])
    script.slow({"b1>c2": 60})
    script.transaction("c1", "d-tx-ni", usub(0), ask("c2", sub(3)), aborts_at=40)
    script.transaction("c0", "d-tx-ni", adv(0), at=10)
    return script.run().faults()


def a_withdrawal_is_aborted() -> Faults:
    """N2: a subscription comes while the advertisement that it needs is being withdrawn."""
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1", "c2": "b1"}, [("c0", adv(0))])
    script.slow({"b1>c2": 60})
    script.transaction("c0", "d-tx-ni", uadv(0), ask("c2", sub(3)), aborts_at=40)
    script.transaction("c1", "d-tx-ni", sub(0), at=10)
    return script.run().faults()


def an_attracted_record_comes_after_its_abort() -> Faults:
    """N3: b0 has a tomb of the transaction, b1 has none any more, when the record is attracted."""
    homes = {"c0": "b1", "c1": "b2", "c2": "b3", "c3": "b3"}
    script = Script(STAR, homes)
    script.slow({"b3>c2": 80})
    script.slow({"b2>b0": 25}, at=19)
    script.transaction("c3", "d-tx-ni", ask("c1", sub(0)), ask("c2", sub(3)), aborts_at=24)
    script.transaction("c0", "d-tx-ni", adv(0), at=12)
    return script.run().faults()


def a_step_comes_after_its_abort() -> Faults:
    """The same with a plan: the attracted step is under way when the abort overtakes it."""
    homes = {"c0": "b1", "c1": "b2", "c2": "b3", "c3": "b3"}
    script = Script(STAR, homes)
    script.slow({"b3>c2": 80})
    script.slow({"b2>b0": 25}, at=8)
    script.transaction("c3", "s-tx-safe", ask("c1", sub(0)), ask("c2", sub(3)), aborts_at=14)
    script.transaction("c0", "s-tx-safe", adv(0), at=7)
    return script.run().faults()


def a_publication_waits_on_its_way() -> Faults:
    """A7: the publication waits at m for a subscription that is due only there; its news must wait too."""
    links = (("p", "m"), ("x", "m"), ("m", "t"), ("t", "s"))
    homes = {"P": "p", "X": "x", "Y": "m", "T": "t", "S": "s"}
    script = Script(links, homes, [("Y", adv(1)), ("P", adv(2)), ("S", sub(2))])
    script.slow({"X>x": 40})
    script.transaction("T", "s-tx", ask("P", ask("X", sub(1)), pub(2)))
    return script.run().faults()


def advertisements_cross() -> Faults:
    """H14: each of two plans would hold its advertisement back until the other's has passed."""
    script = Script(line("b0", "b1"), {"S": "b1", "X": "b1", "T": "b0", "Z": "b0"})
    script.transaction("S", "s-tx", ask("X", sub(0)), adv(1))
    script.transaction("T", "s-tx", ask("Z", sub(1)), adv(0))
    return script.run().faults()


def a_coordinator_is_asked_while_it_aborts() -> Faults:
    """A17: the abort is under way when the participant asks the coordinator back."""
    script = Script(line("b0", "b1"), {"T": "b0", "D": "b1"}, [("D", adv(0))])
    script.slow({"T>b0": 20}, at=1)
    script.transaction("T", "s-tx-safe", ask("D", ask("T", sub(0))), sub(1), aborts_at=2)
    return script.run().faults()


def a_plan_counts_on_an_advertisement_that_is_aborted() -> Faults:
    """The plan publishes what another transaction of the same client only may advertise."""
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1"}, [("c1", sub(0))])
    script.slow({"b1>c1": 60})
    script.transaction("c0", "d-tx-ni", adv(0), ask("c1", sub(3)), aborts_at=40)
    script.transaction("c0", "s-tx", pub(0), at=15)
    return script.run().faults()


def a_regular_operation_is_newer_than_its_place() -> Faults:
    """O2: a larger key commits, the client changes the same after it, and then the smaller key commits."""
    script = Script((), {"c0": "b0", "c1": "b0", "c2": "b0"}, [("c0", adv(0, 1))])
    script.slow({"b0>c0": 40})
    script.transaction("c1", "d-tx-optimistic", sub(0), ask("c0", pub(0)))
    script.transaction("c2", "d-tx-optimistic", sub(1), at=1)
    script.regular("c1", usub(0), at=20)
    return script.run().faults()


def a_regular_advertisement_is_newer_than_its_place() -> Faults:
    """O2: the same with what the client advertises."""
    script = Script((), {"c0": "b0", "c1": "b0", "c2": "b0"}, [("c2", sub(0))])
    script.slow({"b0>c0": 40})
    script.transaction("c1", "d-tx-optimistic", adv(0), ask("c0", sub(3)))
    script.transaction("c2", "d-tx-optimistic", sub(1), at=1)
    script.regular("c1", uadv(0), at=20)
    return script.run().faults()


def a_subscription_ends_between_vote_and_commit() -> Faults:
    """The advertisement has attracted it to b0; at b1 it and its end may not cancel out before the commit."""
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1"}, [("c1", sub(0))])
    script.transaction("c0", "d-tx", adv(0))
    script.regular("c1", usub(0), at=10.5)
    return script.run().faults()


def a_participant_is_lost_at_any_moment() -> Faults:
    """H12: the centre of the star may have committed when it hears of steps that will not come."""
    links = (("b1", "b0"), ("b3", "b0"), ("b4", "b0"), ("b5", "b0"))
    faults: Faults = []
    for lost in ("P", "Q", "R"):
        for moment in range(1, 24):
            script = Script(links, {"C": "b1", "P": "b4", "Q": "b3", "R": "b5"})
            script.transaction("C", "s-tx", ask("P", ask("Q", ask("R", sub(1)))))
            script.crash(lost, at=moment / 2)
            faults += script.run().faults()
    return faults


def a_control_crosses_a_broker_that_has_committed() -> Faults:
    """H15: nothing is due at b1, which commits; then what X asks Z for passes it."""
    homes = {"T": "b1", "X": "b0", "Z": "b2", "Y": "b2"}
    script = Script(line("b0", "b1", "b2"), homes, [("Y", adv(0))])
    script.slow({"b0>b1": 20})
    script.transaction("T", "s-tx", ask("X", ask("Z", sub(0))))
    return script.run().faults()


def a_publisher_is_lost_while_its_publication_waits() -> Faults:
    """H12: with its advertisement goes what the publication waited for, a subscription of its receiver."""
    script = Script(line("b1", "b3"), {"T": "b1", "P": "b3"}, [("P", adv(2))])
    script.slow({"b1>T": 20})
    script.transaction("T", "s-tx", ask("P", ask("T", sub(2)), pub(2)))
    script.crash("P", at=6)
    return script.run().faults()


def a_coordinator_aborts_beside_another_frame() -> Faults:
    """H15: who asked the coordinator back is lost; it aborts, and its answer is still under way."""
    homes = {"c3": "b0", "c0": "b1", "c1": "b1"}
    script = Script(line("b0", "b1"), homes, [("c3", adv(0)), ("c1", sub(0))])
    script.slow({"b1>c1": 20})
    script.slow({"c3>b0": 6}, at=10)
    script.transaction("c3", "d-tx", ask("c0", ask("c3", pub(0), pub(0))))
    script.crash("c0", at=31)
    return script.run().faults()


def a_coordinator_falls_asleep() -> Faults:
    """It begins, and never comes back; its lifetime ends."""
    script = Script(line("b0", "b1"), {"c0": "b0", "c1": "b1"}, [("c0", adv(0))])
    world = script.world

    async def begin() -> None:
        await world.clients["c0"].transactions.begin("d-tx", lifetime_s=5.0).__aenter__()

    world.spawn(begin())
    world.at(world.now + 20.0, lambda: None)
    script.transaction("c1", "d-tx", sub(0), at=10 / CROSSING_S)
    return script.run().faults()
