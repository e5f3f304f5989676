"""Simulated overlays that kept histories as real ones do: replayed, broker by broker and as one overlay."""

from __future__ import annotations

from pathlib import Path

import pytest

from labctl.results import histories
from labctl.simulate.programs.variants import generate
from labctl.simulate.recorded import reading, repetition
from labctl.simulate.recorded.smaller import Case
from tests.support.recorded_world import record

SCHEDULES = [
    (scenario, protocol, seed)
    for scenario, protocol in (
        ("dispatch", "d-tx"),
        ("crash", "s-tx"),
        ("bursts", "mixed"),
        ("mixed", "d-tx-ni"),
    )
    for seed in range(5)
]


def recorded(folder: Path) -> tuple[repetition.ReplayedRepetition, Case]:
    result = histories.load(folder)
    recordings = reading.of(result, folder)
    outcome = repetition.replay(recordings)
    case = repetition.case(recordings, result)
    assert case is not None
    return outcome, case


@pytest.mark.parametrize(("scenario", "protocol", "seed"), SCHEDULES)
def test_a_schedule_is_reproduced_by_each_core_and_by_all_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str, protocol: str, seed: int
) -> None:
    record(monkeypatch, generate(scenario, protocol, seed), tmp_path)
    outcome, case = recorded(tmp_path)
    assert outcome.differences == []
    assert all(link.messages for link in outcome.links)
    world = case.world()
    assert (world.faults, world.impossible, case.broken(world)) == ([], [], {})
    for file in histories.load(tmp_path).files:
        if file.role == "broker":
            told = [(line.name, line.fields) for line in file.lines if line.name not in NOT_TOLD]
            assert told == [(m.name, m.fields) for m in world.moments if m.node == file.node]


NOT_TOLD = {"history", "made", "given", "put", "closed"}


def test_no_message_arrives_before_it_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, generate("dispatch", "d-tx", 1), tmp_path)
    world = recorded(tmp_path)[1].world()
    assert len(world.passages) > 100
    assert all(passage.sent <= passage.arrived for passage in world.passages)
    assert [passage.arrived for passage in world.passages] == sorted(p.arrived for p in world.passages)
