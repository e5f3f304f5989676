"""How the status of an overlay looks to people; programs get it as it is."""

from __future__ import annotations

from typing import Any

from labctl.output import Output, byte_size
from labctl.overlay.local import BrokerStatus, OverlayStatus

BROKER_COLUMNS = (
    "broker",
    "address",
    "pid",
    "state",
    "up s",
    "cpu %",
    "memory",
    "lag ms",
    "clients",
    "srt",
    "prt",
    "journal",
)
LINK_COLUMNS = ("at", "to", "kind", "state", "queued", "messages", "unacked", "sent", "received", "flags")


def show_status(out: Output, found: OverlayStatus) -> None:
    out.table(
        f"Overlay {found.name}: {found.state}",
        BROKER_COLUMNS,
        [_broker_row(broker) for broker in found.brokers],
    )
    answered = [broker.status for broker in found.brokers if broker.status is not None]
    links = [_link_row(document["broker"], link) for document in answered for link in document["links"]]
    if links:
        out.table("Links", LINK_COLUMNS, links)
    for document in answered:
        _show_tables(out, document)
    for phrase in found.missing:
        out.say(f"not whole: {phrase}")


def _broker_row(broker: BrokerStatus) -> tuple[object, ...]:
    document = broker.status
    if document is None:
        state = "does not answer" if broker.alive else "not running"
        return (broker.broker, broker.address, _pid(broker), state, *(None,) * 8)
    # A broker takes its first sample after a second; until then there is nothing to show.
    vitals, counts = document["vitals"] or {}, document["counts"]
    return (
        broker.broker,
        broker.address,
        _pid(broker),
        "up",
        float(document["uptime_s"]),
        vitals.get("cpu_percent"),
        byte_size(vitals["rss_bytes"]) if "rss_bytes" in vitals else None,
        vitals.get("loop_lag_ms_max"),
        counts["clients"],
        counts["srt"],
        counts["prt"],
        _journal(document.get("journal")),
    )


def _journal(journal: dict[str, Any] | None) -> str | None:
    """Its mode, and how many entries would have to be done again."""
    return None if journal is None else f"{journal['mode']}, {journal['behind_snapshot']} behind"


def recovered(journal: dict[str, Any]) -> str:
    """What a broker that was started again says of it."""
    found = journal["recovered"]
    if found is None:
        return "runs; its data folder was empty"
    snapshot = "a snapshot and " if found["snapshot"] else ""
    return f"runs again: {snapshot}{found['entries']} entries recovered in {found['seconds']:.3f} s"


def _pid(broker: BrokerStatus) -> str:
    return "-" if broker.pid is None else str(broker.pid)


def _link_row(broker: str, link: dict[str, Any]) -> tuple[object, ...]:
    flags = ", ".join(flag for flag in ("held", "stalled") if link[flag])
    return (
        broker,
        link["name"],
        link["kind"],
        link["state"],
        byte_size(link["queue_bytes"]),
        link["queue_messages"],
        link["unacknowledged_messages"],
        link["sent"],
        link["received"],
        flags or "-",
    )


def _show_tables(out: Output, document: dict[str, Any]) -> None:
    for table, records in document.get("tables", {}).items():
        out.say(f"{document['broker']} {table}: {len(records)} records")
        for record in records:
            out.say(f"  {_one_line(record)}")


def _one_line(record: object) -> str:
    if isinstance(record, dict):
        return "  ".join(f"{key}={value}" for key, value in record.items())
    return "  ".join(map(str, record)) if isinstance(record, list) else str(record)
