"""`labctl schema`: the JSON Schemas accept what is shipped, refuse what the readers refuse, and explain every key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from msgspec import Meta
from msgspec.structs import fields
from typer.testing import CliRunner

from client.scenarios.approaches import APPROACHES
from client.scenarios.cases.by_name import SCENARIOS
from labctl.cli import app
from labctl.commands.schema import DRAFT, Kind, model_of, schema, structs_of
from labctl.paths import PROJECT

OURS = PROJECT / "experiments"
KINDS: tuple[Kind, ...] = get_args(Kind)
SHIPPED: list[tuple[Kind, Path]] = [
    *(("experiment", path) for path in sorted(OURS.glob("*.yaml")) if path.stem != "claims"),
    *(("testbed", path) for path in sorted((OURS / "testbeds").glob("*.yaml"))),
    ("claims", OURS / "claims.yaml"),
]
TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "string": str,
}
SAYS_NOTHING = {
    "$schema",
    "$defs",
    "title",
    "description",
    "default",
    "examples",
    "discriminator",
    "required",
}


def is_valid(kind: Kind, value: object) -> bool:
    whole = schema(kind)
    return _accepts(whole, whole, value)


def _accepts(whole: dict[str, Any], part: dict[str, Any], value: Any) -> bool:
    """As much of JSON Schema as our schemas use; another keyword is an error here."""
    keywords = sorted(part.keys() - SAYS_NOTHING, key=lambda keyword: keyword != "type")
    return all(_holds(whole, part, keyword, value) for keyword in keywords)


def _holds(  # noqa: PLR0911, PLR0912 - a case for each keyword
    whole: dict[str, Any], part: dict[str, Any], keyword: str, value: Any
) -> bool:
    asked = part[keyword]
    match keyword:
        case "$ref":
            return _accepts(whole, whole["$defs"][asked.removeprefix("#/$defs/")], value)
        case "anyOf":
            return any(_accepts(whole, each, value) for each in asked)
        case "type":
            return isinstance(value, TYPES[asked]) and (asked == "boolean" or not isinstance(value, bool))
        case "enum":
            return value in asked
        case "pattern":
            return re.search(asked, value) is not None
        case "minimum" | "exclusiveMinimum":
            return bool(value > asked or (value == asked and keyword == "minimum"))
        case "maximum":
            return bool(value <= asked)
        case "minItems":
            return bool(len(value) >= asked)
        case "maxItems":
            return bool(len(value) <= asked)
        case "uniqueItems":
            return all(each not in value[:position] for position, each in enumerate(value))
        case "prefixItems":
            return all(_accepts(whole, each, item) for each, item in zip(asked, value, strict=False))
        case "items":
            return asked is False or all(_accepts(whole, asked, item) for item in value)
        case "properties":
            known = all(_accepts(whole, asked[key], each) for key, each in value.items() if key in asked)
            return known and set(part.get("required", ())) <= set(value)
        case "additionalProperties":
            others = [each for key, each in value.items() if key not in part.get("properties", {})]
            return all(asked is not False and _accepts(whole, asked, each) for each in others)
    raise AssertionError(f"{keyword} is nothing that is checked here")


@pytest.mark.parametrize(("kind", "path"), SHIPPED, ids=lambda given: getattr(given, "stem", given))
def test_every_shipped_file_is_valid(kind: Kind, path: Path) -> None:
    assert is_valid(kind, yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("experiment", "matrix: [{scenario: dispatching, approach: mine.eager, stalls: [true, false]}]"),
        ("experiment", "{figure: 5, matrix: {scenario: a.b, approach: d-tx}, delay: {stall_ms: [1, 2]}}"),
        ("testbed", "{provider: hosts, hosts: [a, {address: b}], reach: {floating: net}}"),
        ("testbed", "{provider: local, timeouts: {boot_s: 1}}"),
        ("claims", "[{id: x, claim: y, cells: {a: {approach: d-tx}}, shape: [{value: '1', is: '> 0'}]}]"),
        ("topology", "{links: [[b1, b2]], delay: {links: [{between: [b1, b2], delay_ms: 1}]}}"),
    ],
)
def test_what_can_be_read_is_valid(kind: Kind, text: str) -> None:
    assert is_valid(kind, yaml.safe_load(text))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("experiment", "figure: 5"),
        ("experiment", "matrix: []"),
        ("experiment", "matrix: {scenario: dispatching}"),
        ("experiment", "matrix: {scenario: dispatching, approach: dtx}"),
        ("experiment", "matrix: {scenario: dispatching, approach: d-tx, broker: 3}"),
        ("experiment", "matrix: {scenario: dispatching, approach: d-tx, brokers: 0}"),
        ("experiment", "matrix: {scenario: dispatching, approach: d-tx, brokers: [3, 3]}"),
        ("experiment", "matrix: {scenario: disruption, approach: d-tx, load: opened}"),
        ("testbed", "image: debian-12"),
        ("testbed", "{provider: netns, image: debian-12}"),
        ("testbed", "{provider: openstack, lifetime: long}"),
        ("testbed", "{provider: openstack, placement: spred}"),
        ("testbed", "{provider: local, timeouts: {boot_s: 0}}"),
        ("claims", "[]"),
        ("claims", "[{id: x, claim: y, cells: {a: {brokers: 3}}, shape: [{value: '1', is: '> 0'}]}]"),
        ("topology", "{links: [[b1, b2, b3]]}"),
        ("topology", "{delay: {links: [{delay_ms: 1}]}}"),
    ],
)
def test_what_is_refused_is_not_valid(kind: Kind, text: str) -> None:
    assert not is_valid(kind, yaml.safe_load(text))


def test_our_scenarios_and_approaches_are_offered() -> None:
    offered = json.dumps(schema("experiment"))
    for words in (tuple(SCENARIOS), tuple(APPROACHES)):
        assert json.dumps({"enum": words}) in offered


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_explained(kind: Kind) -> None:
    """By a text of its own, or by that of each type that can stand there."""
    definitions = schema(kind)["$defs"]

    def explained(part: dict[str, Any]) -> bool:
        if "$ref" in part and "description" not in part:
            return explained(definitions[part["$ref"].removeprefix("#/$defs/")])
        inner = [each.get("items", each) for each in part.get("anyOf", ())]
        return "description" in part or (bool(inner) and all(explained(each) for each in inner))

    silent = [
        f"{name}.{key}"
        for name, definition in definitions.items()
        for key, part in definition["properties"].items()
        if key != "provider" and not explained(part)
    ]
    assert not silent


@pytest.mark.parametrize("kind", KINDS)
def test_no_model_has_a_pattern_that_msgspec_checks(kind: Kind) -> None:
    """In a union with a list it would write into memory that is not its own, as of msgspec 0.22."""

    def metas(model: Any) -> list[Meta]:
        parts = get_args(model)
        return [each for each in parts if isinstance(each, Meta)] + [m for each in parts for m in metas(each)]

    found = [
        meta
        for struct in set(structs_of(model_of(kind)))
        for field in fields(struct)
        for meta in metas(field.type)
    ]
    assert not [meta for meta in found if meta.pattern is not None]


def test_the_command_prints_the_schema_and_its_help_says_how_an_editor_finds_it() -> None:
    def labctl(*words: str) -> str:
        result = CliRunner().invoke(app, ["schema", *words])
        assert result.exit_code == 0
        return result.stdout

    printed = json.loads(labctl("topology"))
    assert printed == json.loads(json.dumps(schema("topology")))
    assert printed["$schema"] == DRAFT
    assert "# yaml-language-server: $schema=experiment.schema.json" in labctl("--help")
