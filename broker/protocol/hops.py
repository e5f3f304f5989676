"""What lies at the other end of a link: a neighbour broker, or a client of this broker."""

from __future__ import annotations

from broker.protocol.wire import AnyMessage

Hop = str
"""A neighbour broker ("broker:b2") or a client of this broker ("client:E")."""
Sends = list[tuple[Hop, AnyMessage]]


def broker_hop(broker: str) -> Hop:
    return f"broker:{broker}"


def client_hop(client: str) -> Hop:
    return f"client:{client}"


def is_client(hop: Hop) -> bool:
    return hop[:7] == "client:"


def name_of(hop: Hop) -> str:
    return hop[7:]  # as many letters in both
