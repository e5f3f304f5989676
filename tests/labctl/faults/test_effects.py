"""What each fault did to transactions and regular events."""

from __future__ import annotations

import pytest

from labctl.faults.done import Span
from labctl.faults.effects import Effect, FaultyTransaction, effects, longest_gap
from labctl.faults.plan import FaultyNode, NodeFault

PAUSE = NodeFault(kind="pause", node=FaultyNode("broker", "b2"), at_s=2, for_s=1)
SPAN = Span(1, PAUSE, 2.0, 3.0)


def committed(*ends: float) -> list[FaultyTransaction]:
    return [FaultyTransaction(end - 0.1, end, "committed") for end in ends]


def effect(
    attempts: list[FaultyTransaction], lasts_s: float = 5, events: list[tuple[float, float]] | None = None
) -> Effect:
    [found] = effects([SPAN], attempts, events, lasts_s)
    return found


def test_what_stopped_is_the_longest_time_around_the_fault_without_a_commit() -> None:
    found = effect(committed(0.5, 1.9, 3.2, 3.3, 4.9))
    assert found.stopped_s == pytest.approx(1.3)
    assert found.recovery_s == pytest.approx(0.2)
    assert (found.number, found.what, found.begun_s, found.ended_s) == (1, "pause broker b2", 2.0, 3.0)


def test_a_fault_that_stops_nothing_shows_the_usual_gaps() -> None:
    found = effect(committed(1.9, 2.1, 2.4, 2.8, 3.1))
    assert found.stopped_s == pytest.approx(0.4)


def test_where_nothing_is_committed_any_more_it_stopped_until_the_end() -> None:
    found = effect(committed(1.0, 1.9))
    assert found.stopped_s == pytest.approx(3.1)
    assert found.recovery_s is None


def test_where_nothing_was_committed_before_it_stopped_from_the_beginning() -> None:
    assert effect(committed(4.0)).stopped_s == pytest.approx(4.0)
    assert effect([]).stopped_s == 5


def test_transactions_count_that_were_under_way_between_the_beginning_and_the_first_commit_behind_it() -> (
    None
):
    attempts = [
        FaultyTransaction(0.1, 0.2, "aborted"),
        FaultyTransaction(1.5, 2.5, "aborted"),
        FaultyTransaction(2.6, 3.4, "unknown"),
        FaultyTransaction(3.4, 3.5, "committed", is_lost=True),
        FaultyTransaction(3.6, 3.7, "aborted"),
    ]
    found = effect(attempts)
    assert (found.aborted, found.unknown, found.lost) == (1, 1, 1)


def test_regular_events_have_a_gap_of_their_own() -> None:
    windows = [(0.0, 0.1), (0.1, 0.2), (1.9, 2.0), (3.5, 3.6), (3.6, 3.7)]
    assert effect(committed(1, 4), events=windows).events_stopped_s == pytest.approx(1.5)
    assert effect(committed(1, 4)).events_stopped_s is None


def test_a_gap_beside_the_fault_is_not_its_own() -> None:
    marks = [(time, time) for time in (0.1, 1.9, 2.2, 2.5, 2.9, 3.1, 4.9)]
    assert longest_gap(marks, SPAN, 5) == pytest.approx(0.4)
