"""The quick test of publications against the check that explains itself."""

from __future__ import annotations

from typing import Any

import pytest

from broker.matching.batch import are_good
from broker.protocol.filters import INTEGER_MAX, INTEGER_MIN, FilterError
from broker.protocol.limits import LimitExceeded, Limits, check_publication

LIMITS = Limits(payload_bytes_max=4, attributes_max=2, text_length_max=3)


@pytest.mark.parametrize(
    "event",
    [{}, {"a": 1}, {"abc": "xyz"}, {"a": INTEGER_MIN, "b": INTEGER_MAX}, {"a": 1e300, "b": float("-inf")}],
)
def test_what_is_within_the_limits_passes_both(event: Any) -> None:
    assert are_good([event, {"b": 0}, {"b": "x", "a": 0.5}, event, {}] * 4, [b"1234", b""], LIMITS)
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
    company: list[list[Any]] = [[], [{"a": 1}], [{"a": "x"}, {"a": 0.5}], [{}]]
    for others in company:
        for events in ([*others, event], [event, *others]):
            assert not are_good(events * 4, [b"1", payload], LIMITS)
    with pytest.raises((FilterError, LimitExceeded)):
        check_publication(event, payload, LIMITS)
