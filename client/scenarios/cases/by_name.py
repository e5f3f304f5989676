"""Scenarios by name: those of this room, and modules of others by a dotted name."""

from __future__ import annotations

from types import ModuleType

from client.scenarios import catalogue
from client.scenarios.cases import consolidation, dispatching, disruption
from client.scenarios.stage import ScenarioError

SCENARIOS = {"dispatching": dispatching, "consolidation": consolidation, "disruption": disruption}


def scenario(name: str) -> ModuleType:
    """Raises ScenarioError for what is none."""
    if catalogue.is_foreign(name):
        return catalogue.foreign(name, "scenario", ("cast", "role"))
    if name not in SCENARIOS:
        raise ScenarioError(f"there is no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
