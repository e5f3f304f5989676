"""Why no order explains what D-TX transactions have delivered: the anomaly's name, and the operations that make it.

An *item* is one client's state at one event: in, if the last of its `sub` and `usub` that contain the event is a
`sub`, else out; and the same of what it advertises. A `sub` or `usub` in a transaction writes it. A publication
reads it: in, if the client has got the event, else out; and of its own publisher, that it may publish. Versions of
an item are in the order of keys, which is what D-TX promises. Adya's dependencies between transactions are then

    ww      the one's version of an item is before the other's
    wr      the other has published what the one's version let through, or kept away
    rw      the one has published what it did because the other's version did not count yet

and beside them *client order* (a client knew of the one's end before it did anything in the other) and *real time*
(the one had ended before the other began; in the simulator only). Whatever has no cycle is explained by every
order that follows the edges. A cycle has the name of the weakest promise that forbids it:

    G0               ww alone: each has overwritten what the other wrote
    G1a              an event reached, or missed, a client by what an aborted transaction had written
    G1b              the same by what its own transaction has written over before its end
    G1c              ww and wr: each has seen what the other has done
    lost update      one has published to a client and changed its state, and another's change is between the two
    G-single         with one rw: of another's changes one has seen a part
    G2-item          with more: each has missed what the other did (write skew, where they are two)
    internal         a transaction has not seen what it wrote itself
    garbage          nobody has written what was read
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from broker.protocol.filters import Event
from labctl.checks import serial
from labctl.checks.cycles import ARROWS, Edge, Graph, Item, Kind, add_time
from labctl.checks.history import History, Operation, Transaction, is_before
from labctl.checks.spaces import SpaceEntry, spaces_of

LEVELS: tuple[tuple[frozenset[Kind], str], ...] = (
    (frozenset({"ww", "wr", "rw"}), ""),
    (frozenset({"ww", "wr", "rw", "client order"}), " in client order"),
    (frozenset({"ww", "wr", "rw", "client order", "real time"}), " in real time"),
)
TOLD_MAX = 5
"""So many anomalies of one history are put in words."""


class Anomaly(Struct, frozen=True):
    name: str
    transactions: tuple[str, ...]
    """Of a cycle, with the first at its end once more."""
    lines: tuple[str, ...]
    """For each step of it, the operations that make it."""

    @property
    def text(self) -> str:
        return "\n".join((f"{self.name}: {' -> '.join(self.transactions)}", *self.lines))


class Version(NamedTuple):
    """A state of an item; place 0 is what was there before all transactions."""

    place: int
    is_in: bool
    operation: Operation | None = None
    tx: str = ""


class Read(NamedTuple):
    transaction: Transaction
    place: int
    operation: Operation
    item: Item
    is_in: bool
    entries: Sequence[SpaceEntry]


class Explanation(NamedTuple):
    anomalies: list[Anomaly]
    order: list[Transaction]
    """One that explains everything, if there are no anomalies; as near to that of the keys as can be."""


def explain(history: History, ordered: Sequence[Transaction]) -> Explanation:
    """Of committed isolated transactions, in the order of their keys."""
    graph, anomalies = _graph(history, ordered)
    order = graph.topological()
    if len(order) < len(ordered):
        done = {t.tx for t in order}
        anomalies.append(_named(graph, [t.tx for t in ordered if t.tx not in done]))
    return Explanation(anomalies, order)


def told(history: History, ordered: Sequence[Transaction], do_keys_explain: bool) -> list[str]:
    """The same in words; nothing is wrong where some order explains everything, and the keys have it."""
    anomalies, order = explain(history, ordered)
    if anomalies or do_keys_explain:
        return [anomaly.text for anomaly in anomalies[:TOLD_MAX]]
    moved = [t.tx for t, by_key in zip(order, ordered, strict=True) if t is not by_key]
    return [f"another order explains it, and not that of the keys: these have moved, {', '.join(moved)}"]


# The graph


def _graph(history: History, ordered: Sequence[Transaction]) -> tuple[Graph, list[Anomaly]]:
    """With what no dependency explains."""
    graph, unexplained = Graph(ordered), list[Anomaly]()
    places = {t.tx: place for place, t in enumerate(ordered, 1)}
    add_time(graph)
    doubtful: list[tuple[Read, list[Version], int]] = []
    for read in _reads(history, ordered):
        versions = _versions(read, places)
        for one, other in pairwise(versions):
            if one.operation is not None and other.operation is not None:
                graph.add(_overwrites(one, other, read.item))
        own = _written_before(read)
        if own is not None:  # that it must see, wherever it stands
            if _lets_in(own) != read.is_in:
                unexplained.append(_internal(read, own))
            continue
        others = [v for v in versions if v.tx != read.transaction.tx]
        here = bisect_left(others, read.place, key=lambda v: v.place) - 1
        if others[here].is_in == read.is_in:
            for edge in _read_edges(read, others, here):
                graph.add(edge)
        else:
            doubtful.append((read, others, here))
    for read, others, here in doubtful:
        unexplained += _take_doubtful(graph, read, others, here)
    return graph, unexplained


def _take_doubtful(graph: Graph, read: Read, versions: Sequence[Version], here: int) -> list[Anomaly]:
    """The keys do not explain it: it may have missed what is before it, or have seen what is behind it."""
    choices = [
        list(_read_edges(read, versions, place))
        for place in (_run(versions, here)[0] - 1, _run(versions, here)[1] + 1)
        if 0 <= place < len(versions)
    ]
    for edges in choices:
        if not any(map(graph.closes, edges)):
            break
    else:
        dirty = _dirty(read)
        if dirty is not None or not choices:
            return [dirty or _garbage(read)]
        edges = choices[0]
    for edge in edges:
        graph.add(edge)
    return []


def _reads(history: History, ordered: Sequence[Transaction]) -> Iterator[Read]:
    """What the publications of transactions tell about the states of clients."""
    spaces = spaces_of(history)
    for place, transaction in enumerate(ordered, 1):
        for operation in transaction.operations.values():
            event, publisher = operation.event, operation.client
            if operation.kind not in ("pub", "tcm") or event is None:
                continue
            subscriptions = spaces.subscriptions(event)
            # Who is open does not depend on the order.
            open_ = serial.expect(history, transaction, operation, {}).open
            for client in sorted({*subscriptions, *operation.receivers} - open_ - {publisher}):
                if client in history.homes:
                    item = ("sub", client, _words(event))
                    entries = subscriptions.get(client, ())
                    yield Read(transaction, place, operation, item, client in operation.receivers, entries)
            if serial.is_admission_known(history, transaction, operation):
                entries = spaces.advertisements(publisher, event)
                yield Read(transaction, place, operation, ("adv", publisher, _words(event)), True, entries)


def _versions(read: Read, places: Mapping[str, int]) -> list[Version]:
    """Of what it has read, in the order of keys."""
    last: dict[int, Version] = {0: Version(0, is_in=False)}
    for entry in read.entries:
        operation, transaction = entry.operation, entry.transaction
        if entry.is_setup:
            last[0] = Version(0, _lets_in(operation))
        elif transaction is not None and transaction.tx in places and entry.has_come:
            place = places[transaction.tx]
            before = last.get(place)
            if before is None or before.operation is None or before.operation.place < operation.place:
                last[place] = Version(place, _lets_in(operation), operation, transaction.tx)
    return [last[place] for place in sorted(last)]


def _written_before(read: Read) -> Operation | None:
    """By the same transaction, the last."""
    own = [
        entry.operation
        for entry in read.entries
        if entry.transaction is read.transaction
        and entry.has_come
        and is_before(entry.operation, read.operation)
    ]
    return max(own, key=lambda operation: operation.place, default=None)


def _run(versions: Sequence[Version], place: int) -> tuple[int, int]:
    """The first and the last of the versions around a place that say the same."""
    first = last = place
    while first > 0 and versions[first - 1].is_in == versions[place].is_in:
        first -= 1
    while last + 1 < len(versions) and versions[last + 1].is_in == versions[place].is_in:
        last += 1
    return first, last


def _read_edges(read: Read, versions: Sequence[Version], place: int) -> Iterator[Edge]:
    """The reader is behind the first that says what it saw, and before the next that says something else."""
    first, last = _run(versions, place)
    tx, text = read.transaction.tx, _seen(read)
    writer = versions[first].operation
    if writer is not None:
        yield Edge(versions[first].tx, tx, "wr", read.item, f"{_what(writer)}, then {text}")
    if last + 1 < len(versions):
        overwriter = versions[last + 1]
        assert overwriter.operation is not None
        yield Edge(tx, overwriter.tx, "rw", read.item, f"{text}, so not yet {_what(overwriter.operation)}")


def _overwrites(one: Version, other: Version, item: Item) -> Edge:
    assert one.operation is not None
    assert other.operation is not None
    text = f"{_what(one.operation)} at {item[2]}, then its {_what(other.operation)}"
    return Edge(one.tx, other.tx, "ww", item, text)


# Names


def _named(graph: Graph, left: Sequence[str]) -> Anomaly:
    """The anomaly of the weakest name among those of some transactions that lie on or behind cycles."""
    for kinds, time in LEVELS:
        found = (
            _shortest(graph, left, kinds - {"wr", "rw"}, "G0")
            or _shortest(graph, left, kinds - {"rw"}, "G1c")
            or _with_one(graph, left, kinds)
            or _shortest(graph, left, kinds, "G2-item")
        )
        if found is not None:
            name, cycle = found
            if name == "G2-item" and [edge.kind for edge in cycle] == ["rw", "rw"]:
                name = "G2-item (write skew)"
            lines = tuple(f"  {e.source} -{ARROWS[e.kind]}-> {e.target}: {e.text}" for e in cycle)
            ring = (*(edge.source for edge in cycle), cycle[0].source)
            return Anomaly(f"{name}{time}", ring, lines)
    raise AssertionError("what is behind a cycle has one before it")


Found = tuple[str, list[Edge]]


def _shortest(graph: Graph, left: Sequence[str], kinds: frozenset[Kind], name: str) -> Found | None:
    best: list[Edge] = []
    for tx in left:
        cycle = graph.path(tx, tx, kinds)
        if cycle and (not best or len(cycle) < len(best)):
            best = cycle
        if len(best) == 2:
            break
    return (name, best) if best else None


def _with_one(graph: Graph, left: Sequence[str], kinds: frozenset[Kind]) -> Found | None:
    """A cycle with exactly one rw."""
    among, best = set(left), ("", list[Edge]())
    for edge in graph.edges:
        if edge.kind != "rw" or edge.source not in among:
            continue
        for other in graph.next.get(edge.target, ()):
            if other.kind == "ww" and other.target == edge.source and other.item == edge.item:
                return "lost update", [edge, other]
        way = graph.path(edge.target, edge.source, kinds - {"rw"})
        if way and (not best[1] or len(way) + 1 < len(best[1])):
            best = ("G-single", [edge, *way])
    return best if best[1] else None


def _dirty(read: Read) -> Anomaly | None:
    """Whether somebody has written what was read who has aborted, or has written something else since."""
    last: dict[str, SpaceEntry] = {}
    for entry in read.entries:
        if entry.transaction is not None and entry.transaction is not read.transaction:
            last[entry.transaction.tx] = entry
            if _lets_in(entry.operation) == read.is_in and not entry.transaction.committed:
                return _read_from(read, entry, "G1a", "which has not committed")
    for entry in read.entries:
        after = last.get(entry.transaction.tx) if entry.transaction is not None else None
        if after is not None and _lets_in(entry.operation) == read.is_in != _lets_in(after.operation):
            return _read_from(read, entry, "G1b", f"which has itself undone it by {_what(after.operation)}")
    return None


def _read_from(read: Read, entry: SpaceEntry, name: str, why: str) -> Anomaly:
    assert entry.transaction is not None
    tx = entry.transaction.tx
    line = f"  {_seen(read)} by {_what(entry.operation)} of {tx}, {why}"
    return Anomaly(name, (tx, read.transaction.tx), (line,))


def _internal(read: Read, own: Operation) -> Anomaly:
    return Anomaly("internal", (read.transaction.tx,), (f"  {_seen(read)}, after its own {_what(own)}",))


def _garbage(read: Read) -> Anomaly:
    return Anomaly("garbage", (read.transaction.tx,), (f"  {_seen(read)}, and nobody had written that",))


# Words


def _lets_in(operation: Operation) -> bool:
    return operation.kind in ("sub", "adv")


def _seen(read: Read) -> str:
    operation, (table, client, event) = read.operation, read.item
    text = f"{operation.kind} {operation.op} of {event} by {operation.client}"
    if table == "adv":
        return f"{text} was admitted"
    return f"{text} {'reached' if read.is_in else 'missed'} {client}"


def _what(operation: Operation) -> str:
    return f"{operation.kind} {operation.op} of {operation.client}"


def _words(event: Event) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(event.items()))
