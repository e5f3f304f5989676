"""The named limits on what a client may send, and their checks; pure.

A client learns its broker's limits on connecting and refuses at the caller; the broker checks again,
because a client need not be ours.
"""

from __future__ import annotations

from msgspec import Struct

from broker.protocol.filters import (
    INTEGER_MAX,
    INTEGER_MIN,
    Event,
    Filter,
    OneOf,
    Value,
    check_event,
    check_filter,
    is_plain,
)


class LimitExceeded(ValueError):
    """Something well-formed that is larger than the overlay takes; the text names limit and size."""


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    payload_bytes_max: int = 256 << 10
    attributes_max: int = 64
    """In one event or filter."""
    text_length_max: int = 1024
    """Of an attribute's name, a string value or a client id, in characters."""
    values_max: int = 256
    """In one `one_of`."""
    transactions_max: int = 1000
    """Of one client, open at a time."""
    plan_lifetime_ms: int = 30_000
    """An S-TX transaction that is not committed by then is aborted."""
    lifetime_ms_max: int = 60_000
    """The most that a D-TX or D-TX_NI transaction may ask for."""
    unheard_ms: int = 500
    """A D-TX transaction of which a broker has not heard for so long is not waited for there."""
    records_max: int = 4_000_000
    """Advertisements and subscriptions of one client that a broker keeps."""


def publication_bytes_max(limits: Limits) -> int:
    """What the largest publication within the limits takes, encoded: four bytes a character, and headers."""
    attribute_bytes = 2 * (4 * limits.text_length_max + 5)
    return limits.attributes_max * attribute_bytes + limits.payload_bytes_max + 32


def check_publication(event: Event, payload: bytes, limits: Limits) -> None:
    """On the path of every publication: one cheap look, and a closer one only to say what is wrong."""
    longest = limits.text_length_max
    if len(event) > limits.attributes_max:
        raise LimitExceeded(f"an event of {len(event)} attributes; the limit is {limits.attributes_max}")
    if len(payload) > limits.payload_bytes_max:
        raise LimitExceeded(f"a payload of {len(payload)} bytes; the limit is {limits.payload_bytes_max}")
    for name, value in event.items():
        if type(value) is str:
            good = len(value) <= longest
        elif type(value) is int:
            good = INTEGER_MIN <= value <= INTEGER_MAX
        else:
            good = type(value) is float and value == value  # noqa: PLR0124 (not NaN)
        if not good or not name or type(name) is not str or len(name) > longest:
            _explain(name, value, limits)


def _explain(name: str, value: Value, limits: Limits) -> None:
    check_event({name: value})
    _check_text(name, limits)
    _check_text(value, limits)


def check_filter_within(filter_: Filter, limits: Limits) -> None:
    if len(filter_.names) <= limits.attributes_max and is_plain(filter_, limits.text_length_max):
        return
    check_filter(filter_)
    if len(filter_.names) > limits.attributes_max:
        raise LimitExceeded(
            f"a filter of {len(filter_.names)} attributes; the limit is {limits.attributes_max}"
        )
    for name, predicate in zip(filter_.names, filter_.predicates, strict=True):
        _check_text(name, limits)
        if isinstance(predicate, OneOf):
            if len(predicate.values) > limits.values_max:
                raise LimitExceeded(
                    f"attribute {name!r}: a set of {len(predicate.values)} values; the limit is {limits.values_max}"
                )
            for value in predicate.values:
                _check_text(value, limits)
        elif isinstance(predicate, (int, float, str)):
            _check_text(predicate, limits)
        else:
            _check_text(predicate.low, limits)
            _check_text(predicate.high, limits)


def check_client_id(client: str, limits: Limits) -> None:
    if not client or not client.isprintable():
        raise LimitExceeded(f"a client id is a non-empty printable text, not {client!r}")
    _check_text(client, limits)


def _check_text(value: Value | None, limits: Limits) -> None:
    if isinstance(value, str) and len(value) > limits.text_length_max:
        raise LimitExceeded(f"a text of {len(value)} characters; the limit is {limits.text_length_max}")
