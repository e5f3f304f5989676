"""What is said about a recording: one sentence for each difference, and a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.protocol.messages import Publish
from labctl.output import Output
from labctl.results import histories
from labctl.results.histories import Line
from labctl.simulate.programs.variants import generate
from labctl.simulate.recorded import reading, repetition
from labctl.simulate.recorded.links import Altered
from labctl.simulate.recorded.nodes import Late
from labctl.simulate.recorded.repetition import ReplayedRepetition
from labctl.simulate.views import recorded
from tests.mutations import tables
from tests.support import recordings
from tests.support.recorded_world import record

LINES_MAX = recorded.DRAWN_MAX


def outcome(folder: Path, lines: list[recordings.Line]) -> ReplayedRepetition:
    [file] = histories.load(recordings.write(folder, lines)).files
    return repetition.replay([reading.recording_of(file)])


def without(place: int) -> list[recordings.Line]:
    life = recordings.life()
    return [*life[:place], *life[place + 1 :]]


def place_of(name: str, number: int = 1) -> int:
    """Of the line with this name that comes in this place."""
    return [place for place, line in enumerate(recordings.life()) if line["name"] == name][number - 1]


def test_a_recording_that_is_reproduced_is_valid(tmp_path: Path) -> None:
    found = recorded.verdict(outcome(tmp_path, recordings.life()))
    names = [line["name"] for line in recordings.life()]
    told = len(names) - 3 - names.count("given") - names.count("put")
    assert (found.answer, found.checked, found.faults) == ("valid", names.count("put") + told, ())


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            place_of("put", 4),
            "line 14 of b1, at 3.750000 s: message 3 to broker:b2: b1 sent Operation adv s=x of E, where its core sends JoinAnswer of A",
        ),
        (place_of("voted"), "b1 told committed"),
        (place_of("put", 18), "b1 sent nothing, where its core sends Leave of E"),
    ],
)  # fmt: skip
def test_the_first_thing_that_a_broker_did_otherwise_is_told(tmp_path: Path, place: int, said: str) -> None:
    found = recorded.verdict(outcome(tmp_path, without(place)))
    assert found.answer == "invalid"
    assert said in found.faults[0]


def test_a_timer_that_did_not_fire_is_told() -> None:
    late = Late("b1", Line("b1", 9, 1.5, "given", {}), 12.34)
    said = "line 9 of b1, at 1.500000 s: b1 had not looked at its open transactions for 12.3 s, a fault of its timer"
    assert recorded.sentence(late) == said


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (Publish(7, {"x": 1}, b""), "left as Publish x=1 and came as Publish x=2"),
        (None, "had not left (Publish x=2)"),
    ],
)
def test_a_message_that_came_otherwise_than_it_left_is_told(left: Publish | None, said: str) -> None:
    altered = Altered("b1", "b2", 3, Line("b2", 9, 1.5, "given", {}), left, Publish(8, {"x": 2}, b""))
    assert recorded.sentence(altered) == (f"line 9 of b2, at 1.500000 s: message 3 from b1 to b2 {said}")


def written(folder: Path, patch: pytest.MonkeyPatch, scenario: str) -> Path:
    """A schedule of a simulated overlay, as if it were a real run."""
    record(patch, generate(scenario, "d-tx", 0), folder)
    return folder


def test_all_of_a_run_is_drawn_where_somebody_wants_to_step_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recorded.replay(Output(json=True), written(tmp_path, monkeypatch, "skew"), steps=True)
    document = json.loads(capsys.readouterr().out)
    assert document["violations"] == {}
    assert any("Commit" in line for line in document["steps"])


@pytest.mark.parametrize("drawn_max", [LINES_MAX, 3])
def test_of_a_run_that_broke_a_promise_the_smallest_part_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], drawn_max: int
) -> None:
    monkeypatch.setattr(recorded, "DRAWN_MAX", drawn_max)
    tables.a_batch_loses_its_last(monkeypatch)
    assert not recorded.replay(Output(json=False), written(tmp_path, monkeypatch, "bursts"))
    said = capsys.readouterr().out
    assert "recipients: regular pub" in said
    assert "What is left of it when all else is taken away:\n  publication " in said
    assert ("too many to draw" in said) == (drawn_max < LINES_MAX)
    assert (" -> " in said) == (drawn_max == LINES_MAX)
