"""Approaches by name, and the modules of others: scenarios and approaches that have a dotted name.

A scenario is a module with `cast(agents, suffix)` and `role(name, cast, options)`; an approach of one's own is a
module with `carry_out(coordinator, attempt)`. A dotted name (`mine.handover`) is imported, from the directory
that the command is given in as well; docs/extending.md has an example. Scenarios that come with the client are
found by `client.scenarios.cases.by_name`.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from client.scenarios.approaches import APPROACHES
from client.scenarios.stage import ScenarioError


def approach(name: str) -> ModuleType | None:
    """None for those that come with the client; raises ScenarioError for what is none."""
    if not is_foreign(name):
        if name not in APPROACHES:
            raise ScenarioError(f"there is no approach {name!r}; there are {', '.join(APPROACHES)}")
        return None
    return foreign(name, "approach", ("carry_out",))


def is_foreign(name: str) -> bool:
    """Whether the name is that of somebody else's module."""
    return "." in name


def foreign(name: str, kind: str, needed: tuple[str, ...]) -> ModuleType:
    """Somebody else's module; raises ScenarioError where it is not there, or lacks a function that is needed."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise ScenarioError(f"the {kind} {name!r} cannot be imported: {error}") from None
    missing = [part for part in needed if not callable(getattr(module, part, None))]
    if missing:
        raise ScenarioError(f"the module {name} is no {kind}: it has no function {' and no '.join(missing)}")
    return module
