"""The tables of a small world, and what is done to them by hand."""

from __future__ import annotations

import pytest

from broker.protocol.filters import Event
from broker.protocol.hops import broker_hop
from broker.protocol.vocabulary import NO_KEY
from labctl.checks.quiet.tables import tables
from tests.support.scripted import Script, adv, ask, line, pub, sub, uadv, usub

PROBES: list[Event] = [{"s": "d", "x": value} for value in range(4)]


def a_world() -> Script:
    """D has moved 0 to A; 3 was never advertised."""
    homes = {"E": "b1", "D": "b2", "A": "b3"}
    setup = [("E", adv(0, 1, 2)), ("E", uadv(2)), ("D", sub(0, 1, 2, 3)), ("D", usub(1))]
    script = Script(line("b1", "b2", "b3"), homes, setup)
    script.transaction("E", "d-tx", ask("D", ask("A", sub(0)), usub(0)), pub(0))
    return script.run()


def faults(script: Script) -> tuple[str, ...]:
    return tables({name: broker.state for name, broker in script.world.brokers.items()}, PROBES).faults


def test_a_world_at_rest_is_tidy() -> None:
    script = a_world()
    assert faults(script) == ()
    assert script.got("A") == [0]


def test_an_advertisement_that_a_broker_does_not_know() -> None:
    script = a_world()
    srt = script.world.brokers["b3"].routing.srt
    srt._logs[broker_hop("b2")]["E"].pop()
    assert [text for text in faults(script) if "do not agree on what E advertises" in text]


def test_an_advertisement_that_only_its_client_has_taken_back() -> None:
    script = a_world()
    records = script.world.brokers["b1"].routing.srt.log("E", "client:E")
    filter_ = next(r.filter for r in records if "x" in r.filter.names)
    script.world.brokers["b1"].state.guests["E"].space.change(False, filter_)
    assert any("two opinions on what E advertises" in text for text in faults(script))


@pytest.mark.parametrize("broker", ["b1", "b2", "b3"])
def test_a_subscription_that_has_got_lost(broker: str) -> None:
    """Where it has been sent on; b3 has nothing to send it on to, and then it is its neighbour that is wrong."""
    script = a_world()
    prt = script.world.brokers[broker].routing.prt
    record = next(r for r in prt.index.records("A") if r.filter.matches(PROBES[0]))
    prt.remove(record)
    assert any("A subscribes to" in text or "still has sub" in text for text in faults(script))


def test_a_record_that_waits_for_an_advertisement_is_no_disagreement() -> None:
    script = a_world()
    there = [r.filter for r in script.world.brokers["b2"].routing.prt.index.records("D")]
    script.regular("D", sub(3))
    assert faults(script.run()) == ()
    assert len(script.world.brokers["b2"].routing.prt.index.records("D")) >= len(there)


def test_a_mark_that_lies() -> None:
    """What is marked as sent is never fetched again."""
    script = Script(line("b1", "b2"), {"E": "b1", "D": "b2"}, [("D", sub(0))]).run()
    assert faults(script) == ()
    record = next(
        r for r in script.world.brokers["b2"].routing.prt.index.records("D") if "x" in r.filter.names
    )
    script.world.brokers["b2"].routing.mark_sent("D", record.stamp, broker_hop("b1"))
    assert faults(script) == ("b1 and b2 do not agree on what D subscribes to: s=d x=0",)


def test_a_client_that_is_gone_and_not_forgotten() -> None:
    script = a_world()
    del script.world.brokers["b2"].state.guests["D"]
    assert any("knows of the clients" in text for text in faults(script))


def test_what_is_not_over_and_what_is_not_tidied_up() -> None:
    script = a_world()
    broker = script.world.brokers["b2"]
    broker.state.retirement.committed("E/1/1", [])
    broker.routing.compaction.note("sub", "D", (NO_KEY, 1, 1, 1), may_be_void=True)
    broker.routing.compaction.floors["E"] = (1, "E/1/1")
    assert sorted(faults(script)) == [
        "b2 does not know that E/1/1 is over",
        "b2 has not tidied up a sub of D",
        "b2 remembers what was dropped of E, who is no client of it",
    ]
