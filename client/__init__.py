"""The client library: `connect`, the words for filters, transactions, and the errors.

async with connect("127.0.0.1:7001", client_id="E") as session:
    await session.subscribe({"process": "p1", "step": between(1, 9)})
    async with session.transaction("d-tx") as tx:
        await tx.tcm({"process": "p1", "instance": "x1"})
        await tx.publish({"process": "p1", "instance": "x1", "step": 1})

What stands in `__all__` is for programs. Where it comes from:

    connection.py   the asyncio shell around a session: `connect`
    carrier.py      the channel to the broker, and taking a lost connection up again
    settings.py     how a connection behaves
    history.py      what a client tells of itself, one JSON object a line
    __main__.py     `python -m client`: one client of a scenario

    core/           the client without I/O
    asking/         asking brokers about themselves
    scenarios/      the paper's use cases, each written once

May import: broker.node, broker.protocol, broker.transport, client.core.
"""

from broker.protocol.filters import anything, at_least, at_most, between, less_than, more_than, one_of
from client.connection import Connection, connect
from client.core.errors import (
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
from client.core.outcomes import Outcome
from client.core.plans import Plan, PlanError
from client.core.session import Delivery
from client.core.transactions import Frame, Tcm, Transaction

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
