"""What happened in a run, put in order: transactions, their operations, deliveries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, field

from broker.protocol import events
from broker.protocol.filters import Event, Filter
from broker.protocol.hops import Hop, client_hop
from broker.protocol.vocabulary import ISOLATED, NO_KEY, PLANNED, SAFE, Key, Stamp

if TYPE_CHECKING:
    from labctl.checks.order import Said
    from labctl.checks.spaces import Spaces

Path = tuple[tuple[str, int], ...]
"""Place of an operation in its transaction: at each level whose frame, and which in it."""


class Moment(Protocol):
    """A line of a history."""

    @property
    def node(self) -> str: ...

    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def fields(self) -> dict[str, Any]: ...


class Operation(Struct, eq=False):
    client: str
    op: int
    kind: str
    filter: Filter | None
    event: Event | None
    place: int
    """Among what its client did."""
    frame: int = 0
    stamp: Stamp | None = None
    """Given by its edge broker; None if it never arrived there, or needs none."""
    taken: int = -1
    """The place at which its edge broker gave it."""
    rank: int = -1
    """Its place in what its client did to its space, by the client's own word (`labctl.checks.order`)."""
    path: Path = ()
    receivers: set[str] = field(default_factory=set)
    """Clients that got it: at once if it is a `tcm`, at the commit if it is a `pub`."""
    heard: set[str] = field(default_factory=set)
    """Clients that got it while its transaction was open."""
    reached: int | None = None
    """So many, as its issuer was told."""


class Transaction(Struct, eq=False):
    tx: str
    mode: str = ""
    coordinator: str = ""
    outcome: str = ""
    """What the coordinator was told; empty: nothing."""
    reason: str = ""
    key: Key = NO_KEY
    began: int = -1
    ended: int = -1
    """Places in the whole history; only a simulated one has a global order."""
    operations: dict[int, Operation] = field(default_factory=dict)
    committed_at: set[str] = field(default_factory=set)
    commits: dict[str, int] = field(default_factory=dict)
    """By broker, the places at which they did."""
    contexts: dict[str, int] = field(default_factory=dict)
    """By broker, the places at which it has begun there."""
    votes: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By broker, at which place, and why it cannot commit; empty: it can."""
    aborted_at: set[str] = field(default_factory=set)
    ends: dict[str, str] = field(default_factory=dict)
    """Outcome as each client learned it."""
    ends_at: dict[str, int] = field(default_factory=dict)
    """When it did: places in what that client did."""
    delivered_at: dict[str, int] = field(default_factory=dict)
    """By client, the place of the last that was handed to its program."""
    frames: dict[tuple[str, int], int] = field(default_factory=dict)
    """The `tcm` that each frame of a client answers."""
    voids: bool = False

    @property
    def is_planned(self) -> bool:
        return self.mode in PLANNED

    @property
    def is_isolated(self) -> bool:
        return self.mode in ISOLATED

    @property
    def is_safe(self) -> bool:
        return self.mode in SAFE

    @property
    def committed(self) -> bool:
        return bool(self.committed_at)


class Departure(Struct):
    """An edge broker has taken note that a client of its is gone."""

    broker: str
    client: str
    place: int
    processed: int
    """So many operations that broker had processed by then."""


class Delivery(Struct):
    client: str
    tx: str
    op: int
    event: Event


class History(Struct):
    transactions: dict[str, Transaction]
    setup: dict[str, list[Operation]]
    """Regular operations by client that held everywhere before the first transaction."""
    regular: dict[str, list[Operation]]
    """Those since."""
    deliveries: list[Delivery]
    homes: dict[str, str]
    gone: set[str]
    """Clients that crashed or left. One that has come back with its id is another client here: see `lives`."""
    processed: dict[str, list[tuple[str, int]]]
    """By broker: (transaction, operation) in the order in which it processed them."""
    started: set[str]
    departures: list[Departure] = field(default_factory=list)
    lives: dict[str, str] = field(default_factory=dict)
    """By client id: what a client that has come back is called here, so that nothing is asked of it that its
    earlier life had promised."""
    ids: dict[str, str] = field(default_factory=dict)
    """The other way round."""
    timelines: dict[str, list[Said]] | None = None
    """Owned by `labctl.checks.order`."""
    spaces: Spaces | None = None
    """Owned by `labctl.checks.spaces`."""

    def hop_of(self, client: str) -> Hop:
        """As brokers call it."""
        return client_hop(self.ids.get(client, client))

    def ordered(self) -> list[Transaction]:
        """Committed and isolated, in the order of their keys."""
        found = [t for t in self.transactions.values() if t.committed and t.is_isolated]
        return sorted(found, key=lambda t: t.key)


def read(moments: Iterable[Moment]) -> History:
    history = History({}, {}, {}, [], {}, set(), {}, set())
    stamps: dict[tuple[str, str, int], tuple[Stamp, int]] = {}
    for place, moment in enumerate(moments):
        _take(history, stamps, place, moment)
    for table in (history.setup, history.regular):
        for client, operations in table.items():
            for operation in operations:
                _stamped(operation, stamps.get((client, "", operation.op)))
    for transaction in history.transactions.values():
        for operation in transaction.operations.values():
            _stamped(operation, stamps.get((operation.client, transaction.tx, operation.op)))
        _place(transaction)
    return history


def _stamped(operation: Operation, given: tuple[Stamp, int] | None) -> None:
    if given is not None:
        operation.stamp, operation.taken = given


def _take(
    history: History, stamps: dict[tuple[str, str, int], tuple[Stamp, int]], place: int, moment: Moment
) -> None:
    name, fields = moment.name, moment.fields
    node = history.lives.get(moment.node, moment.node)
    tx = fields.get("tx", "")
    transaction = history.transactions.setdefault(tx, Transaction(tx)) if tx else None
    if name == events.ISSUED:
        filter_ = fields.get("filter")
        if filter_ is not None and not isinstance(filter_, Filter):
            filter_ = msgspec.convert(filter_, Filter)
        operation = Operation(
            node, fields["op"], fields["kind"], filter_, fields.get("event"), place, fields.get("frame", 0)
        )
        if transaction is None:
            target = history.regular if node in history.started else history.setup
            target.setdefault(node, []).append(operation)
        else:
            transaction.operations[operation.op] = operation
    elif name == events.PROCESSED:
        if transaction is not None and not fields.get("triggered"):
            history.processed.setdefault(node, []).append((tx, fields["op"]))
        if fields.get("stamp") is not None and str(fields["source"]) == f"client:{fields['client']}":
            client = fields["client"]
            life = history.lives.get(client, client)
            # The first: a later life, of which no history may be left, counts its operations anew.
            stamps.setdefault((life, tx, fields["op"]), (_stamp(fields["stamp"]), place))
    elif name == events.DELIVERED:
        history.deliveries.append(Delivery(node, tx, fields["op"], fields["event"]))
        if transaction is not None and fields["op"] in transaction.operations:
            transaction.operations[fields["op"]].receivers.add(node)
            transaction.delivered_at[node] = place
    elif name in (events.CONNECTED, events.STARTED, events.CRASHED, events.LEFT):
        _take_client(history, node, moment)
    elif name == events.CLIENT_GONE:
        client, before = fields["client"], len(history.processed.get(node, ()))
        history.departures.append(Departure(node, history.lives.get(client, client), place, before))
    elif transaction is not None:
        _take_of(transaction, node, place, moment)


def _take_client(history: History, node: str, moment: Moment) -> None:
    if moment.name == events.CONNECTED:
        if node in history.gone:
            node = _next_life(history, moment.node)
        history.homes[node] = moment.fields["home"]
    elif moment.name == events.STARTED:
        history.started.add(node)
    else:
        history.gone.add(node)


def _next_life(history: History, client: str) -> str:
    """All that it does from now on is beside what has begun."""
    number = 2 + sum(id_ == client for id_ in history.ids.values())
    name = history.lives[client] = f"{client} (life {number})"
    history.ids[name] = client
    history.started.add(name)
    return name


def _take_of(transaction: Transaction, node: str, place: int, moment: Moment) -> None:
    """What a broker has said of a transaction, or a client about its beginning and its end."""
    name, fields = moment.name, moment.fields
    if name == events.BEGIN:
        transaction.mode, transaction.coordinator, transaction.began = fields["mode"], node, place
    elif name == events.BEGUN:
        transaction.key = (fields["key"][0], fields["key"][1])
        transaction.contexts[node] = place
    elif name == events.VOTED:
        transaction.votes[node] = (place, "" if fields["yes"] else fields["reason"] or "no reason")
    elif name == events.COMMITTED:
        transaction.committed_at.add(node)
        transaction.commits[node] = place
    elif name == events.ABORTED:
        transaction.aborted_at.add(node)
    elif name == events.STEPS_VOID:
        transaction.voids = True
    elif name == events.ENDED:
        transaction.ends[node], transaction.ends_at[node] = fields["outcome"], place
        if node == transaction.coordinator:
            transaction.outcome, transaction.reason = fields["outcome"], fields["reason"]
            transaction.ended = place
    elif "op" in fields:
        _take_part(transaction, node, moment)


def _take_part(transaction: Transaction, node: str, moment: Moment) -> None:
    """What a client has said of a publication in it."""
    name, fields = moment.name, moment.fields
    operation = transaction.operations.get(fields["op"])
    if name == events.TCM:
        transaction.frames[node, fields["frame"]] = fields["op"]
    elif operation is None:
        return
    elif name == events.RECEIVED:
        operation.heard.add(node)
        if fields["kind"] == "tcm":
            operation.receivers.add(node)
    elif name == events.ACKNOWLEDGED:
        operation.reached = fields["reached"]


def _stamp(value: Any) -> Stamp:
    key, class_, incarnation, number = value
    return ((key[0], key[1]), class_, incarnation, number)


def _place(transaction: Transaction) -> None:
    """Give every operation its path: where it stands in the tree of frames."""
    if transaction.is_planned:
        for operation in transaction.operations.values():
            operation.path = (("", operation.op),)
        return
    members: dict[tuple[str, int], list[Operation]] = {}
    for operation in sorted(transaction.operations.values(), key=lambda o: o.place):
        members.setdefault((operation.client, operation.frame), []).append(operation)

    def fill(frame: tuple[str, int], prefix: Path) -> None:
        for number, operation in enumerate(members.get(frame, ())):
            operation.path = (*prefix, (f"{frame[0]}/{frame[1]}", number))
            for child, cause in transaction.frames.items():
                if cause == operation.op:
                    fill(child, operation.path)

    fill((transaction.coordinator, 1), ())


def is_before(one: Operation, other: Operation) -> bool:
    """Definition 3.4 among operations of one transaction; False where they are concurrent.

    Or where it is not known: of an operation without a path, what it answers was lost with its issuer.
    """
    if not one.path:
        return False
    for (frame, number), (other_frame, other_number) in zip(one.path, other.path, strict=False):
        if frame != other_frame:
            return False
        if number != other_number:
            return number < other_number
    return len(one.path) < len(other.path)
