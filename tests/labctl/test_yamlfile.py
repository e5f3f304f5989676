"""Files that people write: what fits the model is read, and what does not is told with its line and the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from labctl.exits import UsageProblem
from labctl.yamlfile import given, read


class Tool(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    weight: Annotated[int, Meta(ge=1, le=9)] | UnsetType = UNSET
    colour: Literal["red", "green"] = "red"
    handles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.colour == "green" and self.handles:
            raise ValueError("green tools have no handle")


class Saw(Tool, frozen=True, tag_field="kind", tag="saw"):
    teeth: Annotated[int, Meta(extra={"problem": "no teeth", "missing": "a saw has teeth"})]


class Hammer(Tool, frozen=True, tag_field="kind", tag="hammer"):
    head: str | Tool = "steel"


Model = dict[str, list[Saw | Hammer]]


def said(folder: Path, text: str, model: Any = Model) -> str:
    path = folder / "box.yaml"
    path.write_text(text)
    with pytest.raises(UsageProblem) as caught:
        read(path, model, UsageProblem)
    return str(caught.value).removeprefix(f"{path}, ")


def test_what_fits_is_read_and_what_was_left_out_is_known(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("mine: [{kind: saw, teeth: 3}, {kind: hammer, head: {weight: 2}}]")
    saw, hammer = read(path, cast("type[Model]", Model), UsageProblem).value["mine"]
    assert given(saw) == {"colour": "red", "handles": (), "teeth": 3}
    assert isinstance(hammer, Hammer)
    assert hammer.head == Tool(weight=2)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "mine:\n- kind: saw\n  teeth: 3\n  wieght: 2",
            "line 4: unknown key 'wieght'; did you mean 'weight'?",
        ),
        ("a:\n- {kind: hammer}\nb:\n- {kind: hamer}", "line 4: unknown word 'hamer'; did you mean 'hammer'?"),
        (
            "a:\n- kind: hammer\n  head:\n    colour: gren",
            "line 4: unknown word 'gren'; did you mean 'green'?",
        ),
        ("a: [{colour: red}]", "line 1: which kind? Write kind: and one of saw, hammer"),
        ("a: [{knd: saw}]", "line 1: unknown key 'knd'; did you mean 'kind'?"),
        ("a:\n- {kind: hammer}\n- {kind: saw}", "line 3: a saw has teeth"),
        ("a: [{kind: hammer, weight: 10}]", "line 1: weight is 10; it must be at least 1 and at most 9"),
        ("a: [{kind: hammer, weight: }]", "line 1: expected a whole number, found nothing"),
        ("a: [{kind: hammer, weight: 2.0}]", "line 1: expected a whole number, found 2.0"),
        ("a: [{kind: hammer, head: [x]}]", "line 1: expected text or keys and values, found a list"),
        ("a: [{kind: hammer, handles: [x,\n 3]}]", "line 2: expected text, found 3; write it in quotes"),
        ("a:\n- {kind: hammer, colour: green, handles: [x]}", "line 2: green tools have no handle"),
        ("a: []\n1: []", "line 2: expected text, found 1; write it in quotes"),
        ("a: []\nb: []\na: []", "line 3: the key 'a' is there twice"),
        ("a: [{kind: hammer, weight: .inf}]", "line 1: expected a number, found inf"),
        ("a: [{kind: hammer, head: 2020-13-01}]", "line 1: '2020-13-01' cannot be read"),
        ("a: &all\n- *all", "line 1: expected keys and values, found a list"),
        ("a: {kind: hammer}", "line 1: expected a list, found keys and values"),
    ],
)
def test_what_does_not_fit_is_told_of_the_innermost_part(tmp_path: Path, text: str, complaint: str) -> None:
    assert said(tmp_path, text).startswith(complaint)


def test_a_cross_check_finds_the_line_of_a_value_that_stands_for_a_list_of_them(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("a:\n  b:\n  - c\n  - d\ne: f")
    document = read(path, dict[str, Any], UsageProblem)
    assert "line 4: no" in str(document.error("no", "a", "b", 1))
    assert "line 5: no" in str(document.error("no", "e", 0))
