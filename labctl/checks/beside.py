"""Regular publications beside transactions and behind them, and whether what was published was advertised.

A regular publication sees what is committed, and what undecided transactions have subscribed to; never
what they have unsubscribed from. So a client that no committed transaction and no regular operation has
moved gets it exactly if it was subscribed before, and nobody gets it twice. Where transactions move an event from
one owner to another it reaches at least one of them.

When all is over, there is nothing that can be open: the *last word* of each client about each event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from broker.protocol.filters import Event
from labctl.checks.history import History, Operation, Transaction, is_before
from labctl.checks.order import ADVERTISING, timelines_of
from labctl.checks.spaces import SpaceEntry, is_in_at_end, spaces_of


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
            subscriptions = spaces_of(history).subscriptions(operation.event)
            is_certain = _is_certain(history, publisher, operation.event)
            for client in history.homes:
                times = counts[client, operation.op]
                least, most = 0, int(client != publisher)
                if most and is_certain and client not in history.gone:
                    least, most = _bounds(subscriptions.get(client, ()))
                if not least <= times <= most:
                    what = f"regular pub {operation.op} {operation.event} of {publisher}"
                    faults.append(f"{what}: {client} got it {times} times, not {least} to {most}")
            reached = any(counts[client, operation.op] for client in history.homes)
            if is_certain and not reached and _has_always_an_owner(history, publisher, subscriptions):
                what = f"regular pub {operation.op} {operation.event} of {publisher}"
                faults.append(f"{what} reached nobody, and at every moment somebody was subscribed")
    return faults, checked


def _is_certain(history: History, publisher: str, event: Event) -> bool:
    """Whether a publisher advertised an event all the time; if not, it may have been refused."""
    advertisements = spaces_of(history).advertisements(publisher, event)
    return publisher not in history.gone and not _is_moved(advertisements) and _was_in(advertisements)


def _bounds(subscriptions: Sequence[SpaceEntry]) -> tuple[int, int]:
    """How often a client must and may get an event that these of its operations touch."""
    if _is_moved(subscriptions):
        return 0, 1
    if _was_in(subscriptions):
        return 1, 1
    return 0, int(any(_is_shown(entry) for entry in subscriptions))


def _has_always_an_owner(
    history: History, publisher: str, subscriptions: Mapping[str, Sequence[SpaceEntry]]
) -> bool:
    """Whether somebody else had it before the transactions, and whoever took it from somebody gave it to somebody.

    Then it has an owner after each of them, if they are as good as one after the other, and must reach the old one
    or the new one, or both.
    """
    others = {client: entries for client, entries in subscriptions.items() if client != publisher}
    if history.gone & others.keys() or not any(_was_in(entries) for entries in others.values()):
        return False
    takers, givers = set[str](), set[str]()
    lines: list[list[str]] = []
    for entries in others.values():
        line: list[str] = []
        last: dict[str, SpaceEntry] = {}
        for entry in sorted(entries, key=lambda e: e.operation.rank):
            transaction = entry.transaction
            if entry.is_beside or (transaction is not None and transaction.voids):
                return False
            if transaction is not None and transaction.committed:
                line += [transaction.tx] if line[-1:] != [transaction.tx] else []
                last[transaction.tx] = entry
                takers |= {transaction.tx} if entry.operation.kind == "usub" else set()
        lines.append(line)
        givers |= {tx for tx, entry in last.items() if entry.operation.kind == "sub"}
    return takers <= givers and _agree(lines)


def _agree(lines: Iterable[Sequence[str]]) -> bool:
    """Whether some order has all of these lines in it."""
    behind: dict[str, set[str]] = {}
    for line in lines:
        for place, one in enumerate(line):
            behind.setdefault(one, set()).update(line[:place])
    done = set[str]()
    while free := {one for one, before in behind.items() if one not in done and before <= done}:
        done |= free
    return len(done) == len(behind)


def _is_moved(entries: Sequence[SpaceEntry]) -> bool:
    """Whether what a client had before the transactions may be something else since."""
    return any(e.is_beside or (e.transaction is not None and e.transaction.committed) for e in entries)


def _was_in(entries: Sequence[SpaceEntry]) -> bool:
    """Whether a client had the event before the transactions."""
    kinds = [entry.operation.kind for entry in entries if entry.is_setup]
    return bool(kinds) and kinds[-1] in ("sub", "adv")


def _is_shown(entry: SpaceEntry) -> bool:
    """Whether it is a subscription that others see before its transaction is decided."""
    return (
        entry.operation.kind == "sub" and entry.transaction is not None and not entry.transaction.is_isolated
    )


def unadvertised(history: History) -> list[str]:
    """Publications of committed transactions that nothing covers which has come about."""
    faults = []
    for transaction in history.transactions.values():
        for operation in transaction.operations.values() if transaction.committed else ():
            event = operation.event
            if event is None or operation.kind not in ("pub", "tcm"):
                continue
            entries = spaces_of(history).advertisements(operation.client, event)
            if not any(_may_count(entry, transaction, operation) for entry in entries):
                faults.append(
                    f"{transaction.tx} {operation.kind} {operation.op} {event}: {operation.client} "
                    "has never advertised it"
                )
    return faults


def _may_count(entry: SpaceEntry, transaction: Transaction, operation: Operation) -> bool:
    """Whether it may have let its client publish the operation's event."""
    if entry.operation.kind != "adv":
        return False
    if entry.transaction is transaction:
        return not is_before(operation, entry.operation)
    return entry.transaction is None or entry.transaction.committed


class LastWord(Struct):
    """An event that a client published when all was over, and what became of it."""

    client: str
    event: Event
    admitting: frozenset[str]
    """The brokers that would let it publish the event in a transaction."""
    is_let_through: bool = True
    """By its own library; what that holds back was sent all the same."""
    is_refused: bool = False
    """By its broker."""
    receivers: list[str] = field(default_factory=list)
    """Each as often as it got it."""


def last_faults(history: History, words: Sequence[LastWord], brokers: Sequence[str]) -> Iterator[str]:
    """Everybody may publish what it advertises, and nothing else; it reaches who is subscribed, and nobody else."""
    spaces = spaces_of(history)
    present = [client for client in history.homes if client not in history.gone]
    for word in words:
        client, event = history.lives.get(word.client, word.client), word.event
        may = is_in_at_end(spaces.advertisements(client, event))
        what = f"at last, {event} of {word.client}, {'advertised' if may else 'not advertised'}"
        is_open = word.is_let_through and not may and _may_err(history, client)
        if word.is_let_through != may and not is_open:
            yield f"{what}: its library {'lets it through' if word.is_let_through else 'holds it back'}"
        if word.is_refused == may:
            yield f"{what}: its broker {'refuses it' if word.is_refused else 'takes it'}"
        for broker in brokers:
            if (broker in word.admitting) != may:
                does = "admits" if broker in word.admitting else "does not admit"
                yield f"{what}: {broker} {does} it in a transaction"
        subscriptions = spaces.subscriptions(event)
        wanted = sorted(c for c in present if may and c != client and is_in_at_end(subscriptions.get(c, ())))
        receivers = sorted(history.lives.get(id_, id_) for id_ in word.receivers)
        if receivers != wanted:
            yield f"{what}: reached {receivers} instead of {wanted}"


def _may_err(history: History, client: str) -> bool:
    """Whether a library may let through too much: it has said something else beside an isolated transaction of its."""
    said = [(o, t) for o, t in timelines_of(history).get(client, ()) if o.kind in ADVERTISING]
    never = float("inf")
    return any(
        one is not None
        and one.is_isolated
        and one is not other
        and (
            operation.place < beside.place < one.ends_at.get(client, never)
            or (other is not None and one.ends_at.get(client, never) < other.ends_at.get(client, never))
        )
        for operation, one in said
        for beside, other in said
    )
