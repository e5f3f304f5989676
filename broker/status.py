"""What a broker tells about its state: counts, open work and, on request, its tables; pure.

The checks of later runs read this, so names stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from broker.core import Broker
from broker.index import Record
from broker.transactions.context import Context, Tomb
from broker.transactions.plan import Open
from broker.wire import MESSAGE_BYTES_MAX, StatusAnswer

PART_BYTES = MESSAGE_BYTES_MAX // 2


def describe(core: Broker, dump: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "broker": core.id,
        "incarnation": core.incarnation,
        "overlay": {name: {"hop": k.hop, "next": k.next} for name, k in core.overlay.known.items()},
        "counts": {"clients": len(core.crt), "srt": len(core.routing.srt), "prt": len(core.routing.prt)},
        "open": {
            "joins": [_wave(key, wave.awaiting) for key, wave in core.joins],
            "settles": [_wave(key, wave.awaiting) for key, wave in core.settling.waves],
            "transactions": [_context(context) for context in core.dtx],
            "decided": [_tomb(tx, tomb) for tx, tomb in core.dtx.tombs.items()],
            "plans": [_plan(state) for state in core.stx],
        },
    }
    if dump:
        document["tables"] = {
            "crt": [{"client": client, **claim._asdict()} for client, claim in core.crt],
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


def _context(context: Context) -> dict[str, Any]:
    """A state of `yes` with nobody awaited is a broker in doubt: it waits for the decision."""
    return {
        "tx": context.tx,
        "mode": context.mode,
        "state": context.state,
        "origin": context.origin,
        "awaiting": sorted(context.awaiting),
        "operations": {str(op): sorted(entry.pending) for op, entry in context.entries.items()},
        "bad": context.bad,
        "deadline": context.deadline,
    }


def _tomb(tx: str, tomb: Tomb) -> dict[str, Any]:
    return {"tx": tx, "committed": tomb.committed, "awaiting": sorted({*tomb.brokers, *tomb.clients})}


def _plan(state: Open) -> dict[str, Any]:
    return {
        "tx": state.tx,
        "mode": "s-tx-safe" if state.safe else "s-tx",
        "state": state.status,
        "voted": state.voted,
        "origin": state.origin,
        "awaiting": sorted({*state.brokers, *state.clients}),
        "waiting_steps": sorted(state.buffer),
        "owed": {client: sorted(state.owed_by(client)) for client in state.owed},
        "bad": state.bad,
    }


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
