"""A snapshot is read by the version that wrote it: whoever changes what it consists of raises `ledger.VERSION`."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

from broker.gate import ledger

PROJECT = Path(__file__).parents[3]
ROOMS = ("matching", "protocol", "routing", "transactions", "journal")
MODULES = (
    "core.py",
    "protocols.py",
    "gate/recovery.py",
    "gate/ledger.py",
    "sessions/saved.py",
    "sessions/greeting.py",
)
LAYOUT = (1, "071d711a2a474b40")
"""The version, and what it stands for."""


def sources() -> list[Path]:
    broker = PROJECT / "broker"
    rooms = [path for room in ROOMS for path in (broker / room).rglob("*.py")]
    return sorted({*rooms, *(broker / name for name in MODULES)})


def layout_of(path: Path) -> Iterator[str]:
    """Its classes with all that an instance of them has."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield f"{path.relative_to(PROJECT)} {node.name}: {' '.join(sorted(set(attributes(node))))}"


def attributes(definition: ast.ClassDef) -> Iterator[str]:
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
    for node in ast.walk(definition):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node.attr


def test_what_a_snapshot_consists_of_has_a_version() -> None:
    lines = [line for path in sources() for line in layout_of(path)]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert (ledger.VERSION, digest) == LAYOUT, (
        "classes of which snapshots consist have changed: raise VERSION in broker/gate/ledger.py if a release has been"
        " made since it was raised last, and write both here"
    )
