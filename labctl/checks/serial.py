"""Who must have received a publication: the meaning of operations without brokers and messages.

A client's space is a list of (filter, in or out), the last that contains an event decides: last in the order in
which the client spoke (`labctl.checks.order`), whatever stamps brokers have given. Transactions
are applied one after the other; a publication reaches the clients that are in at its place. Where a
client's place cannot be told from the history (a regular operation beside the transaction, operations
that Definition 3.4 leaves concurrent), nothing is claimed about that client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from labctl.checks.history import History, Operation, Transaction, is_before
from labctl.checks.spaces import SpaceEntry, spaces_of

Place = tuple[int, int]
"""The transaction's place in the order, and the rank within it."""
NEVER, SETUP = -2, -1
"""Places of what is not in an operation's past, and of what is before all transactions."""


class Expectation(Struct, frozen=True):
    """Of one publication: who must have it, and about whom nothing is claimed."""

    receivers: frozenset[str]
    open: frozenset[str]


def expect(
    history: History, transaction: Transaction, operation: Operation, places: Mapping[str, int]
) -> Expectation:
    """`places` are those of the isolated transactions in their order; empty: there are none before it."""
    assert operation.event is not None
    if is_path_open(history, transaction, operation):
        return Expectation(frozenset(), frozenset(history.homes))
    receivers, open_ = set(), history.gone & history.homes.keys()
    for client, entries in spaces_of(history).subscriptions(operation.event).items():
        if client not in history.homes or client in history.gone:
            continue
        if _is_open(entries, transaction, operation):
            open_.add(client)
        elif is_in(entries, transaction, operation, places):
            receivers.add(client)
    itself = {operation.client}
    return Expectation(frozenset(receivers - itself), frozenset(open_ - itself))


def is_in(
    entries: Iterable[SpaceEntry], transaction: Transaction, operation: Operation, places: Mapping[str, int]
) -> bool:
    """Whether the last of them before the operation lets its event in; they are of one client, and touch it."""
    last: Operation | None = None
    last_place: Place = (NEVER, -1)
    for entry in entries:
        place = _place(entry, transaction, operation, places)
        if place[0] != NEVER and place >= last_place:
            last, last_place = entry.operation, place
    return last is not None and last.kind in ("sub", "adv")


def _place(
    entry: SpaceEntry, transaction: Transaction, operation: Operation, places: Mapping[str, int]
) -> Place:
    """Where an entry stands in what its client did before the operation."""
    rank = entry.operation.rank
    if entry.is_setup:
        return SETUP, rank
    if entry.transaction is None or not entry.has_come:
        return NEVER, rank
    now = places.get(transaction.tx, 0)
    if entry.transaction is transaction:
        return (now if is_before(entry.operation, operation) else NEVER), rank
    place = places.get(entry.transaction.tx, now)
    return (place if place < now else NEVER), rank


def is_path_open(history: History, transaction: Transaction, operation: Operation) -> bool:
    """Whether the publisher's advertisement was on its way beside the transaction: then so were subscriptions."""
    assert operation.event is not None
    entries = spaces_of(history).advertisements(operation.client, operation.event)
    return any(_is_beside(entry, transaction) for entry in entries)


def _is_open(entries: Sequence[SpaceEntry], transaction: Transaction, operation: Operation) -> bool:
    own = [entry.operation for entry in entries if entry.transaction is transaction]
    if any(_is_concurrent(o, operation) for o in own):
        return True
    # What an isolated transaction wrote itself counts for it, whatever its client does beside it.
    is_settled = transaction.is_isolated and any(is_before(o, operation) for o in own)
    return any(_is_beside(entry, transaction) for entry in entries if not (is_settled and entry.is_beside))


def _is_concurrent(one: Operation, other: Operation) -> bool:
    return not is_before(one, other) and not is_before(other, one)


def _is_beside(entry: SpaceEntry, transaction: Transaction) -> bool:
    """Whether it is regular, or of a transaction from which this one is not isolated."""
    other = entry.transaction
    if other is None or other is transaction:
        return entry.is_beside
    if transaction.is_isolated:
        return not other.is_isolated and (other.committed or not other.aborted_at)
    return True


def faults_of(history: History, order: Sequence[Transaction]) -> tuple[list[str], int]:
    """Publications of isolated transactions that this order does not explain, and how many it had to."""
    faults: list[str] = []
    checked = 0
    places = {transaction.tx: place for place, transaction in enumerate(order)}
    for transaction in order:
        for operation in transaction.operations.values():
            if operation.kind in ("pub", "tcm"):
                checked += 1
                faults += compare(operation, expect(history, transaction, operation, places), transaction)
                if not _is_admitted(history, transaction, operation, places):
                    faults.append(f"{_what(transaction, operation)}: it is not advertised there")
    return faults, checked


def compare(operation: Operation, expected: Expectation, transaction: Transaction) -> list[str]:
    got = operation.receivers - expected.open - {operation.client}
    what = _what(transaction, operation)
    missed, wrong = sorted(expected.receivers - got), sorted(got - expected.receivers)
    return [f"{what}: missed by {c}" for c in missed] + [f"{what}: wrong recipient {c}" for c in wrong]


def _what(transaction: Transaction, operation: Operation) -> str:
    return f"{transaction.tx} {operation.kind} {operation.op} {operation.event} of {operation.client}"


def _is_admitted(
    history: History, transaction: Transaction, operation: Operation, places: Mapping[str, int]
) -> bool:
    """Whether its publisher advertises it at its place in the order; True where that cannot be told."""
    assert operation.event is not None
    if not is_admission_known(history, transaction, operation):
        return True
    entries = spaces_of(history).advertisements(operation.client, operation.event)
    return is_in(entries, transaction, operation, places)


def is_admission_known(history: History, transaction: Transaction, operation: Operation) -> bool:
    """Whether it can be told, for an order, if its publisher advertises it."""
    assert operation.event is not None
    entries = spaces_of(history).advertisements(operation.client, operation.event)
    own = [e.operation for e in entries if e.transaction is transaction and e.has_come]
    if operation.client in history.gone or any(_is_concurrent(o, operation) for o in own):
        return False
    return not any(_is_beside(entry, transaction) for entry in entries)
