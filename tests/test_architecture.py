"""Who may import whom: the contracts in pyproject.toml, and the purity of the broker's core once more.

import-linter follows imports through our modules. The check here reads the source by itself: it knows
more of the standard library, sees calls such as `open`, and the tests show that it can fail.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from labctl.paths import PROJECT

OUTER = frozenset({"__main__", "journal.disk", "node", "serving", "transport"})
"""What in broker/ may do I/O: rooms and modules. Everything else is pure, also what somebody adds tomorrow."""

# One name to a line would fill the screen.
# fmt: off
IMPURE_MODULES = frozenset({
    "asyncio", "concurrent", "ctypes", "datetime", "fcntl", "glob", "http", "importlib", "io",
    "locale", "logging", "mmap", "multiprocessing", "os", "pathlib", "platform", "random",
    "resource", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver",
    "ssl", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid", "uvloop",
})
# fmt: on
IMPURE_BUILTINS = frozenset({"open", "print", "input", "breakpoint", "exec", "eval", "__import__"})
PERMITTED = frozenset({("delay", "random.Random")})
"""A generator seeded by the experiment is a function of its arguments."""


def pure_files() -> list[Path]:
    files = (PROJECT / "broker").rglob("*.py")
    return sorted(
        f for f in files if not _is_outer(".".join(f.relative_to(PROJECT / "broker").with_suffix("").parts))
    )


def _is_outer(name: str) -> bool:
    """Of a module, or something in one, without `broker.`."""
    return any(f"{name}.".startswith(f"{outer}.") for outer in OUTER)


def impurities(path: Path) -> list[str]:
    """One sentence for each thing in a file that a pure module may not do."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        for name in _imported(node):
            if (path.stem, name) not in PERMITTED and not _is_pure(name):
                found.append(f"{path.name}:{node.lineno} imports {name}")  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS:
            found.append(f"{path.name}:{node.lineno} calls {node.func.id}")
    return found


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        # A relative import stays inside broker, where `from . import x` and `from .x import y` mean x.
        prefix = ".".join(filter(None, ["broker" if node.level else "", node.module or ""]))
        yield from (f"{prefix}.{alias.name}" for alias in node.names)


def _is_pure(name: str) -> bool:
    package, _, rest = name.partition(".")
    if package == "broker":
        return not _is_outer(rest)
    return package not in IMPURE_MODULES


def test_the_import_contracts_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-logo"], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_a_module_of_the_core_does_no_io(path: Path) -> None:
    assert impurities(path) == []


def test_the_modules_that_must_be_pure_are_looked_at() -> None:
    names = {path.stem for path in pure_files()}
    assert {"core", "delay", "filters", "folder", "index", "link", "tables", "wire"} <= names


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import time", "core.py:1 imports time"),
        ("from os import path", "core.py:1 imports os.path"),
        ("import asyncio.tasks as t", "core.py:1 imports asyncio.tasks"),
        ("def f():\n    import socket", "core.py:2 imports socket"),
        ("from random import Random", "core.py:1 imports random.Random"),
        ("from broker.serving.server import Server", "core.py:1 imports broker.serving.server.Server"),
        ("from broker import transport", "core.py:1 imports broker.transport"),
        ("from .transport import timer", "core.py:1 imports broker.transport.timer"),
        ("from . import serving", "core.py:1 imports broker.serving"),
        ("from broker.journal.disk import RealDisk", "core.py:1 imports broker.journal.disk.RealDisk"),
        ("f = open('x')", "core.py:1 calls open"),
    ],
)
def test_the_check_catches_a_planted_impurity(tmp_path: Path, source: str, complaint: str) -> None:
    planted = tmp_path / "core.py"
    planted.write_text(source)
    assert impurities(planted) == [complaint]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (
            "core.py",
            "import msgspec\nfrom collections import deque\nfrom broker.protocol.wire import Publish",
        ),
        ("core.py", "from broker import filters\nfrom .index import Index\nimport timeit_of_ours"),
        ("delay.py", "from random import Random"),
    ],
)
def test_the_check_lets_pure_code_pass(tmp_path: Path, name: str, source: str) -> None:
    planted = tmp_path / name
    planted.write_text(source)
    assert impurities(planted) == []


def test_delay_may_use_a_seeded_generator_but_not_the_shared_one(tmp_path: Path) -> None:
    planted = tmp_path / "delay.py"
    planted.write_text("import random")
    assert impurities(planted) == ["delay.py:1 imports random"]
