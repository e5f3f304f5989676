"""An experiment: YAML -> typed `Experiment` -> the cells of its matrix.

A cell is one point of the matrix, and its id says which: experiments that have a cell in common give it the
same id, and it is run once. When, where and how often is decided in `labctl.schedule`. Pure except for
`load` and `names`, which read files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

from msgspec import Struct

from broker.delay import Delay, DelayError
from client.scenarios import catalogue
from client.scenarios.catalogue import SCENARIOS
from client.scenarios.stage import APPROACHES, Disruption, ScenarioError
from labctl import yamlfile
from labctl.exits import UsageProblem

Load = Literal["closed", "open"]
WORKS = ("dispatching", "consolidation")
LOADS: tuple[str, ...] = get_args(Load)
STEP_MS = 50.0
"""The paper's; a cell with another one says so in its id."""
ALL = "all"


class ExperimentError(UsageProblem):
    """A file that is no experiment, or a choice that leaves nothing of it; the text says where and why."""


class Cell(Struct, frozen=True, order=True):
    """One point of the matrix."""

    scenario: str
    approach: str
    brokers: int = 3
    in_flight: int = 1
    copies: int = 1
    step_ms: float | None = None
    """Of the calibration; only BL-WAIT has one."""
    stalls: bool = False
    work: str | None = None
    """Disruption: what its transactions do."""
    load: str | None = None
    """Disruption: whether the publisher waits for the overlay."""

    @property
    def id(self) -> str:
        parts = [
            self.scenario,
            self.approach,
            f"b{self.brokers}",
            f"k{self.in_flight}",
            f"c{self.copies}",
        ]
        if self.step_ms not in (None, STEP_MS):
            parts.append(f"step{self.step_ms:g}")
        if self.stalls:
            parts.append("stalls")
        if self.work == "consolidation":
            parts.append(self.work)
        if self.load == "open":
            parts.append(self.load)
        return "-".join(parts)

    @property
    def waits(self) -> bool:
        return self.approach == "bl-wait"

    @property
    def cast(self) -> str:
        """The scenario whose clients take part."""
        return self.work or self.scenario

    def parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


class Links(Struct, frozen=True):
    """Emulated delays; a stall happens only in the cells that have them on."""

    client_ms: float = 3.3
    broker_ms: float = 2.2
    sigma: float = 0.4
    stall_probability: float = 5e-4
    stall_ms: tuple[float, float] = (80.0, 160.0)

    def __post_init__(self) -> None:
        self.client(True, 0)
        self.broker(True, 0)

    def client(self, stalls: bool, seed: int) -> Delay:
        return self._delay(self.client_ms, stalls, seed)

    def broker(self, stalls: bool, seed: int) -> Delay:
        return self._delay(self.broker_ms, stalls, seed)

    def _delay(self, delay_ms: float, stalls: bool, seed: int) -> Delay:
        probability = self.stall_probability if stalls else 0.0
        return Delay(delay_ms, self.sigma, probability, self.stall_ms, seed)


class Experiment(Struct, frozen=True):
    name: str
    cells: tuple[Cell, ...]
    figure: int | None = None
    links: Links = Links()
    disruption: Disruption = Disruption()

    def resolved(self) -> dict[str, Any]:
        """Everything that decides what is run, defaults included."""
        return {
            "name": self.name,
            "figure": self.figure,
            "cells": [cell.id for cell in self.cells],
            "delay": {name: getattr(self.links, name) for name in self.links.__struct_fields__},
            "disruption": {n: getattr(self.disruption, n) for n in self.disruption.__struct_fields__},
        }


# Files


def folder() -> Path:
    """The experiments of the directory that we are in or, failing that, our own."""
    here = Path("experiments")
    return here if here.is_dir() else Path(__file__).parents[1] / "experiments"


def names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.yaml") if path.stem != "claims")


def find(name: str) -> tuple[Experiment, ...]:
    """By name, by file, or `all` of them."""
    if name == ALL:
        found = tuple(load(folder() / f"{each}.yaml") for each in names())
        if not found:
            raise ExperimentError(f"there is no experiment in {folder()}")
        _refuse_differences(found)
        return found
    if name.endswith((".yaml", ".yml")):
        return (load(Path(name)),)
    if name not in names():
        raise ExperimentError(
            f"there is no experiment {name!r} in {folder()}; {yamlfile.nearest(name, [*names(), ALL])}"
        )
    return (load(folder() / f"{name}.yaml"),)


def _refuse_differences(experiments: Sequence[Experiment]) -> None:
    """A cell that is run once for several of them must be the same in each."""
    first = experiments[0]
    for other in experiments[1:]:
        if other.links != first.links:
            raise ExperimentError(
                f"{first.name} and {other.name} have different delays and cannot share a result; run them apart"
            )


def load(path: Path) -> Experiment:
    document = yamlfile.read(path, ExperimentError)
    parts = document.mapping(("figure", "matrix", "delay", "disruption"))
    if "matrix" not in parts:
        raise document.error("an empty matrix: name what varies and what is fixed under 'matrix'")
    experiment = Experiment(
        name=path.stem,
        cells=_read_matrices(parts["matrix"]),
        figure=parts["figure"].integer() if "figure" in parts else None,
        links=_read_links(parts["delay"]) if "delay" in parts else Links(),
        disruption=_read_disruption(parts["disruption"]) if "disruption" in parts else Disruption(),
    )
    if "disruption" in parts and all(cell.scenario != "disruption" for cell in experiment.cells):
        raise parts["disruption"].error("no cell has the scenario 'disruption' that this is about")
    return experiment


def _word(valid: Sequence[str]) -> Callable[[yamlfile.Node], str]:
    def read(node: yamlfile.Node) -> str:
        word = node.text()
        if word not in valid:
            raise node.error(f"unknown {word!r}; {yamlfile.nearest(word, valid)}")
        return word

    return read


def _importable(
    valid: Sequence[str], find: Callable[[str], ModuleType | None]
) -> Callable[[yamlfile.Node], str]:
    """One of ours, or the dotted name of a module."""
    own = _word(valid)

    def read(node: yamlfile.Node) -> str:
        word = node.text()
        if not catalogue.is_foreign(word):
            return own(node)
        try:
            find(word)
        except ScenarioError as error:
            raise node.error(str(error)) from None
        return word

    return read


def _count(maximum: int) -> Callable[[yamlfile.Node], int]:
    def read(node: yamlfile.Node) -> int:
        value = node.integer()
        if not 1 <= value <= maximum:
            raise node.error(f"{value} is not between 1 and {maximum}")
        return value

    return read


def _amount(node: yamlfile.Node) -> float:
    value = node.number()
    if not 0 < value <= 60_000:
        raise node.error(f"{value:g} is not between 0 and 60000")
    return value


AXES: dict[str, Callable[[yamlfile.Node], Any]] = {
    "scenario": _importable(SCENARIOS, catalogue.scenario),
    "work": _word(WORKS),
    "approach": _importable(APPROACHES, catalogue.approach),
    "brokers": _count(1000),
    "in_flight": _count(1000),
    "copies": _count(100),
    "step_ms": _amount,
    "stalls": lambda node: node.boolean(),
    "load": _word(LOADS),
}
"""What a cell is described by, in experiments and in claims."""
_DEFAULTS: dict[str, list[Any]] = {
    "work": ["dispatching"],
    "brokers": [3],
    "in_flight": [1],
    "copies": [1],
    "step_ms": [STEP_MS],
    "stalls": [False],
    "load": ["closed"],
}


def _read_matrices(node: yamlfile.Node) -> tuple[Cell, ...]:
    """One matrix, or a list of them: then all their cells."""
    if not node.is_sequence:
        return _read_matrix(node)
    matrices = node.sequence()
    if not matrices:
        raise node.error("an empty matrix: this list has none")
    return tuple(dict.fromkeys(cell for each in matrices for cell in _read_matrix(each)))


def _read_matrix(node: yamlfile.Node) -> tuple[Cell, ...]:
    given = node.mapping(AXES)
    axes = {name: _values(given[name], AXES[name]) for name in given}
    for name in ("scenario", "approach"):
        if name not in axes:
            raise node.error(f"an empty matrix: it names no {name}")
    _check_sense(given, axes)
    values = [axes.get(name) or _DEFAULTS[name] for name in AXES]
    points = (dict(zip(AXES, point, strict=True)) for point in itertools.product(*values))
    return tuple(dict.fromkeys(_cell(point) for point in points))


def _values(node: yamlfile.Node, read: Callable[[yamlfile.Node], Any]) -> list[Any]:
    if not node.is_sequence:
        return [read(node)]
    values = []
    for item in node.sequence():
        value = read(item)
        if value in values:
            raise item.error(f"{value!r} is there twice")
        values.append(value)
    if not values:
        raise node.error("an empty matrix: this list has no value")
    return values


def _check_sense(given: Mapping[str, yamlfile.Node], axes: Mapping[str, Sequence[Any]]) -> None:
    """An axis that would have no effect is a mistake."""
    for name in ("work", "load"):
        if name in given and "disruption" not in axes["scenario"]:
            raise given[name].error(f"{name!r} is only for the scenario 'disruption'")
    if "step_ms" in given and "bl-wait" not in axes["approach"]:
        raise given["step_ms"].error("'step_ms' is only for the approach 'bl-wait'")
    if "disruption" in axes["scenario"]:
        for name, only in (("in_flight", 1), ("copies", 1)):
            if name in given and list(axes[name]) != [only]:
                raise given[name].error(f"the scenario 'disruption' has {name} {only}")
        if "bl-wait" in axes["approach"]:
            raise given["approach"].error(
                "'bl-wait' has no place in 'disruption': its wait is calibrated without load"
            )


def _cell(point: Mapping[str, Any]) -> Cell:
    """Only what has a meaning for this one is kept, so that equal cells are equal."""
    kept = dict(point)
    if kept["approach"] != "bl-wait":
        kept["step_ms"] = None
    if kept["scenario"] != "disruption":
        kept["work"] = kept["load"] = None
    return Cell(**kept)


def _read_links(node: yamlfile.Node) -> Links:
    given = node.mapping(Links.__struct_fields__)
    values: dict[str, Any] = {name: each.number() for name, each in given.items() if name != "stall_ms"}
    if "stall_ms" in given:
        pair = [each.number() for each in given["stall_ms"].sequence()]
        if len(pair) != 2:
            raise given["stall_ms"].error(f"expected the shortest and the longest stall, found {len(pair)}")
        values["stall_ms"] = (pair[0], pair[1])
    try:
        return Links(**values)
    except DelayError as error:
        raise node.error(str(error)) from None


def _read_disruption(node: yamlfile.Node) -> Disruption:
    given = node.mapping(Disruption.__struct_fields__)
    values: dict[str, Any] = {
        n: _count(10**7)(given[n]) for n in ("rounds", "events", "instances") if n in given
    }
    values |= {name: _amount(given[name]) for name in ("open_share", "window_ms") if name in given}
    if values.get("open_share", 0) > 1:
        raise given["open_share"].error(
            "more than the capacity cannot be kept up; give a share of it, as 0.8"
        )
    return Disruption(**values)
