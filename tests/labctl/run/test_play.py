"""From ready to the last word: when brokers have come to rest, and their tables may be kept."""

from __future__ import annotations

import pytest

from labctl.run import play

NOTHING: dict[str, list[object]] = {
    "joins": [],
    "settles": [],
    "transactions": [],
    "decided": [],
    "plans": [],
}


@pytest.mark.parametrize(
    ("open_", "retiring", "is_open"),
    [
        (NOTHING, 0, False),
        (NOTHING | {"plans": [{"tx": "E/1/1"}]}, 0, True),
        (NOTHING, 1, True),  # a record of what has committed may still carry its tag
    ],
)
def test_a_broker_is_at_rest_when_it_has_heard_that_all_have_committed(
    open_: dict[str, list[object]], retiring: int, is_open: bool
) -> None:
    assert play._is_open({"open": open_, "counts": {"retiring": retiring}}) is is_open
