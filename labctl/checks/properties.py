"""The properties of Definitions 3.1 to 3.4, decided from a history and from the tables at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from broker.matching.boxes import contains
from broker.protocol.filters import Event, Filter, Overlap, overlaps
from broker.protocol.hops import Hop, broker_hop
from labctl.checks import answers, beside, order, serial
from labctl.checks.anomalies import told
from labctl.checks.cycles import follows_time
from labctl.checks.history import History, Operation, Transaction, is_before
from labctl.checks.spaces import is_in_at_end, spaces_of
from labctl.checks.verdict import Verdict

CONFLICT = ("a conflict", "it comes too late", "its client has changed the same since")
"""Why brokers abort a transaction that nobody was to blame for: for its place in the order,"""
SAME_CLIENT = CONFLICT[-1]
TIME = ("its lifetime is over", "its coordinator knew the votes and did not decide")
"""and because it has taken too long."""
REMEMBERED = 200
"""So many committed transactions brokers remember at least: of more, one with a smaller key is late."""

Route = Callable[[str, Event, Hop], Iterable[Hop]]
"""Where a broker would send an event that came from a hop."""


def _verdict(name: str, checked: int, faults: Sequence[str], anomalies: Sequence[str] = ()) -> Verdict:
    answer = "invalid" if faults else "valid" if checked else "unknown"
    return Verdict(name, answer, checked, tuple(faults), tuple(anomalies))  # type: ignore[arg-type]


def atomicity(history: History, brokers: Sequence[str]) -> Verdict:
    """All effects or none: one outcome everywhere, nothing of an aborted transaction, nothing twice."""
    faults: list[str] = []
    for t in history.transactions.values():
        if t.committed_at and t.aborted_at:
            faults.append(
                f"{t.tx} committed at {sorted(t.committed_at)} and aborted at {sorted(t.aborted_at)}"
            )
        elif t.committed_at and t.committed_at != set(brokers):
            faults.append(f"{t.tx} committed at {sorted(t.committed_at)} and not everywhere")
        told = {outcome for client, outcome in t.ends.items() if client not in history.gone} - {"unknown"}
        if ("aborted" in told and t.committed_at) or ("committed" in told and not t.committed_at):
            faults.append(f"{t.tx}: clients were told {t.ends}, brokers say otherwise")
        if t.is_safe and t.voids and t.committed_at:
            faults.append(f"{t.tx} has committed although not all of its steps can have come")
        if t.outcome == "unknown" and not t.voids and not history.gone:
            faults.append(f"{t.tx}: outcome unknown without a reason: {t.reason}")
    counts = Counter((d.client, d.tx, d.op) for d in history.deliveries if d.tx)
    for (client, tx, op), times in counts.items():
        if times > 1:
            faults.append(f"{tx} {op} was delivered to {client} {times} times")
        if not history.transactions[tx].committed_at:
            faults.append(f"{tx} {op} was delivered to {client}, and the transaction has not committed")
    return _verdict("atomicity", len(history.transactions), faults)


def consistency(history: History) -> Verdict:
    """Definition 3.4, by what each broker processed, by the order of deliveries, and by each client's own order."""
    faults, checked = order.faults_of(history)
    for broker, processed in history.processed.items():
        seen: dict[str, list[Operation]] = {}
        for tx, op in processed:
            transaction = history.transactions[tx]
            operation = transaction.operations.get(op)
            if operation is None:
                continue
            for earlier in seen.setdefault(tx, []):
                checked += 1
                if is_before(operation, earlier) and not (
                    transaction.is_planned and _may_overtake(history, broker, transaction, earlier, operation)
                ):
                    faults.append(f"{broker} processed {_name(tx, earlier)} before {_name(tx, operation)}")
            seen[tx].append(operation)
    received: dict[tuple[str, str], list[Operation]] = {}
    for delivery in history.deliveries:
        operation = history.transactions[delivery.tx].operations.get(delivery.op) if delivery.tx else None
        if operation is None:
            continue
        for earlier in received.setdefault((delivery.client, delivery.tx), []):
            checked += 1
            if is_before(operation, earlier):
                faults.append(f"{delivery.client} got {_name(delivery.tx, earlier)} before {operation.op}")
        received[delivery.client, delivery.tx].append(operation)
    return _verdict("consistency", checked, faults)


def _may_overtake(
    history: History, broker: str, transaction: Transaction, one: Operation, other: Operation
) -> bool:
    """Whether a broker may process a step of a plan before an earlier one: where nobody can observe it.

    Advertisements are never held back, publications of clients elsewhere not waited for; nor is a subscription
    that only a later advertisement has made due here. Of whoever is gone nothing can be told.
    """
    if transaction.voids or history.gone or one.kind in ("adv", "uadv"):
        return True
    if history.homes.get(other.client) == broker or other.filter is None:
        return history.homes.get(other.client) != broker
    changes = [o for client in history.regular.values() for o in client]
    changes += [o for t in history.transactions.values() for o in t.operations.values()]
    return other.kind in ("sub", "usub") and any(
        o.kind in ("adv", "uadv") and o.filter is not None and overlaps(o.filter, other.filter, "any")
        for o in changes
    )


def _name(tx: str, operation: Operation) -> str:
    return f"{tx} {operation.kind} {operation.op} of {operation.client}"


def serializability(history: History) -> Verdict:
    """D-TX: the order of the keys explains every delivery, and is, where it shows, that of time."""
    ordered = history.ordered()
    faults, checked = serial.faults_of(history, ordered)
    if faults or not follows_time(ordered):
        faults += told(history, ordered, do_keys_explain=not faults)
    return _verdict("serializability", checked, faults)


def recipients(history: History) -> Verdict:
    """S-TX and D-TX_NI: exact on disjoint spaces; on others what went wrong is told, not judged.

    Regular publications: exact for clients that nothing has moved.
    """
    anomalies: list[str] = []
    faults, checked = beside.regular_faults(history)
    faults += beside.unadvertised(history)
    for transaction in history.transactions.values():
        if transaction.is_isolated or not transaction.committed or transaction.voids:
            continue
        for operation in transaction.operations.values():
            if operation.kind == "pub" and not _may_be_partial(history, transaction, operation):
                checked += 1
                expected = serial.expect(history, transaction, operation, {})
                faults += serial.compare(operation, expected, transaction)
                anomalies += _anomalies(history, transaction, operation, expected)
    return _verdict("recipients", checked, faults, anomalies)


def _may_be_partial(history: History, transaction: Transaction, operation: Operation) -> bool:
    """Whether its publisher has left a fast plan, and with it the advertisement that subscriptions followed (H12)."""
    if operation.client not in history.gone or not transaction.is_planned or transaction.is_safe:
        return False
    assert operation.event is not None
    entries = spaces_of(history).advertisements(operation.client, operation.event)
    return any(entry.transaction is transaction for entry in entries)


def _anomalies(
    history: History, transaction: Transaction, operation: Operation, expected: serial.Expectation
) -> list[str]:
    """What no order of the transactions that share its space explains."""
    event = operation.event
    assert event is not None
    sharing = [t for t in spaces_of(history).subscribing(event) if t is not transaction and t.committed]
    if not sharing or len(sharing) > 4 or serial.is_path_open(history, transaction, operation):
        return []
    entries = spaces_of(history).subscriptions(event)
    known = {
        c for c in expected.open - history.gone if not any(entry.is_beside for entry in entries.get(c, ()))
    }
    best: list[str] | None = None
    for chosen in range(1 << len(sharing)):
        before = [t for place, t in enumerate(sharing) if chosen >> place & 1]
        places = {t.tx: place for place, t in enumerate([*before, transaction])}
        text = []
        for client in sorted(known):
            wanted = serial.is_in(entries.get(client, ()), transaction, operation, places)
            if wanted != (client in operation.receivers):
                what = "missed by" if wanted else "wrong recipient"
                text.append(f"{transaction.tx} {operation.op} {event}: {what} {client}")
        if best is None or len(text) < len(best):
            best = text
    return best or []


def convergence(history: History, route: Route, probes: Sequence[Event]) -> Verdict:
    """At the end every event goes from its publisher to exactly the clients whose committed space has it."""
    faults: list[str] = []
    checked = 0
    clients = [c for c in history.homes if c not in history.gone]
    spaces = spaces_of(history)
    for event in probes:
        subscriptions = spaces.subscriptions(event)
        wanting = {c for c in clients if is_in_at_end(subscriptions.get(c, ()))}
        for publisher in clients:
            if not is_in_at_end(spaces.advertisements(publisher, event)):
                continue
            checked += 1
            vain: list[str] = []
            ids = _walk(history.homes[publisher], history.hop_of(publisher), event, route, vain)
            reached = {history.lives.get(id_, id_) for id_ in ids}
            if reached != wanting - {publisher}:
                missed, wrong = sorted(wanting - {publisher} - reached), sorted(reached - wanting)
                faults.append(f"{event} of {publisher} would miss {missed} and wrongly reach {wrong}")
            faults += [f"{event} of {publisher} would go to {broker} in vain" for broker in vain]
    return _verdict("convergence", checked, faults)


def _walk(broker: str, source: Hop, event: Event, route: Route, vain: list[str]) -> set[str]:
    """Who is reached; `vain` gets the brokers behind which nobody is."""
    reached: set[str] = set()
    for hop in route(broker, event, source):
        role, _, name = hop.partition(":")
        if role == "client":
            reached.add(name)
        else:
            behind = _walk(name, broker_hop(broker), event, route, vain)
            if not behind:
                vain.append(name)
            reached |= behind
    return reached


def answers_given(history: History, brokers: Sequence[str], told: Mapping[str, str] | None = None) -> Verdict:
    """What clients are told is right, and not told before it is; `told`: where the simulator has listened."""
    faults = [*answers.faults_of(history, brokers), *answers.false_words(history, told or {})]
    return _verdict("answers", answers.told(history), faults)


def last_act(history: History, words: Sequence[beside.LastWord], brokers: Sequence[str]) -> Verdict:
    """When all is over, what clients publish is let through exactly if they advertise it, and reaches exactly whom
    it should."""
    return _verdict("last act", len(words), tuple(beside.last_faults(history, words, brokers)))


def liveness(
    history: History, left: Sequence[str], overlap: Overlap = "any", is_patient: bool = False
) -> Verdict:
    """Every transaction ends, nothing of it stays, and whoever conflicts with nobody and loses nobody commits.

    `left` is what did stay; `is_patient`: no delay was so long that a lifetime could end by it.
    """
    faults = list(left)
    by_order = (*CONFLICT, *TIME) if is_patient else CONFLICT
    for t in history.transactions.values():
        if t.coordinator and t.coordinator not in history.gone and not t.outcome:
            faults.append(f"{t.tx} of {t.coordinator} never ended")
        if t.reason.endswith("is gone") and t.began >= 0 and not history.gone:
            faults.append(f"{t.tx} was {t.outcome} because {t.reason}, and nobody is")
        by_brokers = t.outcome == "aborted" and t.reason.startswith(by_order)
        if by_brokers and not _is_disturbed(history, t, overlap):
            faults.append(f"{t.tx} was in nobody's way, and was aborted: {t.reason}")
        elif by_brokers and _is_alone(history, t):
            faults.append(f"{t.tx} ran alone and was aborted: {t.reason}")
    return _verdict("liveness", len(history.transactions), faults)


def _is_alone(history: History, transaction: Transaction) -> bool:
    """Whether all others had ended before it began, everywhere, or began when it had ended."""
    if history.gone or transaction.began < 0:
        return False
    others = [t for t in history.transactions.values() if t is not transaction]
    if any(t.began < transaction.ended and (t.ended < 0 or t.ended > transaction.began) for t in others):
        return False
    return not any(history.regular.values())


def _is_disturbed(history: History, transaction: Transaction, overlap: Overlap) -> bool:
    """Whether it has lost somebody, or another reads or writes what it writes, or writes what it reads.

    Whatever is not before all transactions counts, whenever it was: a broker may hear of it late. And what a client
    that is gone had done, which goes with it.
    """
    operations = transaction.operations.values()
    members = {o.client for o in operations} | {c for o in operations for c in o.receivers}
    if history.gone & (members | {transaction.coordinator}) or len(history.ordered()) > REMEMBERED:
        return True
    others = [o for client in history.regular.values() for o in client if o.kind != "pub"]
    others += [o for client in history.gone for o in history.setup.get(client, ())]
    others += [
        o for t in history.transactions.values() if t is not transaction for o in t.operations.values()
    ]
    writers = {o.client for o in operations if o.filter is not None}
    if transaction.reason.startswith(SAME_CLIENT) and any(o.client in writers for o in others):
        return True
    reads, writes = _touched(history, operations, overlap)
    if not reads and not writes:
        return False
    other_reads, other_writes = _touched(history, others, overlap)
    return (
        any(overlaps(one, other, overlap) for one in writes for other in other_writes)
        or any(contains(filter_, event) for filter_ in other_writes for event in reads)
        or any(contains(filter_, event) for filter_ in writes for event in other_reads)
    )


def _touched(
    history: History, operations: Iterable[Operation], overlap: Overlap
) -> tuple[list[Event], list[Filter]]:
    """What operations read and write; an advertisement passes on all subscriptions that it overlaps."""
    reads: list[Event] = []
    writes: dict[Filter, None] = {}
    for operation in operations:
        if operation.event is not None:
            reads.append(operation.event)
        elif operation.filter is not None:
            writes[operation.filter] = None
            if operation.kind == "adv":
                for filter_ in spaces_of(history).subscribed:
                    if overlaps(filter_, operation.filter, overlap):
                        writes[filter_] = None
    return reads, list(writes)
