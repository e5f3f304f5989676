"""The state of brokers and clients as plain values: to be compared, hashed and measured.

It is read from the objects as they are, attribute by attribute, so that what somebody adds tomorrow is
seen too. Left out is what never changes, and what follows from something else that is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from broker.core import Broker
from broker.matching.records import Record
from broker.matching.space import Space
from broker.protocol.filters import Filter
from broker.protocol.limits import Limits
from broker.routing.membership import OverlayMap
from broker.routing.tables import Routing
from labctl.simulate.clients import SimClient
from labctl.simulate.tasks import SimFuture
from labctl.simulate.world import World

FIXED = (Limits, OverlayMap, World)
PLAIN = (int, float, str, bytes, type(None))
UNSEEN = frozenset({"now", "deliveries", "marks", "_checker"})
"""The time at a broker is that of its last message; deliveries and marks belong to the past; a checker
has only a memory of what it found good.
"""


def of_broker(broker: Broker) -> Any:
    return freeze(broker, set())


def of_client(client: SimClient) -> Any:
    return freeze(client, set())


def freeze(value: Any, seen: set[int]) -> Any:  # noqa: PLR0911 one answer for each kind of value
    """Nested tuples with the same content; the order in dicts counts, because programs can see it."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Filter):
        return str(value)
    if isinstance(value, Record):
        return _record(value)
    if isinstance(value, (tuple, list)):
        return tuple([freeze(item, seen) for item in value])
    if isinstance(value, (set, frozenset)):
        return tuple(sorted((freeze(item, seen) for item in value), key=repr))
    if isinstance(value, dict):
        return tuple([(freeze(key, seen), freeze(item, seen)) for key, item in value.items()])
    if isinstance(value, SimFuture):
        return value.done()
    if isinstance(value, FIXED) or callable(value) or id(value) in seen:
        return None
    seen.add(id(value))
    if isinstance(value, Routing):
        return _tables(value)
    if isinstance(value, Space):
        return _space(value)
    return (type(value).__name__, *((name, freeze(item, seen)) for name, item in parts(value)))


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that can change."""
    if isinstance(value, Struct):
        names: Iterator[str] = iter(value.__struct_fields__)
    else:
        names = iter(getattr(value, "__dict__", ()))
    for name in names:
        item = getattr(value, name)
        is_dispatch = isinstance(item, dict) and bool(item) and all(map(callable, item.values()))
        if name not in UNSEEN and not is_dispatch:
            yield name, item


def _tables(routing: Routing) -> Any:
    srt = tuple([(hop, _record(record)) for hop, record in routing.srt])
    prt = tuple([(hop, _record(record)) for hop, record in routing.prt])
    return (srt, prt, sorted(routing.veiled), routing.compaction.is_free, routing.compaction.waiting())


def _space(space: Space) -> Any:
    """Without what has no effect any more: that is kept or not, as it happened."""
    fewest = Space()
    fewest.renew(space.parts())
    return tuple([(positive, str(filter_)) for positive, filter_ in fewest.parts()])


def _record(r: Record) -> Any:
    return (r.kind, r.client, r.stamp, str(r.filter), r.tag, r.step, r.writer, r.sent)
