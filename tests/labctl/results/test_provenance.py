"""What a result depends on: all rooms by which a run is carried out, and nothing that only looks at it."""

from __future__ import annotations

from labctl.paths import PROJECT
from labctl.results import provenance
from tests.support.rooms import read_house

JUDGES = "labctl.checks"
"""Says what a result is worth; what was run and measured is the same without it."""


def test_the_rooms_by_which_a_run_is_carried_out_are_part_of_what_it_was_made_with() -> None:
    links = read_house(PROJECT).links()
    found, left = set[str](), ["labctl.conduct"]
    while left:
        room = left.pop()
        if room.partition(".")[0] == "labctl" and room not in found | {JUDGES}:
            found.add(room)
            left += links.get(room, {})
    assert found == {room.replace("/", ".") for room in provenance.RUNNER}
