"""What clients are told in answer: votes, numbers, outcomes. An answer may be right and come too soon.

votes       nobody commits what a broker has voted against, or, where there are votes, has not voted for yet
departures  nobody votes for what a client of its was asked in that has gone since
beginnings  a coordinator of D-TX is told that it has begun when every broker has a context
outcomes    "committed" is told to the coordinator when all brokers have committed, of a plan also when its
            receivers have delivered; to others when their edge broker has committed
deliveries  who got a publication and was told that it is committed has delivered it
numbers     a publication of D-TX has reached as many clients as its issuer is told
operations  what belongs to a transaction that has committed was carried out, as its issuer was told
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from broker.protocol.vocabulary import S_TX
from labctl.checks.history import History, Transaction


def faults_of(history: History, brokers: Sequence[str]) -> Iterator[str]:
    processed = {broker: {*pairs} for broker, pairs in history.processed.items()}
    voters = {*brokers} if any(t.votes for t in history.transactions.values()) else set[str]()
    for transaction in history.transactions.values():
        if transaction.committed:
            yield from _against_votes(transaction, voters if transaction.mode != S_TX else set())
            yield from _undelivered(history, transaction)
            yield from _not_carried_out(history, transaction, processed)
            if transaction.ended >= 0:
                yield from _too_soon(history, transaction)
        yield from _begun_too_soon(transaction)
        yield from _miscounted(history, transaction)
    yield from _without_the_gone(history)


def false_words(history: History, told: Mapping[str, str]) -> Iterator[str]:
    """What a program was told when it could wait no longer; it may be that nothing is known, and never the opposite."""
    for tx, outcome in told.items():
        is_committed = tx in history.transactions and history.transactions[tx].committed
        if outcome != "unknown" and (outcome == "committed") != is_committed:
            what = "committed" if is_committed else "not"
            yield f"{tx}: its program was told that it is {outcome}, and it is {what}"


def _against_votes(transaction: Transaction, voters: set[str]) -> Iterator[str]:
    first = min(transaction.commits.values(), default=-1)
    for broker, (place, reason) in transaction.votes.items():
        if reason:
            yield f"{transaction.tx} has committed, and {broker} had voted against it: {reason}"
        elif place > first and transaction.ended >= 0:
            yield f"{transaction.tx} has committed before {broker} had voted"
    silent = sorted(voters - transaction.votes.keys()) if transaction.mode else []
    if silent:
        yield f"{transaction.tx} has committed without the votes of {silent}"


def _without_the_gone(history: History) -> Iterator[str]:
    """By the order in which the edge broker itself asked its client, learned that it is gone, and voted."""
    for gone in history.departures:
        for tx, op in history.processed.get(gone.broker, ())[: gone.processed]:
            transaction = history.transactions[tx]
            place, reason = transaction.votes.get(gone.broker, (-1, ""))
            if place < gone.place or reason or not transaction.committed:
                continue
            operation = transaction.operations.get(op)
            if operation is not None and operation.kind == "tcm" and gone.client in operation.receivers:
                yield f"{tx} has committed, and {gone.broker} voted for it when {gone.client}, who was asked, had gone"


def _undelivered(history: History, transaction: Transaction) -> Iterator[str]:
    for operation in transaction.operations.values():
        if operation.kind == "pub":
            for client in sorted(operation.heard - operation.receivers - history.gone):
                if transaction.ends.get(client) == "committed":
                    yield f"{transaction.tx} pub {operation.op}: {client} has got it and not delivered it"


def _not_carried_out(
    history: History, transaction: Transaction, processed: Mapping[str, set[tuple[str, int]]]
) -> Iterator[str]:
    """By the edge broker of whoever issued it."""
    for operation in transaction.operations.values():
        home = history.homes.get(operation.client, "")
        if operation.client in history.gone or transaction.voids or home not in processed:
            continue
        if (transaction.tx, operation.op) not in processed[home]:
            yield f"{transaction.tx} has committed, and {home} refused {operation.kind} {operation.op} in it"


def _begun_too_soon(transaction: Transaction) -> Iterator[str]:
    own = [o.place for o in transaction.operations.values() if o.client == transaction.coordinator]
    if transaction.began >= 0 and own and transaction.contexts:
        late = sorted(broker for broker, place in transaction.contexts.items() if place > min(own))
        if late:
            yield f"{transaction.tx}: its coordinator went on before it had begun at {late}"


def _too_soon(history: History, transaction: Transaction) -> Iterator[str]:
    """Where all nodes share a time."""
    tx, commits, ended = transaction.tx, transaction.commits, transaction.ended
    if transaction.outcome == "committed":
        late = sorted(broker for broker, place in commits.items() if place > ended)
        if late:
            yield f"{tx}: its coordinator was told that it is committed before {late} had"
        if transaction.is_planned:
            for client, place in transaction.delivered_at.items():
                if client != transaction.coordinator and place > ended:
                    yield f"{tx}: its coordinator was told that it is committed before {client} had delivered"
    for client, outcome in transaction.ends.items():
        home = history.homes.get(client, "")
        if outcome == "committed" and home in commits and commits[home] > transaction.ends_at[client]:
            yield f"{tx}: {client} was told that it is committed before its broker {home} had"


def _miscounted(history: History, transaction: Transaction) -> Iterator[str]:
    """Of who is gone it is not known whether it was counted, nor, of real nodes, who has told nothing at all."""
    for operation in transaction.operations.values():
        reached, heard = operation.reached, operation.heard
        if reached is None:
            continue
        is_too_many = transaction.began >= 0 and reached > len(heard | history.gone)
        if is_too_many or reached < len(heard - history.gone):
            yield (
                f"{transaction.tx} {operation.kind} {operation.op}: {operation.client} was told that it reached "
                f"{reached}, and it reached {sorted(heard)}"
            )


def told(history: History) -> int:
    """How many answers there are to look at."""
    return sum(
        len(t.votes) + sum(len(o.heard) + (o.reached is not None) for o in t.operations.values())
        for t in history.transactions.values()
    )
