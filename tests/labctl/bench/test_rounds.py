"""Rounds of a benchmark: disturbed ones are taken again, and the least disturbed count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from labctl.bench.rounds import QUIET_SHARE, Rounds
from labctl.bench.view import disturbance


class Machine:
    """Loses these shares of its processors, one in each round, and none after them."""

    def __init__(self, *stolen_shares: float) -> None:
        self._shares: Iterator[float] = iter(stolen_shares)
        self._total_s = self._steal_s = 0.0
        self.name = "a"

    def cpu_time(self) -> dict[str, float]:
        return {"total_s": self._total_s, "steal_s": self._steal_s}

    def measure(self) -> str:
        """The first round is a, the next b, and so on."""
        name, self.name = self.name, chr(ord(self.name) + 1)
        self._total_s += 10
        self._steal_s += 10 * next(self._shares, 0.0)
        return name


def taken(machine: Machine, wanted: int) -> Rounds[str]:
    rounds: Rounds[str] = Rounds(wanted, machine.cpu_time)
    while not rounds.are_enough:
        rounds.take(machine.measure)
    return rounds


def test_on_a_quiet_machine_there_are_as_many_rounds_as_asked_for() -> None:
    rounds = taken(Machine(0.0, QUIET_SHARE, 0.001), 3)
    assert sorted(rounds.samples) == ["a", "b", "c"]


def test_a_disturbed_round_is_taken_again_and_does_not_count() -> None:
    rounds = taken(Machine(0.0, 0.3, 0.01), 3)
    assert len(rounds) == 4
    assert sorted(rounds.samples) == ["a", "c", "d"]
    assert rounds.stolen_share == pytest.approx(0.01 / 3)


def test_on_a_machine_that_is_never_quiet_the_least_disturbed_of_twice_as_many_count() -> None:
    rounds = taken(Machine(0.5, 0.1, 0.4, 0.2), 2)
    assert len(rounds) == 4
    assert rounds.samples == ["b", "d"]
    assert rounds.stolen_share == pytest.approx(0.15)


def test_what_nobody_asks_for_is_not_measured() -> None:
    rounds = taken(Machine(), 0)
    assert rounds.samples == []
    assert rounds.stolen_share == 0


def test_the_next_round_says_its_number_and_whether_it_is_an_extra_one() -> None:
    rounds: Rounds[str] = Rounds(1, Machine().cpu_time)
    assert str(rounds) == "round 1 of 1"
    rounds.take(lambda: "a")
    assert str(rounds) == "round 2, in place of a disturbed one"


def test_a_reader_is_warned_of_a_machine_that_was_not_ours() -> None:
    assert not disturbance([0.0, QUIET_SHARE])
    assert "31 %" in disturbance([0.01, 0.31])
