"""In which order a client did what it did: by its own history, which knows nothing of the stamps of brokers.

What a client says regularly, in D-TX_NI and in plans counts in the order in which it said it; of one plan, in
the order of its steps: one that the client was asked for late stands before the later steps that it has said
already. What it wrote in an isolated transaction counts together, and stands behind all that it had said before
the last of it, and before all that it said after it had learned the outcome. In between, the two are concurrent:
only there the stamps of its edge broker tell which came first. A late step of a plan counts for that as said with
those behind it.

Stamps must agree with that order wherever two operations touch the same. And nobody commits what its edge broker has
voted for when it knew that its client had changed the same regularly, with a newer stamp.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from broker.protocol.filters import overlaps
from labctl.checks.history import History, Operation, Transaction

Said = tuple[Operation, Transaction | None]
ADVERTISING = ("adv", "uadv")


def timelines_of(history: History) -> dict[str, list[Said]]:
    """By client, what it did to its space, in order; undecided and aborted isolated transactions are left out.

    Made at the first question, when every operation gets its rank; the history must not change any more.
    """
    if history.timelines is None:
        history.timelines = {client: _timeline(client, said) for client, said in _by_client(history).items()}
        for timeline in history.timelines.values():
            for rank, (operation, _) in enumerate(timeline):
                operation.rank = rank
    return history.timelines


def _by_client(history: History) -> dict[str, list[Said]]:
    found: dict[str, list[Said]] = {}
    for table in (history.setup, history.regular):
        for client, operations in table.items():
            found.setdefault(client, []).extend((o, None) for o in operations if o.filter is not None)
    for transaction in history.transactions.values():
        for operation in transaction.operations.values():
            if operation.filter is not None:
                found.setdefault(operation.client, []).append((operation, transaction))
    for said in found.values():
        said.sort(key=lambda one: one[0].place)
    return found


def _timeline(client: str, said: Sequence[Said]) -> list[Said]:
    line: list[Said] = []
    times: list[int] = []
    blocks: dict[str, list[Said]] = {}
    last_steps: dict[str, int] = {}
    for operation, transaction in said:
        if transaction is None or not transaction.is_isolated:
            place = len(line)
            if transaction is not None and transaction.is_planned:
                if operation.op < last_steps.get(transaction.tx, 0):
                    place = _before_later_steps(line, operation, transaction)
                last_steps[transaction.tx] = max(last_steps.get(transaction.tx, 0), operation.op)
            # A late step counts as said with the later ones: together they are concurrent with something, or not.
            times.insert(place, operation.place if place == len(line) else times[place])
            line.insert(place, (operation, transaction))
        elif transaction.committed:
            blocks.setdefault(transaction.tx, []).append((operation, transaction))
    return _merged(client, line, times, list(blocks.values())) if blocks else line


def _before_later_steps(line: Sequence[Said], step: Operation, plan: Transaction) -> int:
    return next(
        place for place, (other, other_plan) in enumerate(line) if other_plan is plan and other.op > step.op
    )


def _merged(client: str, line: list[Said], times: Sequence[int], blocks: list[list[Said]]) -> list[Said]:
    """Put what isolated transactions wrote among the rest, which was said at these times."""
    least_from = [*accumulate(reversed(times), min)][::-1]
    most_until = [*accumulate(times, max)]
    placed: list[tuple[int, object, list[Said]]] = []
    for block in blocks:
        transaction = block[0][1]
        assert transaction is not None
        low = bisect_left(least_from, block[-1][0].place)
        learned = transaction.ends_at.get(client)
        high = len(line) if learned is None else max(low, bisect_right(most_until, learned))
        placed.append((_by_stamp(line, low, high, block[0][0]), transaction.key, block))
    merged: list[Said] = []
    done = 0
    for place, _, block in sorted(placed, key=lambda one: one[:2]):
        merged += [*line[done:place], *block]
        done = place
    return [*merged, *line[done:]]


def _by_stamp(line: Sequence[Said], low: int, high: int, first: Operation) -> int:
    """Where among concurrent operations the edge broker has put a transaction."""
    for place in range(low, high):
        stamp = line[place][0].stamp
        if stamp is not None and first.stamp is not None and stamp > first.stamp:
            return place
    return high


def faults_of(history: History) -> tuple[list[str], int]:
    """Stamps that contradict the order in which clients spoke, and how many were looked at."""
    faults: list[str] = []
    checked = 0
    for client, timeline in timelines_of(history).items():
        if client in history.gone:
            continue
        counting = [one for one in timeline if _counts(one)]
        checked += len(counting)
        if any(one.stamp >= other.stamp for (one, _), (other, _) in pairwise(counting)):  # type: ignore[operator]
            faults += _contradictions(client, counting)
        faults += _overlooked(history, client, counting)
    return faults, checked


def _overlooked(history: History, client: str, timeline: Sequence[Said]) -> Iterator[str]:
    """Concurrent operations of which the later one counts as the earlier, though its edge broker could tell."""
    home = history.homes.get(client, "")
    regular = [o for o, transaction in timeline if transaction is None and o.stamp is not None]
    for operation, transaction in timeline if regular else ():
        if transaction is None or not transaction.is_isolated or operation.stamp is None:
            continue
        voted, _ = transaction.votes.get(home, (-1, ""))
        for other in regular:
            if operation.stamp < other.stamp and other.taken < voted and _touch_the_same(operation, other):  # type: ignore[operator]
                yield (
                    f"{client}: {home} voted for {_name(operation, transaction)} when it had given "
                    f"{_name(other, None)} a newer stamp"
                )


def _counts(said: Said) -> bool:
    operation, transaction = said
    return operation.stamp is not None and (transaction is None or transaction.committed)


def _contradictions(client: str, timeline: Sequence[Said]) -> Iterator[str]:
    for place, (later, of_later) in enumerate(timeline):
        for earlier, of_earlier in timeline[:place]:
            if earlier.stamp >= later.stamp and _touch_the_same(earlier, later):  # type: ignore[operator]
                yield (
                    f"{client}: {_name(earlier, of_earlier)} came before {_name(later, of_later)}, and has the "
                    f"newer stamp: {earlier.stamp} and {later.stamp}"
                )


def _touch_the_same(one: Operation, other: Operation) -> bool:
    assert one.filter is not None
    assert other.filter is not None
    return (one.kind in ADVERTISING) == (other.kind in ADVERTISING) and overlaps(one.filter, other.filter)


def _name(operation: Operation, transaction: Transaction | None) -> str:
    return f"{transaction.tx if transaction is not None else 'regular'} {operation.kind} {operation.op}"
