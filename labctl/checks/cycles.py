"""Which transactions must be before which: a graph of dependencies, its cycles, and the orders that it allows.

What the dependencies are that publications show is in `labctl.checks.anomalies`; here are those of time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from msgspec import Struct, field

from labctl.checks.history import Transaction

Kind = Literal["ww", "wr", "rw", "client order", "real time"]
Item = tuple[str, str, str]
"""Of which table, whose, at which event."""

ARROWS: dict[Kind, str] = {
    "ww": "ww", "wr": "wr", "rw": "rw", "client order": "client", "real time": "time"
}  # fmt: skip
NEVER = 1 << 62
"""Later than any place in a history."""


class Edge(NamedTuple):
    source: str
    target: str
    kind: Kind
    item: Item | None
    text: str
    """The operations that make it."""


class Graph(Struct):
    """The dependencies of committed isolated transactions, which are in the order of their keys."""

    order: Sequence[Transaction]
    edges: list[Edge] = field(default_factory=list)
    next: dict[str, list[Edge]] = field(default_factory=dict)
    """Those that leave a transaction, one of each kind for each pair."""
    known: set[tuple[str, str, Kind, Item | None]] = field(default_factory=set)

    def add(self, edge: Edge) -> None:
        identity = (edge.source, edge.target, edge.kind, edge.item)
        if edge.source != edge.target and identity not in self.known:
            self.known.add(identity)
            self.edges.append(edge)
            self.next.setdefault(edge.source, []).append(edge)

    def closes(self, edge: Edge) -> bool:
        """Whether it would close a cycle."""
        return bool(self.path(edge.target, edge.source))

    def path(self, source: str, target: str, kinds: Iterable[Kind] = ARROWS) -> list[Edge]:
        """A shortest one; empty: there is none."""
        came: dict[str, Edge | None] = {source: None}
        queue = deque([source])
        while queue:
            tx = queue.popleft()
            for edge in self.next.get(tx, ()):
                if edge.kind not in kinds:
                    continue
                if edge.target == target:
                    way = [edge]
                    while (before := came[way[0].source]) is not None:
                        way.insert(0, before)
                    return way
                if edge.target not in came:
                    came[edge.target] = edge
                    queue.append(edge.target)
        return []

    def topological(self) -> list[Transaction]:
        """As near to the order of keys as the edges allow; what lies on or behind a cycle is left out."""
        places = {t.tx: place for place, t in enumerate(self.order)}
        incoming = dict.fromkeys(places, 0)
        for edge in self.edges:
            incoming[edge.target] += 1
        free = [place for tx, place in places.items() if not incoming[tx]]
        found: list[Transaction] = []
        while free:
            transaction = self.order[heappop(free)]
            found.append(transaction)
            for edge in self.next.get(transaction.tx, ()):
                incoming[edge.target] -= 1
                if not incoming[edge.target]:
                    heappush(free, places[edge.target])
        return found


# Time


def follows_time(ordered: Sequence[Transaction]) -> bool:
    """Whether keys grow with time: then what they explain has no cycle, and nobody need look for one."""
    spans: dict[str, int] = {}
    """By client, and "" for all: the earliest end of those with larger keys."""
    for transaction in reversed(ordered):
        for who, first, end in _spans(transaction):
            if spans.get(who, NEVER) < first < NEVER:
                return False
            if end >= 0:
                spans[who] = min(end, spans.get(who, end))
    return True


def _spans(transaction: Transaction) -> Iterator[tuple[str, int, int]]:
    """When it began and ended: for each client that took part, and for all ("") where there is one time."""
    if transaction.began >= 0:
        yield "", transaction.began, transaction.ended
    firsts = dict.fromkeys(transaction.ends_at, NEVER)
    for operation in transaction.operations.values():
        client = operation.client
        firsts[client] = min(operation.place, firsts.get(client, operation.place))
    for client, first in firsts.items():
        yield client, first, transaction.ends_at.get(client, -1)


def add_time(graph: Graph) -> None:
    """An edge from each transaction to those that began next after its end: the others follow from these."""
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for transaction in graph.order:
        for who, first, end in _spans(transaction):
            spans.setdefault(who, []).append((first, end, transaction.tx))
    for who, group in spans.items():
        group.sort()
        nearest = NEVER - 1
        latest: list[int] = []
        """For each place in the group, the earliest end of those that begin there or later."""
        for first, end, _ in reversed(group):
            nearest = min(nearest, end) if end >= 0 and first < NEVER else nearest
            latest.append(nearest)
        latest.reverse()
        for _, end, tx in group:
            place = bisect_left(group, (end, -1, "")) if end >= 0 else len(group)
            bound = latest[place] if place < len(group) else 0
            while place < len(group) and group[place][0] <= bound:
                graph.add(_later(who, tx, group[place][2]))
                place += 1


def _later(who: str, one: str, other: str) -> Edge:
    if not who:
        return Edge(one, other, "real time", None, f"{one} had ended before {other} began")
    return Edge(
        one, other, "client order", None, f"{who} knew that {one} had ended before it acted in {other}"
    )
