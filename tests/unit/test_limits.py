"""The quick test of publications against the check that explains itself."""

from __future__ import annotations

from typing import Any

import pytest

from broker.filters import INTEGER_MAX, INTEGER_MIN, FilterError
from broker.limits import LimitExceeded, Limits, check_publication, publication_test

LIMITS = Limits(payload_bytes_max=4, attributes_max=2, text_length_max=3)


@pytest.mark.parametrize(
    "event",
    [{}, {"a": 1}, {"abc": "xyz"}, {"a": INTEGER_MIN, "b": INTEGER_MAX}, {"a": 1e300, "b": float("-inf")}],
)
def test_what_is_within_the_limits_passes_both(event: Any) -> None:
    is_good = publication_test(LIMITS)
    for _ in range(2):  # the second time all names are known
        assert is_good(event, b"1234")
        check_publication(event, b"1234", LIMITS)


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ({"a": 1}, b"12345"),
        ({"a": 1, "b": 2, "c": 3}, b""),
        ({"": 1}, b""),
        ({1: 1}, b""),
        ({"abcd": 1}, b""),
        ({"a": "wxyz"}, b""),
        ({"a": float("nan")}, b""),
        ({"a": True}, b""),
        ({"a": None}, b""),
        ({"a": INTEGER_MAX + 1}, b""),
        ({"a": INTEGER_MIN - 1}, b""),
    ],
)
def test_what_is_beyond_them_passes_neither(event: Any, payload: bytes) -> None:
    is_good = publication_test(LIMITS)
    for _ in range(2):
        assert not is_good(event, payload)
        with pytest.raises((FilterError, LimitExceeded)):
            check_publication(event, payload, LIMITS)
