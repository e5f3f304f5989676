"""A history of clients that come back: each life is a client of its own."""

from __future__ import annotations

from labctl.checks import properties
from labctl.checks.history import History
from tests.support.scripted import Script, adv, line, sub


def returned(*, subscribes: bool) -> tuple[Script, History]:
    homes = {"E": "b1", "P": "b2"}
    script = Script(line("b1", "b2"), homes, [("E", adv(0)), ("P", sub(0))])
    script.crash("P", at=1)
    script.come_back("P", at=5)
    if subscribes:
        script.regular("P", sub(0), at=40)
    return script, script.run().history


def test_who_has_come_back_is_not_gone_and_has_nothing_of_its_earlier_life() -> None:
    script, history = returned(subscribes=False)
    assert history.gone == {"P"}
    assert history.lives == {"P": "P (life 2)"}
    assert history.hop_of("P (life 2)") == history.hop_of("P") == "client:P"
    assert script.faults() == []


def test_what_a_returned_client_has_asked_for_since_must_reach_it() -> None:
    script, history = returned(subscribes=True)
    assert script.faults() == []
    brokers = script.world.brokers

    def deaf(broker: str, event: dict[str, object], hop: str) -> list[str]:
        hops = brokers[broker].routing.next_hops(event, hop)  # type: ignore[arg-type]
        return [hop for hop in hops if hop != "client:P"]

    verdict = properties.convergence(history, deaf, [{"s": "d", "x": 0}])  # type: ignore[arg-type]
    assert any("would miss ['P (life 2)']" in text for text in verdict.faults)
