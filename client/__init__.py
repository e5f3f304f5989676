"""The client library: `connect`, the words for filters, and the errors.

async with connect("127.0.0.1:7001", client_id="E") as session:
    await session.subscribe({"process": "p1", "step": between(1, 9)})
"""

from broker.filters import anything, at_least, at_most, between, less_than, more_than, one_of
from client.connection import Connection, connect
from client.errors import (
    ClientError,
    ClientIdInUse,
    ConnectionFailed,
    InvalidFilter,
    NotAdvertised,
    RefusedByBroker,
    SessionClosed,
    SlowConsumer,
    TimedOut,
    TooLarge,
)
from client.session import Delivery

__all__ = [
    "ClientError",
    "ClientIdInUse",
    "Connection",
    "ConnectionFailed",
    "Delivery",
    "InvalidFilter",
    "NotAdvertised",
    "RefusedByBroker",
    "SessionClosed",
    "SlowConsumer",
    "TimedOut",
    "TooLarge",
    "anything",
    "at_least",
    "at_most",
    "between",
    "connect",
    "less_than",
    "more_than",
    "one_of",
]
