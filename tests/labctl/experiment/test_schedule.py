"""Which repetition runs when and where: seeded, even, and fair to all approaches."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.scenarios.stage import Disruption
from labctl.experiment.cell import Cell
from labctl.experiment.experiment import find
from labctl.experiment.schedule import PROFILES, Pace, estimate_s, placement, seed_of, units
from labctl.experiment.selection import cells_of

CELL = Cell("dispatching", "s-tx")


@given(
    st.sampled_from([1, 3, 5, 9]), st.sampled_from([1, 2, 5, 10]), st.integers(1, 9), st.integers(0, 2**31)
)
def test_no_broker_has_two_clients_more_than_another(
    brokers: int, copies: int, repetition: int, seed: int
) -> None:
    homes = placement(Cell("dispatching", "s-tx", brokers=brokers, copies=copies), repetition, seed)
    assert len(homes) == 4 * copies
    counts = Counter(homes.values())
    every = [counts[f"b{number}"] for number in range(1, brokers + 1)]
    assert sum(every) == len(homes)
    assert max(every) - min(every) <= 1


def test_a_placement_is_drawn_anew_for_each_repetition() -> None:
    drawn = {tuple(sorted(placement(CELL, repetition, 1).items())) for repetition in range(1, 11)}
    assert len(drawn) > 5


def test_all_clients_come_to_all_brokers_in_the_long_run() -> None:
    seen = {(client, home) for r in range(200) for client, home in placement(CELL, r, 1).items()}
    assert len(seen) == 4 * 3


def test_approaches_are_compared_on_the_same_placements() -> None:
    other = Cell("dispatching", "bl-wait", in_flight=5, step_ms=1.0, stalls=True)
    assert placement(CELL, 2, 1) == placement(other, 2, 1)


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    cells = list(cells_of(find("base")))
    assert units(cells, 3, 1) == units(list(reversed(cells)), 3, 1)
    assert units(cells, 3, 1) != units(cells, 3, 2)


def test_every_cell_is_run_once_before_any_is_run_twice() -> None:
    cells = list(cells_of(find("overlay")))
    found = units(cells, 3, 1)
    for repetition in (1, 2, 3):
        block = found[(repetition - 1) * len(cells) : repetition * len(cells)]
        assert {unit.cell for unit in block} == set(cells)
        assert {unit.repetition for unit in block} == {repetition}
    first, second = found[: len(cells)], found[len(cells) : 2 * len(cells)]
    assert [unit.cell for unit in first] != [unit.cell for unit in second]


def test_seeds_do_not_depend_on_the_process() -> None:
    assert seed_of(1, "a", "b") == 1699381787
    assert seed_of(1, "a", "b") != seed_of(1, "ab")


def test_the_quick_profile_has_neither_stalls_nor_fine_steps() -> None:
    cells = list(cells_of(find("base")))
    left = [cell for cell in cells if not PROFILES["quick"].leaves_out(cell)]
    assert not any(cell.stalls or cell.step_ms == 1 for cell in left)
    assert {cell.approach for cell in left} == {cell.approach for cell in cells}
    assert not any(PROFILES["standard"].leaves_out(cell) for cell in cells)


def test_more_brokers_and_more_transactions_are_estimated_to_take_longer() -> None:
    nine = Cell("dispatching", "s-tx", brokers=9)
    standard, paper = PROFILES["standard"], PROFILES["paper"]
    assert estimate_s(nine, standard, Disruption()) > estimate_s(CELL, standard, Disruption())
    assert estimate_s(CELL, paper, Disruption()) > 5 * estimate_s(CELL, standard, Disruption())


def test_what_is_left_follows_what_was_measured() -> None:
    pace = Pace({"a": 10.0, "b": 20.0})
    assert pace.left_s(["a", "b"]) == 30
    pace.took("a", 20.0)
    assert pace.left_s(["a"]) == 20
    assert pace.left_s(["b"]) == pytest.approx(40)
