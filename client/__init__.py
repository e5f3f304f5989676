"""The client library: `connect`, the words for filters, transactions, and the errors.

async with connect("127.0.0.1:7001", client_id="E") as session:
    await session.subscribe({"process": "p1", "step": between(1, 9)})
    async with session.transaction("d-tx") as tx:
        await tx.tcm({"process": "p1", "instance": "x1"})
        await tx.publish({"process": "p1", "instance": "x1", "step": 1})
"""

from broker.filters import anything, at_least, at_most, between, less_than, more_than, one_of
from client.connection import Connection, connect
from client.errors import (
    ClientError,
    ClientIdInUse,
    ConnectionFailed,
    InvalidFilter,
    NotAdvertised,
    OutcomeUnknown,
    RefusedByBroker,
    SessionClosed,
    SlowConsumer,
    TimedOut,
    TooLarge,
    TransactionAborted,
)
from client.outcome import Outcome
from client.plans import Plan, PlanError
from client.session import Delivery
from client.transactions import Frame, Tcm, Transaction

__all__ = [
    "ClientError",
    "ClientIdInUse",
    "Connection",
    "ConnectionFailed",
    "Delivery",
    "Frame",
    "InvalidFilter",
    "NotAdvertised",
    "Outcome",
    "OutcomeUnknown",
    "Plan",
    "PlanError",
    "RefusedByBroker",
    "SessionClosed",
    "SlowConsumer",
    "Tcm",
    "TimedOut",
    "TooLarge",
    "Transaction",
    "TransactionAborted",
    "anything",
    "at_least",
    "at_most",
    "between",
    "connect",
    "less_than",
    "more_than",
    "one_of",
]
