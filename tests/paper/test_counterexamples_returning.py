"""S-TX where participants go and come back with their ids: H21 of docs/protocols.md."""

from __future__ import annotations

import pytest

from broker.protocol.vocabulary import Protocol
from tests.support.scripted import Script, adv, ask, line, pub, sub, usub

planned = pytest.mark.parametrize("protocol", ["s-tx", "s-tx-safe"])

RETURNS = {
    "before its tcm arrives, and has not joined by then": (1.5, 1.6, 1),
    "before its tcm arrives, which is slow": (2.2, 4, 8),
    "after its tcm has arrived": (3.2, 3.4, 1),
}


@planned
@pytest.mark.parametrize("case", RETURNS)
@pytest.mark.parametrize("home", ["b2", "b3"])
def test_h21_who_comes_back_with_its_id_is_not_asked_and_not_thrown_out(
    case: str, home: str, protocol: Protocol
) -> None:
    gone, back, slow = RETURNS[case]
    script = Script(line("b1", "b2", "b3"), {"C": "b1", "P": "b3"}, [("C", adv(0))])
    script.slow({"b1>b2": slow})
    script.slow({"b1>b2": 1}, at=20)
    first = script.transaction("C", protocol, ask("P", sub(0)), pub(0))
    script.crash("P", at=gone)
    script.come_back("P", at=back, home=home)
    later = script.transaction("C", protocol, ask("P", sub(0)), pub(0), at=600)
    script.run()
    assert script.faults() == []
    assert script.outcome(first) in ("aborted", "unknown")
    assert script.outcome(later) == "committed"
    assert script.got("P") == [0]


@planned
def test_h21_nobody_waits_for_what_a_former_life_was_asked_for(protocol: Protocol) -> None:
    """Its step waits at b2 for R's when it goes, and goes no further; b1 has heard of the one that came back."""
    homes = {"C": "b1", "P": "b3", "R": "b2"}
    script = Script(line("b1", "b2", "b3"), homes, [("C", adv(0)), ("R", sub(0))])
    script.slow({"R>b2": 40})
    started = script.transaction("C", protocol, ask("R", usub(0)), ask("P", sub(0)), pub(0))
    script.crash("P", at=8)
    script.come_back("P", at=9)
    script.run()
    assert script.faults() == []
    assert script.outcome(started) in ("aborted", "unknown")
