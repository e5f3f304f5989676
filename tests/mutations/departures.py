"""Schedules to order for clients that go in the midst of it, as in `tests.mutations.schedules`."""

from __future__ import annotations

from collections.abc import Iterable

from broker.protocol.vocabulary import Protocol
from tests.mutations.schedules import Faults
from tests.support.scripted import Script, adv, ask, line, pub, sub


def somebody_is_asked_beyond_the_coordinator() -> Faults:
    """H12: P goes when b2 and C's broker have committed; b4, behind that one, waits for what P was to ask R for."""
    faults: Faults = []
    for moment in range(4, 24, 2):
        script = Script(line("b4", "b1", "b2", "b3"), {"C": "b1", "P": "b3", "R": "b4"})
        script.slow({"b3>P": 20})
        script.transaction("C", "s-tx", ask("P", ask("R", sub(1))))
        script.crash("P", at=moment)
        faults += script.run().faults()
    return faults


def a_participant_goes_before_the_vote(protocol: Protocol, moments: Iterable[int]) -> Faults:
    """Section 7: P has done all that it was asked for, and Q is slow."""
    faults: Faults = []
    for moment in moments:
        script = Script(line("b1", "b2"), {"C": "b1", "P": "b2", "Q": "b2"}, [("P", adv(0)), ("C", sub(0))])
        script.slow({"b2>Q": 20})
        started = script.transaction("C", protocol, ask("P", pub(0)), ask("Q", sub(2)))
        script.crash("P", at=moment)
        faults += script.run().faults()
        if script.outcome(started) != "aborted":
            faults.append(("answers", f"{started.tx} has committed without P"))
    return faults


def who_was_asked_goes_before_the_vote() -> Faults:
    return a_participant_goes_before_the_vote("d-tx-ni", range(14, 30, 4))


def who_has_published_goes_before_the_vote() -> Faults:
    return a_participant_goes_before_the_vote("s-tx-safe", range(6, 20, 4))


def two_want_one_id() -> Faults:
    """The one at b1 is let in and speaks; that the other one was refused comes to b2 when its records are there."""
    script = Script(line("b1", "b2", "b3"), {"c0": "b1", "c1": "b3"}, [("c1", adv(0))])
    script.crash("c0", at=0)
    script.come_back("c0", at=40, home="b1", twin_at="b3")
    script.slow({"b2>b3": 15}, at=42.5)
    script.regular("c0", sub(0), at=41)
    return script.run().faults()
