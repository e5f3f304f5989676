"""Roles: what becomes of a mistake in somebody's scenario."""

from __future__ import annotations

from typing import Any

import pytest

from client.scenarios.cases.dispatching import DispatchingAgent, DispatchingEngine
from client.scenarios.stage import Options, ScenarioError
from labctl.simulate.stage import play
from labctl.simulate.world import World

HOMES = {"E": "b1", "D": "b2", "A1": "b2", "A2": "b1"}
N = 4


def outcomes(approach: str) -> list[tuple[str, str]]:
    world = World([("b1", "b2")], seed=1)
    report = play(world, "dispatching", HOMES, Options(approach, N, concurrency=2, patience_s=1.0))
    return [(attempt.outcome, attempt.reason) for attempt in report.attempts]


async def mistyped(*_: Any) -> None:
    _[0].no_such_word()


def mistyped_plan(*_: Any) -> None:
    _[0].no_such_word()


@pytest.mark.parametrize(
    ("approach", "method", "mistake", "outcome"),
    [
        ("d-tx", "within", mistyped, "aborted"),
        ("s-tx", "fill", mistyped_plan, "aborted"),
        ("bl-wait", "by_hand", mistyped, "unknown"),
    ],
)
def test_every_transaction_is_told_with_the_mistake_and_its_place(
    monkeypatch: pytest.MonkeyPatch, approach: str, method: str, mistake: Any, outcome: str
) -> None:
    monkeypatch.setattr(DispatchingEngine, method, mistake)
    found = outcomes(approach)
    assert [each for each, _ in found] == [outcome] * N
    for _, reason in found:
        assert reason.startswith(
            "AttributeError: 'DispatchingEngine' object has no attribute 'no_such_word' (test_roles.py, "
        )


def test_a_participants_mistake_aborts_the_transaction_that_asked_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(DispatchingAgent, "on_tcm", mistyped)
    found = outcomes("d-tx")
    assert [each for each, _ in found] == ["aborted"] * N
    assert all("has no attribute 'no_such_word'" in reason for _, reason in found)


def test_a_mistake_outside_of_any_transaction_ends_the_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DispatchingEngine, "attempt", mistyped_plan)
    with pytest.raises(ScenarioError, match=r"E: AttributeError: .*no_such_word"):
        outcomes("d-tx")
