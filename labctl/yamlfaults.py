"""Why a value does not fit a model, in words for people, told of the innermost part that is to blame.

`msgspec` decides whether something fits, and has a sentence for programmers about the first thing that does not.
Here the nodes of the YAML file are walked beside the model instead, so that a fault has a line, also below a key
that the user chose, and the nearest valid word. A model can bring its own sentences, as `extra` of a `Meta`:

    problem   of a value that breaks a constraint; `{found}` is the value, or the length of a list
    missing   of a required key that is not there

A pattern is for editors only (`extra_json_schema`): in msgspec 0.22 a union of a list and of text with a pattern
writes into memory that is not its own.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import yaml
from msgspec import Meta, Struct, UnsetType, structs

_KINDS: dict[Any, str] = {
    dict: "keys and values",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}


class FileFault(Exception):
    """What is wrong with a part of a file."""

    def __init__(self, node: yaml.Node, text: str) -> None:
        super().__init__(text)
        self.node = node


def nearest(given: str, valid: Iterable[str]) -> str:
    """What to say after an unknown word: the valid one that was probably meant, or all of them."""
    candidates = list(valid)
    close = difflib.get_close_matches(given, candidates, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return "valid are " + ", ".join(candidates)


def unknown_word(given: str, valid: Iterable[str]) -> str:
    return f"unknown word {given!r}; {nearest(given, valid)}"


def mismatch(value: Any, kinds: Sequence[Any]) -> str:
    """Of a value that is of none of these kinds."""
    found = _KINDS[type(value)] if isinstance(value, (dict, list)) else repr(value)
    expected = " or ".join(dict.fromkeys(_KINDS[kind] for kind in kinds))
    quotes = str in kinds and not isinstance(value, (dict, list, types.NoneType))
    hint = "; write it in quotes if you mean text" if quotes else ""
    return f"expected {expected}, found {'nothing' if value is None else found}{hint}"


class FaultTexts:
    """Of faults in a file whose nodes have these plain values."""

    def __init__(self, values: dict[yaml.Node, Any]) -> None:
        self._values = values

    def of(self, node: yaml.Node, model: Any, key: str = "") -> FileFault:
        """Why the node's value does not fit; `key` is the one that it stands under."""
        value = self._values[node]
        members = list(_members(model))
        fitting = [each for each in members if _is_of(value, _kind(each))]
        if not fitting:
            return FileFault(node, mismatch(value, [_kind(each) for each in members]))
        if isinstance(node, yaml.MappingNode):
            return self._in_mapping(node, [_bare(each) for each in fitting]) or FileFault(
                node, _refusal(value, model)
            )
        inner = self._in_list(node, fitting[0], key) if isinstance(node, yaml.SequenceNode) else None
        return inner or FileFault(node, _complaint(value, fitting[0], key))

    def _in_list(self, node: yaml.SequenceNode, model: Any, key: str) -> FileFault | None:
        items = get_args(_bare(model))
        each_its_own = get_origin(_bare(model)) is tuple and items[-1] is not ...
        wanted = items if each_its_own else repeat(items[0])
        return self._first((item, each, key) for item, each in zip(node.value, wanted, strict=False))

    def _in_mapping(self, node: yaml.MappingNode, models: Sequence[Any]) -> FileFault | None:
        """Several models: structs, told apart by their tags."""
        if get_origin(models[0]) is dict:
            _, wanted = get_args(models[0])
            return self._first((value, wanted, key.value) for key, value in node.value)
        name = models[0].__struct_config__.tag_field
        tag = self._values[node].get(name)
        chosen = [each for each in models if each.__struct_config__.tag == tag] or models
        return (
            self._unknown_key(node, chosen, name)
            or (self._wrong_tag(node, chosen, name) if len(chosen) > 1 else None)
            or self._in_struct(node, chosen[0])
        )

    def _unknown_key(
        self, node: yaml.MappingNode, models: Sequence[Any], tag: str | None
    ) -> FileFault | None:
        fields = (field.encode_name for model in models for field in structs.fields(model))
        valid = list(dict.fromkeys([tag, *fields] if tag else fields))
        for key, _ in node.value:
            if key.value not in valid:
                return FileFault(key, f"unknown key {key.value!r}; {nearest(key.value, valid)}")
        return None

    def _wrong_tag(self, node: yaml.MappingNode, models: Sequence[Any], name: str) -> FileFault:
        tags = tuple(str(each.__struct_config__.tag) for each in models)
        for key, value in node.value:
            if key.value == name:
                return self.of(value, Literal[tags], name)
        return FileFault(node, f"which {name}? Write {name}: and one of {', '.join(tags)}")

    def _in_struct(self, node: yaml.MappingNode, model: type[Struct]) -> FileFault | None:
        wanted = {field.encode_name: field.type for field in structs.fields(model)}
        parts = ((value, wanted[key.value], key.value) for key, value in node.value if key.value in wanted)
        if fault := self._first(parts):
            return fault
        for field in structs.fields(model):
            if field.required and field.encode_name not in self._values[node]:
                missing = f"{field.encode_name!r} is missing"
                return FileFault(node, _constraints(field.type).get("missing", missing))
        return None

    def _first(self, parts: Iterable[tuple[yaml.Node, Any, str]]) -> FileFault | None:
        for node, model, key in parts:
            if _refusal(self._values[node], model):
                return self.of(node, model, key)
        return None


def _refusal(value: Any, model: Any) -> str:
    """What msgspec has against a value; nothing when it fits."""
    try:
        msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _complaint(value: Any, model: Any, key: str) -> str:
    """Of a value of the right kind, all of whose parts are well."""
    says = _constraints(model)
    if get_origin(_bare(model)) is Literal:
        return unknown_word(value, get_args(_bare(model)))
    if "problem" in says:
        return str(says["problem"]).format(found=len(value) if isinstance(value, list) else value)
    limits = [f"{words} {says[name]:.12g}" for name, words in _LIMITS.items() if name in says]
    if limits:
        return f"{key} is {value}; it must be {' and '.join(limits)}"
    return _refusal(value, model)


_LIMITS = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}


def _constraints(model: Any) -> dict[str, Any]:
    """What the `Meta` of a type says: its limits, and its words in `extra`."""
    found: dict[str, Any] = {}
    for meta in get_args(model)[1:] if get_origin(model) is Annotated else ():
        if isinstance(meta, Meta):
            limits = {name: getattr(meta, name) for name in _LIMITS}
            found |= {name: limit for name, limit in limits.items() if limit is not None}
            found |= meta.extra or {}
    return found


def _bare(model: Any) -> Any:
    return get_args(model)[0] if get_origin(model) is Annotated else model


def _members(model: Any) -> Iterator[Any]:
    """Of a union, the types that can be written; of another type, itself."""
    if get_origin(_bare(model)) in (Union, types.UnionType):
        for each in get_args(_bare(model)):
            yield from _members(each)
    elif model is not UnsetType:
        yield model


def _kind(model: Any) -> Any:
    """The key in `_KINDS`."""
    bare = get_origin(_bare(model)) or _bare(model)
    if bare is Literal:
        return str
    if bare is tuple:
        return list
    return dict if isinstance(bare, type) and issubclass(bare, Struct) else bare


def _is_of(value: Any, kind: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return type(value) is kind
    return isinstance(value, (int, float) if kind is float else kind)
