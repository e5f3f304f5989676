"""The table of approaches: it is complete, it has an answer for somebody's own, and nobody has a second one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from broker.protocol.vocabulary import (
    D_TX,
    D_TX_NI,
    D_TX_OPTIMISTIC,
    ISOLATED,
    PLANNED,
    PROTOCOLS,
    S_TX,
    S_TX_SAFE,
    SAFE,
    plan_mode,
)
from client.scenarios.approaches import APPROACHES, BL_WAIT, Family, approach_of
from labctl.paths import PROJECT
from labctl.report.judgement import cost

OWNERS = frozenset({"broker/protocol/vocabulary.py", "client/scenarios/approaches.py"})
"""Where the names are given. Nobody else may write one down."""


def names_in(source: str) -> list[int]:
    """Lines in which a string is just the name of an approach; a docstring is not looked at."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in APPROACHES and id(node) not in prose
    ]


def sources() -> Iterator[tuple[str, str]]:
    for package in ("broker", "client", "labctl", "playbooks"):
        for path in sorted((PROJECT / package).rglob("*.py")):
            yield str(path.relative_to(PROJECT)), path.read_text()


def test_no_module_but_the_owners_knows_an_approach_by_its_name() -> None:
    found = {name: names_in(source) for name, source in sources()}
    assert {name for name, lines in found.items() if lines} == OWNERS


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('x = f() == "s-tx"', [1]),
        ('def f(a="d-tx"):\n    return {"bl-wait": 1}', [1, 2]),
        ('"""d-tx"""\nx = "s-tx is fast"', []),
    ],
)
def test_the_check_finds_a_planted_name(source: str, lines: list[int]) -> None:
    assert names_in(source) == lines


def test_every_protocol_has_a_constant() -> None:
    assert (D_TX, D_TX_OPTIMISTIC, D_TX_NI, S_TX, S_TX_SAFE) == PROTOCOLS


def test_a_protocol_is_planned_or_isolated_never_both_and_only_plans_are_safe() -> None:
    assert {*PLANNED, *ISOLATED} < {*PROTOCOLS}
    assert not PLANNED & ISOLATED
    assert SAFE < PLANNED
    assert [plan_mode(safe=name in SAFE) for name in (S_TX, S_TX_SAFE)] == [S_TX, S_TX_SAFE]


def test_every_protocol_has_a_row_and_bl_wait_is_the_only_other() -> None:
    assert {*APPROACHES} == {*PROTOCOLS, BL_WAIT}
    assert [name for name, row in APPROACHES.items() if row.name != name] == []
    assert [name for name, row in APPROACHES.items() if not row.is_transactional] == [BL_WAIT]


def test_a_row_is_of_the_family_of_its_protocol() -> None:
    for row in APPROACHES.values():
        assert row.family is not None
        assert row.is_planned == (row.family is Family.S_TX) == (row.name in PLANNED)
        assert row.is_isolated == (row.name in ISOLATED)


def test_only_bl_wait_and_d_tx_ni_may_reach_the_wrong_client() -> None:
    assert {name for name, row in APPROACHES.items() if not row.is_exact} == {BL_WAIT, D_TX_NI}


@pytest.mark.parametrize("column", ["label", "colour", "marker"])
def test_no_two_approaches_look_alike(column: str) -> None:
    assert len({getattr(row, column) for row in APPROACHES.values()}) == len(APPROACHES)


def test_an_approach_of_ones_own_is_held_to_what_transactions_promise() -> None:
    row = approach_of("mine.stubborn")
    assert (row.name, row.label) == ("mine.stubborn", "mine.stubborn")
    assert row.is_transactional
    assert row.is_exact
    assert row.family is None
    assert row.colour not in {ours.colour for ours in APPROACHES.values()}
    assert not row.is_planned
    assert not row.is_isolated
    assert cost.messages("mine.stubborn", 3, {"E": "b1", "D": "b2", "A1": "b3", "A2": "b3"}) is None
