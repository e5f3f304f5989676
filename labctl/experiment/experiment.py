"""An experiment: YAML -> typed `Experiment` -> the cells of its matrix.

A cell is one point of the matrix, and its id says which: experiments that have a cell in common give it the
same id, and it is run once. When, where and how often is decided in `labctl.experiment.schedule`. Pure except for
`load` and `names`, which read files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from client.scenarios import catalogue
from client.scenarios.approaches import APPROACHES, BL_WAIT, approach_of
from client.scenarios.cases import by_name
from client.scenarios.stage import Disruption, ScenarioError
from labctl import yamlfile
from labctl.exits import UsageProblem
from labctl.experiment import faulted
from labctl.experiment.cell import STEP_MS, Cell, Durable, Links, Load
from labctl.faults.written import FaultsFile
from labctl.paths import PROJECT
from labctl.yamlfaults import nearest, unknown_word
from labctl.yamlfile import Document, Place, given

ALL = "all"


class ExperimentError(UsageProblem):
    """A file that is no experiment, or a choice that leaves nothing of it; the text says where and why."""


class Experiment(Struct, frozen=True):
    name: str
    cells: tuple[Cell, ...]
    figure: int | None = None
    links: Links = Links()
    disruption: Disruption = Disruption()
    faults: FaultsFile | None = None

    def resolved(self) -> dict[str, Any]:
        """Everything that decides what is run, defaults included."""
        found = {
            "name": self.name,
            "figure": self.figure,
            "cells": [cell.id for cell in self.cells],
            "delay": {name: getattr(self.links, name) for name in self.links.__struct_fields__},
            "disruption": {n: getattr(self.disruption, n) for n in self.disruption.__struct_fields__},
        }
        return found if self.faults is None else {**found, "faults": msgspec.to_builtins(self.faults)}


# The file as it is written


def _ours_or_dotted(words: Sequence[str], description: str) -> Meta:
    """One of ours, or the dotted name of a module of somebody else: `check_name` holds files to it."""
    either = {"anyOf": [{"enum": list(words)}, {"pattern": r"\."}]}
    return Meta(
        description=f"{description}; or the dotted name of a module of your own.", extra_json_schema=either
    )


ScenarioName = Annotated[str, _ours_or_dotted(tuple(by_name.SCENARIOS), "What the clients do")]
ApproachName = Annotated[str, _ours_or_dotted(tuple(APPROACHES), "How a transaction is carried out")]
Work = Annotated[
    Literal["dispatching", "consolidation"],
    Meta(description="Scenario disruption: what its transactions do; left out, dispatching."),
]
BrokerCount = Annotated[int, Meta(ge=1, le=1000, description="How many brokers there are; left out, 3.")]
InFlight = Annotated[
    int,
    Meta(
        ge=1, le=1000, description="Transactions that the coordinator has in flight at a time; left out, 1."
    ),
]
CopyCount = Annotated[
    int, Meta(ge=1, le=100, description="Copies of the scenario, with clients of their own; left out, 1.")
]
StepMs = Annotated[
    float,
    Meta(gt=0, le=60_000, description="Approach bl-wait: by which its wait is calibrated; left out, 50."),
]
Stalls = Annotated[bool, Meta(description="Whether messages stall now and then; left out, false.")]
LoadName = Annotated[
    Load,
    Meta(description="Scenario disruption: whether the publisher waits for the overlay; left out, closed."),
]

DurableName = Annotated[
    Durable,
    Meta(
        description="What brokers keep: nothing (none), or a log that survives the process (os) or the machine (fsync);"
        " left out, none."
    ),
]

T = TypeVar("T")
_SOME = Meta(
    min_length=1,
    extra={"problem": "an empty matrix: this list has none"},
    extra_json_schema={"uniqueItems": True},
)
OneOrMore: TypeAlias = T | Annotated[list[T], _SOME]


def _needed(text: str) -> Meta:
    return Meta(extra={"missing": f"an empty matrix: {text}"})


class _Names(Struct, frozen=True):
    """The values of an axis that others can add to."""

    ours: tuple[str, ...]
    find: Callable[[str], ModuleType | None]
    """Raises ScenarioError for a module that is none."""


_NAMES = {
    "scenario": _Names(tuple(by_name.SCENARIOS), by_name.scenario),
    "approach": _Names(tuple(APPROACHES), catalogue.approach),
}


class Matrix(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What varies, as a list, and what is fixed: there is a cell for every combination."""

    scenario: Annotated[OneOrMore[ScenarioName], _needed("it names no scenario")]
    work: OneOrMore[Work] | UnsetType = UNSET
    approach: Annotated[OneOrMore[ApproachName], _needed("it names no approach")]
    brokers: OneOrMore[BrokerCount] | UnsetType = UNSET
    in_flight: OneOrMore[InFlight] | UnsetType = UNSET
    copies: OneOrMore[CopyCount] | UnsetType = UNSET
    step_ms: OneOrMore[StepMs] | UnsetType = UNSET
    stalls: OneOrMore[Stalls] | UnsetType = UNSET
    load: OneOrMore[LoadName] | UnsetType = UNSET
    durable: OneOrMore[DurableName] | UnsetType = UNSET


AXES = Matrix.__struct_fields__
"""What a cell is described by, in experiments and in claims."""
_DEFAULTS = {
    "work": "dispatching",
    "brokers": 3,
    "in_flight": 1,
    "copies": 1,
    "step_ms": STEP_MS,
    "stalls": False,
    "load": "closed",
    "durable": "none",
}
_DISRUPTION = Disruption()
Count = Annotated[int, Meta(ge=1, le=10**7)]
_KEPT_UP = "{found} is no share of the capacity, and more than that cannot be kept up: give a share, as 0.8"


class DisruptionSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The scenario disruption: rounds of regular events, and transactions after each."""

    rounds: Count = _DISRUPTION.rounds
    """How often events are followed by transactions."""
    events: Count = _DISRUPTION.events
    """In a round."""
    instances: Count = _DISRUPTION.instances
    """Transactions after each round."""
    open_share: Annotated[float, Meta(gt=0, le=1, extra={"problem": _KEPT_UP})] = _DISRUPTION.open_share
    """Open loop: of the capacity that the same cell has shown."""
    window_ms: Annotated[float, Meta(gt=0, le=60_000)] = _DISRUPTION.window_ms
    """Of time, in each of which the events that arrive are counted."""

    def disruption(self) -> Disruption:
        return Disruption(**structs.asdict(self))


class ExperimentFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which cells are measured, and under which delays."""

    figure: int | UnsetType = UNSET
    """The paper's, that this experiment reproduces."""
    matrix: Annotated[OneOrMore[Matrix], _needed("name what varies and what is fixed under 'matrix'")]
    """One matrix, or a list of them: then all their cells."""
    delay: Links = Links()
    disruption: DisruptionSettings | UnsetType = UNSET
    faults: FaultsFile | UnsetType = UNSET


# Files


def folder() -> Path:
    """The experiments of the directory that we are in or, failing that, our own."""
    here = Path("experiments")
    return here if here.is_dir() else PROJECT / "experiments"


def names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.yaml") if path.stem != "claims")


def find(name: str) -> tuple[Experiment, ...]:
    """By name, by file, or `all` of them that have no faults."""
    if name == ALL:
        every = (load(folder() / f"{each}.yaml") for each in names())
        # What is measured while something fails belongs with nothing else.
        found = tuple(experiment for experiment in every if experiment.faults is None)
        if not found:
            raise ExperimentError(f"there is no experiment in {folder()}")
        _refuse_differences(found)
        return found
    if name.endswith((".yaml", ".yml")):
        return (load(Path(name)),)
    if name not in names():
        raise ExperimentError(
            f"there is no experiment {name!r} in {folder()}; {nearest(name, [*names(), ALL])}"
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
    document = yamlfile.read(path, ExperimentFile, ExperimentError)
    written = document.value
    if isinstance(written.matrix, Matrix):
        cells = _cells(document, written.matrix, "matrix")
    else:
        every = (_cells(document, each, "matrix", n) for n, each in enumerate(written.matrix))
        cells = tuple(dict.fromkeys(itertools.chain(*every)))
    if written.disruption is not UNSET and all(cell.scenario != "disruption" for cell in cells):
        raise document.error("no cell has the scenario 'disruption' that this is about", "disruption")
    faults = None if written.faults is UNSET else written.faults
    if faults is not None:
        cells = faulted.cells(document, faults, cells, path.stem)
    return Experiment(
        name=path.stem,
        cells=cells,
        figure=None if written.figure is UNSET else written.figure,
        links=written.delay,
        disruption=Disruption() if written.disruption is UNSET else written.disruption.disruption(),
        faults=faults,
    )


def _cells(document: Document[ExperimentFile], matrix: Matrix, *place: Place) -> tuple[Cell, ...]:
    """The product of the axes of one matrix."""
    axes = {name: value if isinstance(value, list) else [value] for name, value in given(matrix).items()}
    for name, values in axes.items():
        _check_values(document, name, values, *place, name)
    _check_sense(document, axes, *place)
    every = [axes.get(name) or [_DEFAULTS[name]] for name in AXES]
    points = (dict(zip(AXES, point, strict=True)) for point in itertools.product(*every))
    return tuple(dict.fromkeys(_cell(point) for point in points))


def _check_values(document: Document[Any], axis: str, values: Sequence[Any], *place: Place) -> None:
    """Each once; scenarios and approaches of others can be imported."""
    for position, value in enumerate(values):
        if value in values[:position]:
            raise document.error(f"{value!r} is there twice", *place, position)
        check_name(document, axis, value, *place, position)
        try:
            if axis in _NAMES and catalogue.is_foreign(value):
                _NAMES[axis].find(value)
        except ScenarioError as error:
            raise document.error(str(error), *place, position) from None


def check_name(document: Document[Any], axis: str, value: Any, *place: Place) -> None:
    """A scenario or an approach is one of ours or a dotted name, which is not imported for this."""
    if axis in _NAMES and value not in _NAMES[axis].ours and not catalogue.is_foreign(value):
        raise document.error(unknown_word(value, _NAMES[axis].ours), *place)


def _check_sense(
    document: Document[ExperimentFile], axes: Mapping[str, Sequence[Any]], *place: Place
) -> None:
    """An axis that would have no effect is a mistake."""
    for name in ("work", "load"):
        if name in axes and "disruption" not in axes["scenario"]:
            raise document.error(f"{name!r} is only for the scenario 'disruption'", *place, name)
    waiting = [name for name in axes["approach"] if not approach_of(name).is_transactional]
    if "step_ms" in axes and not waiting:
        raise document.error(f"'step_ms' is only for the approach {BL_WAIT!r}", *place, "step_ms")
    if "disruption" in axes["scenario"]:
        for name, only in (("in_flight", 1), ("copies", 1)):
            if name in axes and list(axes[name]) != [only]:
                raise document.error(f"the scenario 'disruption' has {name} {only}", *place, name)
        if waiting:
            text = f"{waiting[0]!r} has no place in 'disruption': its wait is calibrated without load"
            raise document.error(text, *place, "approach")


def _cell(point: Mapping[str, Any]) -> Cell:
    """Only what has a meaning for this one is kept, so that equal cells are equal."""
    kept = dict(point)
    if approach_of(kept["approach"]).is_transactional:
        kept["step_ms"] = None
    if kept["scenario"] != "disruption":
        kept["work"] = kept["load"] = None
    return Cell(**kept)
