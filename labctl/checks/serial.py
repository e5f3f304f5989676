"""Who must have received a publication: the meaning of operations without brokers and messages.

A client's space is a list of (filter, in or out), the last that contains an event decides. Transactions
are applied one after the other; a publication reaches the clients that are in at its place. Where a
client's place cannot be told from the history (a regular operation beside the transaction, operations
that Definition 3.4 leaves concurrent), nothing is claimed about that client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from msgspec import Struct

from broker.filters import Event
from labctl.checks.history import History, Operation, Transaction, is_before

ORDERS_MAX = 120


class Expectation(Struct, frozen=True):
    """Of one publication: who must have it, and about whom nothing is claimed."""

    receivers: frozenset[str]
    open: frozenset[str]


def touches(operation: Operation, event: Event) -> bool:
    return (
        operation.kind in ("sub", "usub") and operation.filter is not None and operation.filter.matches(event)
    )


def expect(
    history: History, transaction: Transaction, operation: Operation, order: Sequence[Transaction]
) -> Expectation:
    """`order` is that of the isolated transactions before it, and no others."""
    assert operation.event is not None
    receivers, open_ = set(), set()
    if is_path_open(history, transaction, operation):
        return Expectation(frozenset(), frozenset(history.homes))
    for client in history.homes:
        if client == operation.client:
            continue
        if client in history.gone or _is_open(history, client, transaction, operation):
            open_.add(client)
            continue
        touching = [
            o for o in _past(history, client, transaction, operation, order) if touches(o, operation.event)
        ]
        if touching and touching[-1].kind == "sub":
            receivers.add(client)
    return Expectation(frozenset(receivers), frozenset(open_))


def _past(
    history: History,
    client: str,
    transaction: Transaction,
    operation: Operation,
    order: Iterable[Transaction],
) -> Iterator[Operation]:
    """What the client did before the operation, in order."""
    yield from history.setup.get(client, ())
    for earlier in order:
        yield from in_order(earlier, client)
    yield from (o for o in in_order(transaction, client) if is_before(o, operation))


def in_order(transaction: Transaction, client: str) -> list[Operation]:
    own = [o for o in transaction.operations.values() if o.client == client and o.stamp is not None]
    return sorted(own, key=lambda o: o.stamp or ())


def is_path_open(history: History, transaction: Transaction, operation: Operation) -> bool:
    """Whether the publisher's advertisement was on its way beside the transaction: then so were subscriptions."""
    event, publisher = operation.event, operation.client
    assert event is not None
    beside = [*history.regular.get(publisher, ())]
    for other in rivals(history, transaction):
        beside += [o for o in other.operations.values() if o.client == publisher]
    return any(o.kind in ("adv", "uadv") and o.filter is not None and o.filter.matches(event) for o in beside)


def _is_open(history: History, client: str, transaction: Transaction, operation: Operation) -> bool:
    event = operation.event
    assert event is not None
    own = [o for o in transaction.operations.values() if o.client == client and touches(o, event)]
    if any(not is_before(o, operation) and not is_before(operation, o) for o in own):
        return True
    # What an isolated transaction wrote itself counts for it, whatever its client does beside it.
    is_settled = transaction.is_isolated and any(is_before(o, operation) for o in own)
    if not is_settled and any(touches(o, event) for o in history.regular.get(client, ())):
        return True
    for other in rivals(history, transaction):
        if any(o.client == client and touches(o, event) for o in other.operations.values()):
            return True
    return False


def rivals(history: History, transaction: Transaction) -> list[Transaction]:
    """Transactions from which this one is not isolated."""
    others = [t for t in history.transactions.values() if t is not transaction]
    if transaction.is_isolated:
        return [t for t in others if not t.is_isolated and (t.committed or not t.aborted_at)]
    return others


def faults_of(history: History, order: Sequence[Transaction]) -> tuple[list[str], int]:
    """Publications of isolated transactions that this order does not explain, and how many it had to."""
    faults: list[str] = []
    checked = 0
    for place, transaction in enumerate(order):
        for operation in transaction.operations.values():
            if operation.kind in ("pub", "tcm"):
                checked += 1
                faults += compare(
                    operation, expect(history, transaction, operation, order[:place]), transaction
                )
                if not _is_admitted(history, transaction, operation, order[:place]):
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
    history: History, transaction: Transaction, operation: Operation, order: Sequence[Transaction]
) -> bool:
    """Whether its publisher advertises it at its place in the order; True where that cannot be told."""
    event = operation.event
    assert event is not None

    def opens(other: Operation) -> bool:
        return other.kind in ("adv", "uadv") and other.filter is not None and other.filter.matches(event)

    own = [o for o in in_order(transaction, operation.client) if opens(o)]
    is_concurrent = any(not is_before(o, operation) and not is_before(operation, o) for o in own)
    if is_concurrent or operation.client in history.gone or is_path_open(history, transaction, operation):
        return True
    past = [o for o in _past(history, operation.client, transaction, operation, order) if opens(o)]
    return bool(past) and past[-1].kind == "adv"


def some_order(history: History, ordered: Sequence[Transaction]) -> bool:
    """Whether any order at all explains the deliveries: asked without looking at the keys."""
    for tried, order in enumerate(permutations(ordered)):
        if tried >= ORDERS_MAX:
            return True  # not decided
        if not faults_of(history, order)[0]:
            return True
    return False
