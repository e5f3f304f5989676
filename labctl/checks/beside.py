"""Regular publications beside transactions, and whether what was published was advertised.

A regular publication sees what is committed, and what undecided transactions have subscribed to; never
what they have unsubscribed from. So a client that no committed transaction and no regular operation has
moved gets it exactly if it was subscribed before, and nobody gets it twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from broker.filters import Event
from labctl.checks.history import History, Operation, Transaction, is_before


def regular_faults(history: History) -> tuple[list[str], int]:
    """Regular publications that went wrong, and how many were looked at."""
    counts = Counter((d.client, d.op) for d in history.deliveries if not d.tx)
    faults: list[str] = []
    checked = 0
    for publisher, operations in history.regular.items():
        for operation in operations:
            if operation.kind != "pub" or operation.event is None:
                continue
            checked += 1
            for client in history.homes:
                times = counts[client, operation.op]
                least, most = _bounds(history, publisher, client, operation.event)
                if not least <= times <= most:
                    what = f"regular pub {operation.op} {operation.event} of {publisher}"
                    faults.append(f"{what}: {client} got it {times} times, not {least} to {most}")
    return faults, checked


def _bounds(history: History, publisher: str, client: str, event: Event) -> tuple[int, int]:
    """How often a client must and may get an event of a publisher."""
    if client == publisher:
        return 0, 0
    if client in history.gone or publisher in history.gone:
        return 0, 1
    if _is_moved(history, publisher, event, "adv", "uadv") or _is_moved(
        history, client, event, "sub", "usub"
    ):
        return 0, 1
    if not _is_in(history.setup.get(publisher, ()), event, "adv", "uadv"):
        return 0, 1
    if _is_in(history.setup.get(client, ()), event, "sub", "usub"):
        return 1, 1
    undone = [t for t in history.transactions.values() if not t.is_isolated]
    return 0, int(any(_ops(t.operations.values(), client, event, "sub") for t in undone))


def _is_moved(history: History, client: str, event: Event, *kinds: str) -> bool:
    """Whether what a client had before the transactions may be something else since."""
    if _ops(history.regular.get(client, ()), client, event, *kinds):
        return True
    committed = (t for t in history.transactions.values() if t.committed)
    return any(_ops(t.operations.values(), client, event, *kinds) for t in committed)


def _is_in(log: Sequence[Operation], event: Event, *kinds: str) -> bool:
    touching = _ops(log, log[0].client, event, *kinds) if log else []
    return bool(touching) and touching[-1].kind == kinds[0]


def _ops(operations: Iterable[Operation], client: str, event: Event, *kinds: str) -> list[Operation]:
    return [
        o
        for o in operations
        if o.client == client and o.kind in kinds and o.filter is not None and o.filter.matches(event)
    ]


def unadvertised(history: History) -> list[str]:
    """Publications of committed transactions that nothing covers which has come about."""
    faults = []
    for transaction in history.transactions.values():
        for operation in transaction.operations.values() if transaction.committed else ():
            event = operation.event
            if event is None or operation.kind not in ("pub", "tcm"):
                continue
            if not _ops(_advertisements(history, transaction, operation), operation.client, event, "adv"):
                faults.append(
                    f"{transaction.tx} {operation.kind} {operation.op} {event}: {operation.client} "
                    "has never advertised it"
                )
    return faults


def _advertisements(history: History, transaction: Transaction, operation: Operation) -> Iterator[Operation]:
    """Those of its publisher that may count for it."""
    yield from history.setup.get(operation.client, ())
    yield from history.regular.get(operation.client, ())
    yield from (o for o in transaction.operations.values() if not is_before(operation, o))
    for other in history.transactions.values():
        if other is not transaction and other.committed:
            yield from other.operations.values()
