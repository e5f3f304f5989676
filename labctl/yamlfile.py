"""YAML at the door: values that remember file and line, checked when they are asked for.

Callers turn them into frozen types at once; no YAML value travels further. What the values mean is
the caller's business.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from pathlib import Path

import yaml

from labctl.exits import UsageProblem


def nearest(given: str, valid: Iterable[str]) -> str:
    """What to say after an unknown word: the valid one that was probably meant, or all of them."""
    candidates = list(valid)
    close = difflib.get_close_matches(given, candidates, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return "valid are " + ", ".join(candidates)


class Node:
    """One value of a YAML file; converting it to the wrong type raises `error_type`, with its place."""

    def __init__(self, node: yaml.Node, path: Path, error_type: type[UsageProblem]) -> None:
        self._node = node
        self._path = path
        self._error_type = error_type

    def error(self, text: str) -> UsageProblem:
        return self._error_type(f"{self._path}, line {self._node.start_mark.line + 1}: {text}")

    def mapping(self, valid: Iterable[str]) -> dict[str, Node]:
        """Keys to values; only keys that are valid, each once."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error(f"expected keys and values, found {self._kind()}")
        found: dict[str, Node] = {}
        allowed = list(valid)
        for key_node, value_node in self._node.value:
            key = self._beside(key_node)
            name = key.text()
            if name not in allowed:
                raise key.error(f"unknown key {name!r}; {nearest(name, allowed)}")
            if name in found:
                raise key.error(f"the key {name!r} is there twice")
            found[name] = self._beside(value_node)
        return found

    @property
    def is_sequence(self) -> bool:
        return isinstance(self._node, yaml.SequenceNode)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self._node, yaml.MappingNode)

    def sequence(self) -> list[Node]:
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.error(f"expected a list, found {self._kind()}")
        return [self._beside(item) for item in self._node.value]

    def keys(self) -> list[str]:
        """Of a mapping whose keys are names that the user chooses."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error(f"expected keys and values, found {self._kind()}")
        return [self._beside(key).text() for key, _ in self._node.value]

    def text(self) -> str:
        value = self._scalar()
        if not isinstance(value, str):
            raise self.error(f"expected text, found {self._kind()}; write it in quotes if you mean text")
        return value

    def number(self) -> float:
        value = self._scalar()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.error(f"expected a number, found {self._kind()}")
        return float(value)

    def integer(self) -> int:
        value = self._scalar()
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"expected a whole number, found {self._kind()}")
        return value

    def boolean(self) -> bool:
        value = self._scalar()
        if not isinstance(value, bool):
            raise self.error(f"expected true or false, found {self._kind()}")
        return value

    def _beside(self, node: yaml.Node) -> Node:
        return Node(node, self._path, self._error_type)

    def _scalar(self) -> object:
        if not isinstance(self._node, yaml.ScalarNode):
            return None
        try:
            value: object = yaml.SafeLoader("").construct_object(self._node)
        except (yaml.YAMLError, ValueError) as error:
            raise self.error(f"{self._node.value!r} cannot be read: {_first_line(error)}") from None
        return value

    def _kind(self) -> str:
        if isinstance(self._node, yaml.MappingNode):
            return "keys and values"
        if isinstance(self._node, yaml.SequenceNode):
            return "a list"
        value = self._scalar()
        return "nothing" if value is None else repr(value)


def read(path: Path, error_type: type[UsageProblem]) -> Node:
    """The single document of a file; every problem is an `error_type` that names file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise error_type(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise error_type(f"{path} is not UTF-8 text") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise error_type(f"{path}, line {line}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise error_type(f"{path} is not YAML: {_first_line(error)}") from None
    if node is None:
        raise error_type(f"{path} is empty")
    return Node(node, path, error_type)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
