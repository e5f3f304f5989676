"""What nodes note in their histories: the name of every event, who notes it, and how much of it is kept.

Brokers and clients write these names, the simulator and the checks use them as well. A history has every
event that its level of detail keeps; the log of a broker, which people read, only those in `LOGGED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

Detail = Literal["all", "transactions", "outcomes"]
"""`all`: everything, and of a broker what it takes to replay it. `transactions`: no regular publications, and no
single messages. `outcomes`: only how transactions began and ended, which decides less (see `labctl check`)."""

MessageEvent = Literal["sent", "arrived"]

# Of every node

FIRST: Final = "history"
"""The first line of a file: who writes (`role`), in which life (`incarnation`), and how much of it (`detail`)."""
SENT: Final = "sent"
"""A message of a transaction left: `tx`, `link` to whom, `seq` on that link, `message`, and `op` if it has one."""
ARRIVED: Final = "arrived"
"""A message of a transaction came: the same fields, with the `link` from whom."""

# Of brokers: clients and other brokers

CLIENT_JOINED: Final = "client-joined"
"""The edge broker: a client is known at every broker; `client`, `incarnation`."""
CLIENT_GONE: Final = "client-gone"
"""The edge broker: a client's session is over; `client`, `reason`."""
CLIENT_REFUSED: Final = "client-refused"
"""The edge broker: a client cannot be let in; `client`, `code`, `reason`."""
BROKER_KNOWN: Final = "broker-known"
"""A broker has heard of another one: `broker`."""
FATAL: Final = "fatal"
"""A broker cannot go on: `reason`, `exit_code`."""

# Of brokers: operations

PROCESSED: Final = "processed"
"""An operation was taken: `tx` (empty: a regular one, only at its edge), `op`, `kind`, `source`; of a record
`client`, `stamp` and, in D-TX, `triggered`; of a publication `to`."""
PLACED: Final = "placed"
"""A regular record is in the tables: `kind`, `client`, `filter`."""
BEGUN: Final = "begun"
"""D-TX has begun at the coordinator's broker: `tx`, `mode`, `key`."""
VOTED: Final = "voted"
"""A broker has voted: `tx`, `yes`, `reason`."""
COMMITTED: Final = "committed"
"""A transaction took effect at a broker: `tx`, in D-TX `key`."""
ABORTED: Final = "aborted"
"""A transaction came to nothing at a broker: `tx`, `reason`."""
STEPS_VOID: Final = "steps-void"
"""Steps of a plan cannot happen any more: `tx`, `steps`, `reason`."""

# Of brokers: what a replay needs, at the level `all` (`broker.recorded` has the fields)

MADE: Final = "made"
"""The second line: what the core was made of, and the `version` of these lines."""
GIVEN: Final = "given"
"""The core is about to handle something: `act`, and of what came on a link `source` and `messages`."""
PUT: Final = "put"
"""Messages got their numbers on a link: `link`, `life`, the number `first`, and `messages`."""
LOST: Final = "lost"
"""A link has lost its connection, and may get another one: `link`, `life`, and how much of it was `processed`."""
CLOSED: Final = "closed"
"""The last line: nothing is missing behind it."""

# Of clients

CONNECTED: Final = "connected"
"""A client is known everywhere: `home`, its edge broker."""
STARTED: Final = "started"
"""What a client set up before holds everywhere; what it does from now on is what is judged."""
FINISHED: Final = "finished"
"""All that a client was in has ended; it may leave."""
LEFT: Final = "left"
"""A client has ended its session: `reason`."""
CRASHED: Final = "crashed"
"""A client's session was lost: `reason`."""
ISSUED: Final = "issued"
"""A client has issued an operation: `op`, `kind`, `filter` or `event`; in a transaction `tx`, in D-TX `frame`."""
DELIVERED: Final = "delivered"
"""A publication was handed to the program: `op`, `event`; out of a transaction `tx`."""
BEGIN: Final = "begin"
"""A coordinator begins a transaction: `tx`, `mode`."""
ACKNOWLEDGED: Final = "acknowledged"
"""A client has been told that its `pub` or `tcm` in D-TX is done: `tx`, `op`, and how many clients it `reached`."""
RECEIVED: Final = "received"
"""A participant has got a publication of a transaction that is still open: `tx`, `op`, `kind`."""
TCM: Final = "tcm"
"""A participant answers a `tcm` with operations of its own: `tx`, `op`, and the `frame` that holds them."""
ENDED: Final = "ended"
"""A transaction is over for a client: `tx`, `outcome`, `reason`."""

LOGGED = frozenset({CLIENT_JOINED, CLIENT_GONE, CLIENT_REFUSED, BROKER_KNOWN, FATAL})
"""Few enough for the log of a broker. All others are for the history alone."""

MESSAGES: frozenset[str] = frozenset(get_args(MessageEvent))
RECORDING = frozenset({MADE, GIVEN, PUT, LOST, CLOSED})
OUTCOMES = frozenset(
    {
        FIRST, CONNECTED, STARTED, FINISHED, LEFT, CRASHED, BEGIN, BEGUN, ENDED, COMMITTED, ABORTED,
        STEPS_VOID, CLIENT_JOINED, CLIENT_GONE,
    }
)  # fmt: skip
"""What is kept at the level `outcomes`."""


def is_kept(detail: Detail, name: str, fields: Mapping[str, Any]) -> bool:
    if detail == "all":
        return True
    if name in RECORDING:
        return False
    if detail == "outcomes":
        return name in OUTCOMES
    if not fields.get("tx"):
        return name not in MESSAGES and name != DELIVERED and fields.get("kind") != "pub"
    return name not in MESSAGES
