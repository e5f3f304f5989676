"""Schedules of campaigns that once broke a promise, in the world that their seed drew."""

from __future__ import annotations

import pytest

from labctl.simulate.programs.variants import generate
from labctl.simulate.search.campaign import attempt


@pytest.mark.parametrize(
    ("protocol", "scenario", "seed"),
    [
        ("mixed", "carve", 2767),  # a library believed what an isolated transaction gave and took back
        (
            "d-tx",
            "undo",
            2795,
        ),  # what is forgotten while it still has an effect somewhere stayed there for ever
    ],
)
def test_they_break_none_now(protocol: str, scenario: str, seed: int) -> None:
    assert attempt(generate(scenario, protocol, seed))[1] == []
