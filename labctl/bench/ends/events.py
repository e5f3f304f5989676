"""The events of the chain benchmark, the same for brokers and relays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.protocol import wire
from broker.protocol.filters import Event, between
from broker.protocol.messages import Publish

BATCH = 256
"""Events in a frame: what a publisher of the client library sends at a time."""


def event(number: int) -> Event:
    """All distinct, so that no cache of decisions could answer."""
    return {"process": "p1", "n": number}


def message(number: int, payload: bytes, process: str = "p1") -> bytes:
    return wire.encode(Publish(2**63 + number, {"process": process, "n": number}, payload))


def batches(count: int, payload: bytes) -> Iterator[tuple[bytes, int]]:
    """Encoded messages, one behind the other, and how many they are."""
    for start in range(0, count, BATCH):
        numbers = range(start, min(start + BATCH, count))
        yield b"".join(message(number, payload) for number in numbers), len(numbers)


def background(count: int, broker: str) -> Iterator[dict[str, Any]]:
    """Subscriptions that no event of the benchmark matches, and that every broker must look past."""
    for number in range(count):
        process = f"{broker}-{number % 100}"
        if number % 2:
            yield {"process": process, "n": number}
        else:
            yield {"process": process, "n": between(number, number + 1000)}
