"""The files that people write: YAML, read into the type that models the file as it is written.

`msgspec.convert` decides what fits the model; `labctl.yamlfaults` says why something does not, and which words a
model can bring along for it. No YAML value travels further. Cross-checks are the business of whoever reads the
file: `Document.error` gives them file and line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml
from msgspec import UNSET, Struct, structs

from labctl.exits import UsageProblem
from labctl.yamlfaults import FaultTexts, FileFault, mismatch

T = TypeVar("T")
Place = str | int
"""A step into a file: a key, or a position in a list."""


@dataclass(frozen=True)
class Document(Generic[T]):
    """What a file says, and where."""

    value: T
    path: Path
    root: yaml.Node
    error_type: type[UsageProblem]

    def error(self, text: str, *places: Place) -> UsageProblem:
        """With file and line of what is found by following the places from the root; to be raised."""
        node = self.root
        for place in places:
            below = _below(node, place)
            if below is None:  # a single value, where a list of them could stand
                break
            node = below
        return self.error_type(_located(self.path, node, text))


def read(path: Path, model: type[T], error_type: type[UsageProblem]) -> Document[T]:
    """The single document of a file; every problem is an `error_type` that names file and line."""
    root = _compose(path, error_type)
    values: dict[yaml.Node, Any] = {}
    try:
        value = _plain(root, values)
        try:
            return Document(msgspec.convert(value, model), path, root, error_type)
        except msgspec.ValidationError:
            raise FaultTexts(values).of(root, model) from None
    except FileFault as fault:
        raise error_type(_located(path, fault.node, str(fault))) from None


def given(settings: Struct) -> dict[str, Any]:
    """What was written, without what was left out."""
    return {name: value for name, value in structs.asdict(settings).items() if value is not UNSET}


def _compose(path: Path, error_type: type[UsageProblem]) -> yaml.Node:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise error_type(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise error_type(f"{path} is not UTF-8 text") from None
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise error_type(f"{path}, line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise error_type(f"{path} is not YAML: {_first_line(error)}") from None
    if node is None:
        raise error_type(f"{path} is empty")
    return node


def _plain(node: yaml.Node, values: dict[yaml.Node, Any]) -> Any:
    """Of dicts with text for keys, lists and finite scalars; `values` gets the value of every node."""
    if node in values:  # an alias, perhaps of what contains it
        return values[node]
    if isinstance(node, yaml.MappingNode):
        mapping = values[node] = {}
        for key, value in node.value:
            name = _plain(key, values)
            if not isinstance(name, str):
                raise FileFault(key, mismatch(name, [str]))
            if name in mapping:
                raise FileFault(key, f"the key {name!r} is there twice")
            mapping[name] = _plain(value, values)
    elif isinstance(node, yaml.SequenceNode):
        sequence = values[node] = []
        sequence.extend(_plain(item, values) for item in node.value)
    else:
        values[node] = _scalar(node)
    return values[node]


def _scalar(node: yaml.Node) -> Any:
    try:
        value: Any = yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        raise FileFault(node, f"{node.value!r} cannot be read: {_first_line(error)}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise FileFault(node, mismatch(value, [float]))
    return value


def _below(node: yaml.Node, place: Place) -> yaml.Node | None:
    below: yaml.Node | None = None
    if isinstance(node, yaml.MappingNode):
        below = next((value for key, value in node.value if key.value == place), None)
    elif isinstance(node, yaml.SequenceNode) and isinstance(place, int):
        below = node.value[place]
    return below


def _located(path: Path, node: yaml.Node, text: str) -> str:
    return f"{path}, line {node.start_mark.line + 1}: {text}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
