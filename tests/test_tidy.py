"""Style that a linter does not know, checked in every file that belongs to the repository."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from labctl.paths import PROJECT

LINES_MAX = 400
LONGER: dict[str, str] = {"tests/mutations/catalogue.py": "a list, with a line for each planted fault"}
"""Files that may be longer, each with the reason."""

NOT_OURS = frozenset({".git", ".venv", ".venv-openstack", "build", "dist", "results", "__pycache__"})
"""Skipped where there is no git to say what belongs to the repository."""

WRITTEN_BY_HAND = frozenset({"", ".cfg", ".md", ".py", ".sh", ".toml", ".yaml"})

# Put together from pieces, so that this file does not contain what it forbids.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:" + "|".join(("work", "root", "home")) + r")(?:/|(?![\w-]))")
REGISTRY = re.compile(
    "|".join(
        ("pypi" + r"\.org", "python" + "hosted", r"index-url[= ]\S*:" + "//", r"https?://\S+/" + "simple")
    )
)
UNFINISHED = re.compile(r"\b(?:TO" + "DO|FIX" + r"ME)\b(?!\W+\w+(?:\W+\w+){3})")
"""The word, and fewer than four words of explanation behind it."""


def tracked_files() -> list[Path]:
    """What git tracks or would track; without git, every file that is not a product of the tools."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
        files = [PROJECT / name for name in done.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        files = [f for f in PROJECT.rglob("*") if not _is_product(f.relative_to(PROJECT))]
    return sorted(f for f in files if f.is_file() and not f.is_symlink())


def _is_product(path: Path) -> bool:
    return any(
        part in NOT_OURS or part.endswith(("_cache", ".egg-info", ".hypothesis")) for part in path.parts
    )


def read(path: Path) -> str:
    """Empty for what is not text."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


FILES = {str(path.relative_to(PROJECT)): path for path in tracked_files()}
TEXTS = {name: read(path) for name, path in FILES.items()}
PYTHON = {name: text for name, text in TEXTS.items() if name.endswith(".py")}


def offences(texts: dict[str, str], check: Callable[[str], list[int]]) -> list[str]:
    return [f"{name}:{line}" for name, text in texts.items() for line in check(text)]


def lines_matching(pattern: re.Pattern[str]) -> Callable[[str], list[int]]:
    return lambda text: [i for i, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def silent_handlers(source: str) -> list[int]:
    """Bare `except`, and `except Exception` or wider whose body does nothing."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (_is_wide(node.type) and _is_idle(node)))
    ]


def _is_wide(kind: ast.expr) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(k, ast.Name) and k.id in {"Exception", "BaseException"} for k in kinds)


def _is_idle(handler: ast.ExceptHandler) -> bool:
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in handler.body
    )


def test_there_is_something_to_look_at() -> None:
    assert {"pyproject.toml", "broker/protocol/wire.py", "tests/test_tidy.py"} <= FILES.keys()


def test_files_are_short_enough_to_read() -> None:
    long = {n for n, text in PYTHON.items() if text.count("\n") > LINES_MAX}
    assert long - LONGER.keys() == set(), f"over {LINES_MAX} lines: split them, or name the reason in LONGER"
    assert LONGER.keys() - long == set(), "in LONGER, but not long any more"


def test_no_error_is_swallowed() -> None:
    assert offences(PYTHON, silent_handlers) == []


def test_a_todo_says_why() -> None:
    assert offences(TEXTS, lines_matching(UNFINISHED)) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert offences(TEXTS, lines_matching(MACHINE_PATH)) == []


def test_no_file_names_a_package_registry() -> None:
    assert offences(TEXTS, lines_matching(REGISTRY)) == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [n for n, text in PYTHON.items() if text.strip() and not ast.get_docstring(ast.parse(text))]
    assert silent == []


def test_an_empty_module_is_an_init() -> None:
    assert [n for n, text in PYTHON.items() if not text.strip() and Path(n).name != "__init__.py"] == []


def test_files_end_with_one_line_break_and_no_line_with_blanks() -> None:
    texts = {n: text for n, text in TEXTS.items() if text and Path(n).suffix in WRITTEN_BY_HAND}
    assert [n for n, text in texts.items() if not text.endswith("\n") or text.endswith("\n\n")] == []
    assert offences(texts, lines_matching(re.compile(r"[ \t]+$"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept:\n    g()",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept (OSError, BaseException) as e:\n    ...",
    ],
)
def test_the_check_finds_a_swallowed_error(source: str) -> None:
    assert silent_handlers(source) == [3]


@pytest.mark.parametrize(
    "source",
    ["try:\n    f()\nexcept OSError:\n    pass", "try:\n    f()\nexcept Exception as e:\n    report(e)"],
)
def test_the_check_lets_an_error_pass_that_is_handled_or_named(source: str) -> None:
    assert silent_handlers(source) == []


@pytest.mark.parametrize(
    ("pattern", "bad", "good"),
    [
        (
            MACHINE_PATH,
            ['open("/{}/x")', "cd /{}", "in /{}."],
            ["a/{}/x", "https://a.example/{}", "/{}-flow", "~/{}"],
        ),
        (REGISTRY, ["https://pypi{}org/x", "http://mirror.example/{}simple/"], ["PyPI", "a simple index"]),
    ],
    ids=["machine path", "registry"],
)
def test_the_patterns_find_what_they_should(
    pattern: re.Pattern[str], bad: list[str], good: list[str]
) -> None:
    filler = "work" if pattern is MACHINE_PATH else "."
    assert all(pattern.search(text.replace("{}", filler).replace("/.simple", "/simple")) for text in bad)
    assert not any(pattern.search(text.replace("{}", filler)) for text in good)


def test_a_todo_with_a_reason_is_recognised() -> None:
    word = "TO" + "DO"
    assert UNFINISHED.search(f"# {word}")
    assert UNFINISHED.search(f"# {word}: do this later")
    assert not UNFINISHED.search(f"# {word}: drop this when Python 3.11 is no longer supported")
