"""How a planted fault is put into the product: by replacing methods, from outside, for one test."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

Mutation = Callable[[pytest.MonkeyPatch], None]
"""Its name says what goes wrong, its docstring which rule of the protocol is switched off."""


def replace(patch: pytest.MonkeyPatch, owner: Any, name: str, changed: Callable[..., Any]) -> None:
    """`changed` is called with the original function first, then with what that would be called with."""
    original = getattr(owner, name)

    @wraps(original)
    def method(*arguments: Any, **named: Any) -> Any:
        return changed(original, *arguments, **named)

    patch.setattr(owner, name, method)


def always(patch: pytest.MonkeyPatch, owner: Any, name: str, answer: Callable[[], Any]) -> None:
    patch.setattr(owner, name, lambda *_, **__: answer())


def rule_of(mutation: Mutation) -> str:
    return " ".join((mutation.__doc__ or "").split())
