"""Looking again and trying again: until it is done, or the time is over."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from labctl.retry import look_until, try_again


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes on by pauses alone, and these pauses."""
    made: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(made), sleep=made.append)
    monkeypatch.setattr("labctl.retry.time", clock)
    return made


def test_looking_ends_with_what_was_wanted_and_without_a_pause_after_it(pauses: list[float]) -> None:
    seen = iter([3, 2, 0, 9])
    assert look_until(lambda left: not left, lambda: next(seen), 10.0, 1.0) == 0
    assert pauses == [1.0, 1.0]


def test_looking_ends_with_what_there_is_when_the_time_is_over(pauses: list[float]) -> None:
    assert look_until(lambda left: not left, lambda: "never", 3.0, 2.0) == "never"
    assert pauses == [2.0, 1.0]


def test_an_error_that_may_pass_is_tried_again_and_raised_in_the_end(pauses: list[float]) -> None:
    def attempt() -> str:
        if len(pauses) < 2:
            raise ConnectionRefusedError
        return "in"

    def refused(error: Exception) -> bool:
        return isinstance(error, ConnectionRefusedError)

    assert try_again(refused, attempt, 9.0, 1.0) == "in"
    pauses.clear()
    with pytest.raises(ConnectionRefusedError):
        try_again(refused, _never, 0.5, 1.0)
    assert pauses == [0.5]


def test_any_other_error_is_raised_at_once(pauses: list[float]) -> None:
    with pytest.raises(ConnectionRefusedError):
        try_again(lambda error: isinstance(error, TimeoutError), _never, 9.0, 1.0)
    assert pauses == []


def _never() -> str:
    raise ConnectionRefusedError
