"""Which cells of experiments are meant, and what somebody else's code they need; pure but for imports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType

from client.scenarios import catalogue
from client.scenarios.cases import by_name
from labctl.experiment.cell import Cell
from labctl.experiment.experiment import AXES, Experiment, ExperimentError
from labctl.yamlfaults import nearest


def cells_of(experiments: Iterable[Experiment]) -> dict[Cell, tuple[str, ...]]:
    """Every cell once, with the experiments that it is for."""
    found: dict[Cell, list[str]] = {}
    for experiment in experiments:
        for cell in experiment.cells:
            found.setdefault(cell, []).append(experiment.name)
    return {cell: tuple(names) for cell, names in found.items()}


def modules(cells: Iterable[Cell]) -> list[ModuleType]:
    """Somebody's own scenarios and approaches among them, each once."""
    found: dict[str, ModuleType] = {}
    for cell in cells:
        if catalogue.is_foreign(cell.scenario):
            found[cell.scenario] = by_name.scenario(cell.scenario)
        own = catalogue.approach(cell.approach)
        if own is not None:
            found[cell.approach] = own
    return [found[name] for name in sorted(found)]


def only(cells: Sequence[Cell], choices: Sequence[str]) -> list[Cell]:
    """Those that `approach=s-tx`, `brokers=1,9` and the like let through."""
    left = list(cells)
    for choice in choices:
        name, equals, wanted = choice.partition("=")
        if not equals or not wanted:
            raise ExperimentError(f"--only {choice}: write key=value, for example approach=s-tx")
        if name not in AXES and name != "cell":
            raise ExperimentError(f"--only {choice}: unknown key {name!r}; {nearest(name, AXES)}")
        values = wanted.split(",")
        known = {_text(cell, name) for cell in cells}
        for value in values:
            if value not in known:
                raise ExperimentError(
                    f"--only {choice}: no cell has {name} {value!r}; {nearest(value, sorted(known))}"
                )
        left = [cell for cell in left if _text(cell, name) in values]
    if not left:
        raise ExperimentError(f"an empty matrix: no cell has all of --only {' --only '.join(choices)}")
    return left


def _text(cell: Cell, name: str) -> str:
    value = cell.id if name == "cell" else getattr(cell, name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
