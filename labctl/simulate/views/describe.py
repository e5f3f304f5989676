"""Programs and messages as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from broker.core import Input
from broker.protocol.filters import Event, Filter, Interval, OneOf
from broker.protocol.hops import name_of
from labctl.simulate.programs.delays import DelayModel
from labctl.simulate.programs.programs import (
    LIFETIME_MS,
    UNLIMITED_BYTES,
    Conditions,
    Fault,
    Journals,
    Op,
    Program,
    Restart,
    TxProgram,
)

WORDS = {"crash": "crashes", "leave": "leaves", "away": "loses its connection for a while"}


def outline(program: Program) -> Iterator[str]:
    """All of a program, line by line."""
    links = ", ".join(f"{one} - {other}" for one, other in program.links)
    yield f"brokers    {', '.join(program.brokers)}" + (f"; links {links}" if links else "")
    yield f"clients    {', '.join(f'{client} at {home}' for client, home in program.homes.items())}"
    for client, op in program.setup:
        yield f"before     {client} {operation(op)}"
    for transaction in program.transactions:
        yield f"{milliseconds(transaction.start)}  {_transaction(transaction)}"
    for piece in program.regular:
        yield f"{milliseconds(piece.start)}  {piece.client}, regularly: {body(piece.body)}"
    for fault in program.faults:
        yield f"{milliseconds(fault.time)}  {_fault(fault)}"
    for cut in program.cuts:
        link = " - ".join(name_of(hop) for hop in cut.link.split(">"))
        again = f"; another one can be made after {1e3 * cut.seconds:.1f} ms" if cut.seconds else ""
        yield f"{milliseconds(cut.time)}  {link} loses its connection{again}"
    for restart in program.restarts:
        yield f"{milliseconds(restart.time)}  {_restart(restart)}"
    if program.journals is not None:
        yield f"journals   {_journals(program.journals)}"
    if program.window_bytes:
        yield f"links      carry frames; {program.window_bytes} bytes may be under way on each"
        if program.queue_bytes_max < UNLIMITED_BYTES:
            yield f"queues     a client for which {program.queue_bytes_max} bytes wait is thrown out"
    yield from _conditions(program.conditions)
    if program.delays != DelayModel():
        yield f"delays     {program.delays}"
    pairs = {frozenset(pair) for pair in (*program.links, *program.homes.items())}
    for link, mean_ms in sorted(program.slowness.items()):
        source, target = (name_of(hop) for hop in link.split(">"))
        if frozenset((source, target)) not in pairs:
            continue  # drawn for a link that is not there
        yield f"delay      {source} -> {target} {mean_ms:.2f} ms in the mean"


def _conditions(conditions: Conditions) -> Iterator[str]:
    usual = Conditions()
    if conditions.overlap != usual.overlap:
        yield f"overlap    of filters: {conditions.overlap} of their attributes"
    for broker, clock in conditions.clocks.items():
        yield f"clock      of {broker}: {clock.offset_s:+.3f} s, {clock.rate:.4f} times as fast"
    for name, value in msgspec.structs.asdict(conditions.limits).items():
        if value != getattr(usual.limits, name):
            yield f"limit      {name} {value}"
    if conditions.expire_s != usual.expire_s:
        yield f"time-outs  are looked for every {1e3 * conditions.expire_s:.0f} ms"


def _transaction(transaction: TxProgram) -> str:
    end = "" if transaction.aborts_after < 0 else f"; aborts after {transaction.aborts_after} of them"
    if transaction.lifetime_ms != LIFETIME_MS:
        end += f"; lives for {transaction.lifetime_ms} ms"
    return f"{transaction.coordinator}, {transaction.protocol}: {body(transaction.body)}{end}"


def _fault(fault: Fault) -> str:
    lost = f", and its last {fault.lost} messages with it" if fault.lost and fault.kind == "crash" else ""
    back = f"; it comes back after {1e3 * fault.back_after:.1f} ms" if fault.back_after else ""
    where = f" at {fault.back_at}" if fault.back_at else ""
    return f"{fault.client} {WORDS[fault.kind]}{lost}{back}{where}"


def _restart(restart: Restart) -> str:
    what = {"crash": "crashes with its machine", "kill": "is killed", "fail": "stops by an error of its disk"}
    where = f" at operation {restart.operations} of its disk from then on" if restart.operations else ""
    again = f", which it stops once more, at operation {restart.again}" if restart.again else ""
    clock = f"; its clock is {restart.behind_s:.0f} s behind then" if restart.behind_s else ""
    pause = f"; it recovers after {1e3 * restart.pause_s:.1f} ms{again}"
    return f"{restart.broker} {what[restart.kind]}{where}{pause}{clock}"


def _journals(journals: Journals) -> str:
    synced = (
        f"synced after up to {1e3 * journals.sync_s:.0f} ms in the mean"
        if journals.sync_s
        else "synced at once"
    )
    return (
        f"are {synced}; at {journals.snapshots:.0%} of all rests a snapshot is begun;"
        f" clients are waited for {1e3 * journals.grace_s:.0f} ms"
    )


def body(operations: Iterable[Op]) -> str:
    return "; ".join(operation(op) for op in operations) or "nothing"


def operation(op: Op) -> str:
    values = ",".join(str(value) for value in op.values)
    what = f"to {op.to}" if op.to else f"{op.space}={values}"
    nested = " / ".join(f"{client}: {body(reaction)}" for client, reaction in op.nested)
    return f"{op.kind} {what}" + (f" [{nested}]" if nested else "")


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:8.3f}"


def message(sent: Input) -> str:
    """One line: its type, its transaction, and what it is about."""
    parts = [type(sent).__name__]
    planned = getattr(sent, "planned", None)
    if planned is not None:
        parts += [sent.tx, f"{planned.step}", planned.kind]  # type: ignore[union-attr]
        parts.append(f"to {planned.target}" if planned.target else _about(planned))
        return " ".join(part for part in parts if part)
    for name in ("tx", "mode", "kind"):
        parts.append(str(getattr(sent, name, "")))
    parts.append(_about(sent))
    for name, word in (
        ("client", "of "),
        ("reached", "reached "),
        ("steps", "steps "),
        ("reason", "because "),
    ):
        value = getattr(sent, name, None)
        if value:
            parts.append(f"{word}{value}")
    return " ".join(part for part in parts if part)


def _about(thing: object) -> str:
    filter_, event = getattr(thing, "filter", None), getattr(thing, "event", None)
    if isinstance(filter_, Filter):
        return _filter(filter_)
    return _event(event) if event is not None else ""


def _filter(filter_: Filter) -> str:
    return " ".join(f"{name}={_predicate(value)}" for name, value in filter_.as_mapping().items())


def _event(event: Event) -> str:
    return " ".join(f"{name}={value}" for name, value in event.items())


def _predicate(predicate: object) -> str:
    if isinstance(predicate, OneOf):
        return ",".join(str(value) for value in predicate.values)
    if isinstance(predicate, Interval):
        low, high = ("" if end is None else str(end) for end in (predicate.low, predicate.high))
        return f"{low}..{high}"
    return str(predicate)
