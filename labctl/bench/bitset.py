"""A plain bitset index: the textbook way, as the yardstick that `broker.matching.index` has to beat.

One bit per subscription. Per attribute, each value (or, for ranges, each of 256 buckets) has the set
of subscriptions that may admit it as one integer over all subscriptions, and one more integer says
who does not constrain the attribute. An event's candidates are the intersection over all attributes;
they are then asked one by one, except behind hops that are in already.

Built once and never changed: it does not know holes, transactions, or how to insert.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from broker.protocol.filters import Event, Filter, Interval, Value

BUCKETS = 256


class BitsetIndex:
    def __init__(self, subscriptions: Sequence[tuple[Filter, str]]) -> None:
        self._filters = [filter_ for filter_, _ in subscriptions]
        self._hops = [hop for _, hop in subscriptions]
        self._all = (1 << len(subscriptions)) - 1
        slots_of_hop: defaultdict[str, list[int]] = defaultdict(list)
        for slot, hop in enumerate(self._hops):
            slots_of_hop[hop].append(slot)
        self._others = {hop: self._all ^ _bits(slots) for hop, slots in slots_of_hop.items()}
        constrained: defaultdict[str, dict[int, Any]] = defaultdict(dict)
        for slot, filter_ in enumerate(self._filters):
            for name, predicate in zip(filter_.names, filter_.predicates, strict=True):
                constrained[name][slot] = predicate
        self._attributes = {name: _Attribute(self._all, slots) for name, slots in constrained.items()}

    def hops(self, event: Event) -> set[str]:
        candidates = self._all
        for name, attribute in self._attributes.items():
            candidates &= attribute.admitting(event.get(name))
        found: set[str] = set()
        while candidates:
            slot = candidates.bit_length() - 1
            if self._filters[slot].matches(event):
                found.add(self._hops[slot])
                candidates &= self._others[self._hops[slot]]
            else:
                candidates ^= 1 << slot
        return found


class _Attribute:
    """Who may admit which value of one attribute."""

    def __init__(self, everyone: int, constrained: dict[int, Any]) -> None:
        self._free = everyone ^ _bits(constrained)
        ranges: dict[int, Any] = {s: p for s, p in constrained.items() if isinstance(p, Interval)}
        by_value: defaultdict[Value, list[int]] = defaultdict(list)
        for slot, predicate in constrained.items():
            if slot not in ranges:
                by_value[predicate].append(slot)
        self._equal = {value: self._free | _bits(slots) for value, slots in by_value.items()}
        ends: list[Any] = sorted(end for p in ranges.values() for end in (p.low, p.high))
        self._bounds = ends[:: len(ends) // BUCKETS + 1]
        buckets: list[list[int]] = [[] for _ in range(len(self._bounds) + 1)]
        for slot, p in ranges.items():
            for bucket in range(bisect_right(self._bounds, p.low), bisect_right(self._bounds, p.high) + 1):
                buckets[bucket].append(slot)
        self._buckets = [self._free | _bits(slots) for slots in buckets]

    def admitting(self, value: Value | None) -> int:
        if value is None:
            return self._free
        if self._equal:
            return self._equal.get(value, self._free)
        return self._buckets[bisect_right(self._bounds, value)]


def _bits(slots: Iterable[int]) -> int:
    slots = list(slots)
    data = bytearray(max(slots, default=0) // 8 + 1)
    for slot in slots:
        data[slot >> 3] |= 1 << (slot & 7)
    return int.from_bytes(data, "little")
