"""What a broker tells about its execution: counts, open work and, on request, its tables; pure.

The checks of later runs read this, so names stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from broker.core import Broker
from broker.matching.records import Record
from broker.protocol.messages import StatusAnswer
from broker.protocol.wire import MESSAGE_BYTES_MAX

PART_BYTES = MESSAGE_BYTES_MAX // 2


def describe(core: Broker, dump: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "broker": core.id,
        "incarnation": core.incarnation,
        "overlay": {name: {"hop": k.hop, "next": k.next} for name, k in core.joining.overlay.known.items()},
        "counts": {
            "clients": len(core.state.crt),
            "srt": len(core.routing.srt),
            "prt": len(core.routing.prt),
            "retiring": len(core.retirement.written),
        },
        "open": {
            "joins": [_wave(key, wave.awaiting) for key, wave in core.joining.waves],
            "settles": [_wave(key, wave.awaiting) for key, wave in core.settling.waves],
            **core.transactions.describe(),
        },
    }
    if dump:
        document["tables"] = {
            "crt": [{"client": client, **claim._asdict()} for client, claim in core.state.crt],
            "srt": [_row(hop, record) for hop, record in core.routing.srt],
            "prt": [_row(hop, record) for hop, record in core.routing.prt],
        }
    return document


def answers(document: dict[str, Any]) -> Iterator[StatusAnswer]:
    """The document as messages, each small enough for a frame."""
    text = msgspec.json.encode(document)
    for start in range(0, len(text), PART_BYTES):
        yield StatusAnswer(text[start : start + PART_BYTES], more=start + PART_BYTES < len(text))


def _wave(key: object, awaiting: set[str]) -> dict[str, Any]:
    return {"key": key, "awaiting": sorted(awaiting)}


def _row(hop: str, record: Record) -> dict[str, Any]:
    return {
        "kind": record.kind,
        "client": record.client,
        "stamp": record.stamp,
        "filter": record.filter.as_mapping(),
        "text": str(record.filter),
        "hop": hop,
        "tag": record.tag,
    }
