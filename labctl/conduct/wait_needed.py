"""How long each transaction of BL-WAIT really needed, read from the histories of a run on one machine.

A transaction could have published without harm from the moment at which the broker of the publisher had both
the new subscription and the un-subscription: links are FIFO, so everybody on the way had them before. Brokers
note each regular record when it is in their tables (`placed`), clients what they issue. The times of different
processes are compared, which is right only where they share a clock: on one machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from broker.protocol.events import ISSUED, PLACED
from labctl.results import lines

PUBLISHER = "E"
"""Role of the client that publishes what must be routed right."""


class TimedLine(Struct):
    name: str
    time: float
    fields: dict[str, Any]


Instance = tuple[str, str]
"""Process and instance."""


def read(path: Path) -> Iterator[TimedLine]:
    return lines.read(path, msgspec.json.Decoder(TimedLine).decode, "line of a history")


def needs_ms(coordinator: Iterable[TimedLine], broker: Iterable[TimedLine]) -> list[float]:
    """From the histories of a coordinator and of the publisher's broker: one figure per complete transaction.

    The start is the coordinator's first regular operation about an instance.
    """
    began: dict[Instance, float] = {}
    numbers: dict[Instance, tuple[str, int]] = {}
    for line in coordinator:
        if line.name != ISSUED:
            continue
        for instance in _named(line.fields):
            began.setdefault(instance, line.time)
            numbers.setdefault(instance, (instance[0], _number(instance[1])))
    placed: dict[Instance, dict[str, float]] = {}
    for line in broker:
        if line.name == PLACED and line.fields["kind"] in ("sub", "usub"):
            for instance in _named(line.fields):
                placed.setdefault(instance, {}).setdefault(line.fields["kind"], line.time)
    return _per_transaction(began, placed, numbers)


def _per_transaction(
    began: dict[Instance, float],
    placed: dict[Instance, dict[str, float]],
    numbers: dict[Instance, tuple[str, int]],
) -> list[float]:
    """A transaction about several instances has needed what the slowest of them has."""
    first: dict[tuple[str, int], float] = {}
    last: dict[tuple[str, int], float] = {}
    incomplete: set[tuple[str, int]] = set()
    for instance, start in began.items():
        number = numbers[instance]
        first[number] = min(first.get(number, start), start)
        times = placed.get(instance, {})
        if len(times) < 2:
            incomplete.add(number)
        last[number] = max(last.get(number, 0.0), *times.values(), 0.0)
    return [(last[n] - first[n]) * 1e3 for n in sorted(first) if n not in incomplete]


def _named(fields: dict[str, Any]) -> list[Instance]:
    """The instances that an operation is about: in its event, or in its filter."""
    about = fields.get("event") or _values(fields.get("filter"))
    process, instance = about.get("process"), about.get("instance")
    if isinstance(process, str) and isinstance(instance, str) and _number(instance):
        return [(process, instance)]
    return []


def _number(instance: str) -> int:
    """Instances are named after the number of their transaction: x17, or x17.A1."""
    digits = "".join(c for c in instance.partition(".")[0] if c.isdecimal())
    return int(digits) if digits else 0


def _values(filter_: Any) -> dict[str, Any]:
    """A filter in JSON is its names and, beside them, what they are asked for."""
    return dict(zip(*filter_, strict=True)) if filter_ else {}
