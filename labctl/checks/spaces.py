"""Which operations touch an event: looked up by the values in their filters, once put in order.

To ask every operation for every publication takes hours where a run has many transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from broker.matching.boxes import contains
from broker.matching.records import Record
from broker.matching.table import Table
from broker.protocol.filters import Event, Filter
from broker.protocol.vocabulary import NO_KEY
from labctl.checks.history import History, Operation, Transaction
from labctl.checks.order import timelines_of

FEW_ENTRIES = 32
"""Up to here it is faster to ask every filter than to make a table of them."""


class SpaceEntry(Struct, frozen=True, eq=False):
    """An operation on a client's space."""

    operation: Operation
    filter: Filter
    transaction: Transaction | None = None
    """None: a regular operation."""
    is_setup: bool = False

    @property
    def is_beside(self) -> bool:
        """Regular, and not before the first transaction."""
        return self.transaction is None and not self.is_setup

    @property
    def has_come(self) -> bool:
        """Whether its edge broker has taken it; of a committed transaction nothing that was issued is left out."""
        if self.operation.stamp is not None:
            return True
        return self.transaction is not None and self.transaction.committed and not self.transaction.voids


class Shelf:
    """Entries in order, to be looked up by an event; all are there before the first question."""

    __slots__ = ("_entries", "_table")

    def __init__(self) -> None:
        self._entries: list[SpaceEntry] = []
        self._table: Table | None = None

    def add(self, entry: SpaceEntry) -> None:
        self._entries.append(entry)

    def touching(self, event: Event) -> list[SpaceEntry]:
        entries = self._entries
        if len(entries) <= FEW_ENTRIES:
            return [entry for entry in entries if contains(entry.filter, event)]
        if self._table is None:
            self._table = Table(_records(entries))
        places = {record.stamp[3] for record in self._table.matching(event, tuple(event))}
        return [entries[place] for place in sorted(places)]


def _records(entries: Sequence[SpaceEntry]) -> Iterator[Record]:
    """The table knows nothing of operations: the stamps are the places of the entries."""
    for place, entry in enumerate(entries):
        yield Record("sub", entry.operation.client, (NO_KEY, 0, 0, place), entry.filter)


class Spaces:
    """All operations on spaces of a history: for each client first the setup, then what it did beside
    transactions, then these."""

    def __init__(self, history: History) -> None:
        self._subscriptions = Shelf()
        self._advertisements: dict[str, Shelf] = {}
        self.subscribed: dict[Filter, None] = {}
        """The filters of all `sub`s and `usub`s."""
        for operations in history.setup.values():
            self._take(operations, None, is_setup=True)
        for operations in history.regular.values():
            self._take(operations, None)
        for transaction in history.transactions.values():
            self._take(transaction.operations.values(), transaction)

    def _take(
        self, operations: Iterable[Operation], transaction: Transaction | None, is_setup: bool = False
    ) -> None:
        for operation in operations:
            if operation.filter is None:
                continue
            entry = SpaceEntry(operation, operation.filter, transaction, is_setup)
            if operation.kind in ("sub", "usub"):
                self._subscriptions.add(entry)
                self.subscribed[operation.filter] = None
            elif operation.kind in ("adv", "uadv"):
                self._advertisements.setdefault(operation.client, Shelf()).add(entry)

    def advertisements(self, client: str, event: Event) -> list[SpaceEntry]:
        """Every `adv` and `uadv` of the client that contains the event, in order."""
        shelf = self._advertisements.get(client)
        return shelf.touching(event) if shelf is not None else []

    def subscriptions(self, event: Event) -> dict[str, list[SpaceEntry]]:
        """By client, every `sub` and `usub` that contains the event, in order."""
        found: dict[str, list[SpaceEntry]] = {}
        for entry in self._subscriptions.touching(event):
            found.setdefault(entry.operation.client, []).append(entry)
        return found

    def subscribing(self, event: Event) -> list[Transaction]:
        """The transactions with a `sub` or `usub` that contains the event, in the order of the history."""
        touching = self._subscriptions.touching(event)
        return list({e.transaction.tx: e.transaction for e in touching if e.transaction is not None}.values())


def spaces_of(history: History) -> Spaces:
    """Made at the first question; the history must not change any more."""
    if history.spaces is None:
        timelines_of(history)
        history.spaces = Spaces(history)
    return history.spaces


def is_in_at_end(entries: Iterable[SpaceEntry]) -> bool:
    """Whether a client has an event when all is over, by the last of its operations that touch it."""
    last: Operation | None = None
    for entry in entries:
        if not entry.has_come or (entry.transaction is not None and not entry.transaction.committed):
            continue
        if last is None or entry.operation.rank > last.rank:
            last = entry.operation
    return last is not None and last.kind in ("sub", "adv")
