"""What lies at the other end of a link: a neighbour broker, or a client of this broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from broker.protocol.wire import AnyMessage

T = TypeVar("T")

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


def for_client(handler: Callable[[Hop, Any], T]) -> Callable[[str, Any], T]:
    """A handler that takes hops, for what comes from a client by its name."""
    return partial(_handle_for_client, handler)


def _handle_for_client(handler: Callable[[Hop, Any], T], client: str, message: Any) -> T:
    return handler(client_hop(client), message)
