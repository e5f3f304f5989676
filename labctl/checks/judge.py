"""The checks on what real nodes have told: each has its own order, and no clock joins them.

What the simulator knows and a real run does not is taken from the nodes' own words: a client is *gone*
unless it said "finished" (all that it was in had ended) before it left, or its history just ends. Of a
client that is gone nothing is claimed; the last lines of one that was killed are lost with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from broker.matching.records import Record
from broker.protocol import events
from broker.protocol.filters import Event, Filter, Interval, OneOf, Predicate, Value
from broker.protocol.hops import Hop, broker_hop, client_hop, name_of
from broker.routing.prt import PRT
from labctl.checks import properties
from labctl.checks.history import History, read
from labctl.checks.verdict import Verdict
from labctl.results.histories import Line, NodeHistory, Result

PROBES_MAX = 400


def judge(result: Result) -> list[Verdict]:
    history = understand(result)
    left = list(residue(result))
    verdicts = [
        properties.atomicity(history, result.brokers),
        properties.answers_given(history, result.brokers),
        properties.consistency(history),
        properties.serializability(history),
        properties.recipients(history),
        _convergence(history, result),
        properties.liveness(history, left),
        links(result),
    ]
    return [_doubted(verdict, result) for verdict in verdicts]


def _doubted(verdict: Verdict, result: Result) -> Verdict:
    """What is missing may have shown a fault, and its absence may look like one."""
    return replace(verdict, answer="unknown") if result.gaps else verdict


def understand(result: Result) -> History:
    """The history, as the properties want it; transactions have no place in a common time."""
    lines = [*result.lines(), *_ends(result)]
    # What was received can be told only when it is known what was issued, perhaps in a later file. It could then
    # not be told which life of a client received it: one that was gone once counts as gone, also if it came back.
    later, first = (events.DELIVERED, events.RECEIVED), events.CONNECTED
    others = [line for line in lines if line.name != first and line.name not in later]
    history = read(
        [
            *(line for line in lines if line.name == first),
            *(line for line in others if not _is_farewell(result, line)),
            *(line for line in lines if line.name in later),
        ]
    )
    for transaction in history.transactions.values():
        transaction.began = transaction.ended = -1
    return history


def _finished(file: NodeHistory) -> bool:
    return any(line.name == events.FINISHED for line in file.lines)


def _is_farewell(result: Result, line: Line) -> bool:
    """A client that leaves when all is over is not gone."""
    if line.name not in (events.LEFT, events.CRASHED):
        return False
    return all(_finished(file) for file in result.files if file.node == line.node)


def has_last_word(file: NodeHistory) -> bool:
    """Whether a client has said how it ended."""
    return any(line.name in (events.LEFT, events.CRASHED, events.FINISHED) for line in file.lines)


def _ends(result: Result) -> Iterator[Line]:
    """A word for clients that could not say it themselves."""
    for file in result.files:
        if file.role == "client" and not has_last_word(file):
            reason = "its history just ends"
            yield Line(file.node, len(file.lines) + 1, 0.0, events.CRASHED, {"reason": reason})


# What the brokers have at the end


def residue(result: Result) -> Iterator[str]:
    """What is left of transactions."""
    for broker, tables in result.tables.items():
        for kind in ("transactions", "decided", "plans"):
            for row in tables["open"][kind]:
                yield f"{broker} still has {row['tx']}: {msgspec.json.encode(row).decode()}"
        for row in (*tables["srt"], *tables["prt"]):
            if row["tag"]:
                yield f"{broker} still has a record of {row['tag']}"


def _convergence(history: History, result: Result) -> Verdict:
    if {*result.tables} != {*result.brokers}:
        return Verdict("convergence", "unknown", 0)
    here = {row["client"] for rows in result.tables.values() for row in rows["crt"]}
    silent = {line.node for line in _ends(result)} | (here - {file.node for file in result.files})
    """Nobody knows what they had asked for at the end."""
    tables = {
        broker: _prt([row for row in rows["prt"] if row["client"] not in silent])
        for broker, rows in result.tables.items()
    }
    here -= silent
    then = replace(history, gone={client for client in history.homes if client not in here})

    def route(broker: str, event: Event, source: Hop) -> Iterable[Hop]:
        return [hop for hop in tables[broker].index.hops(event) if hop != source]

    return properties.convergence(then, route, probes(history))


def _prt(rows: Sequence[dict[str, Any]]) -> PRT:
    table = PRT("all")
    for row in rows:
        (epoch, tx), class_, incarnation, number = row["stamp"]
        names = tuple(sorted(row["filter"]))
        predicates = tuple(msgspec.convert(row["filter"][name], Predicate) for name in names)
        stamp = ((epoch, tx), class_, incarnation, number)
        table.add(Record(row["kind"], row["client"], stamp, Filter(names, predicates)), row["hop"])
    return table


def probes(history: History) -> list[Event]:
    """Events of the run, and one inside each filter: at most so many, spread over the run."""
    found: dict[str, Event] = {}
    operations = [
        o for table in (history.setup, history.regular) for client in table.values() for o in client
    ]
    operations += [o for t in history.transactions.values() for o in t.operations.values()]
    for operation in operations:
        event = operation.event or (_inside(operation.filter) if operation.filter is not None else None)
        if event:
            found.setdefault(repr(sorted(event.items())), event)
    values = list(found.values())
    return values[:: max(1, len(values) // PROBES_MAX)]


def _inside(filter_: Filter) -> Event:
    return {name: _value(predicate) for name, predicate in filter_.as_mapping().items()}


def _value(predicate: Predicate) -> Value:
    if isinstance(predicate, OneOf):
        return predicate.values[0]
    if not isinstance(predicate, Interval):
        return predicate
    low, high = predicate.low, predicate.high
    if isinstance(low, str) or isinstance(high, str):
        return (f"{low}~" if predicate.low_open else low) if low is not None else ""
    if low is None and high is None:
        return 0
    if low is None or high is None:
        return high - 1 if low is None else low + 1  # type: ignore[operator]
    return (low + high) / 2 if predicate.low_open else low


# Links


def links(result: Result) -> Verdict:
    """Messages of transactions arrive as they were sent: in order, none of them doubled, changed or left out."""
    lives: dict[str, list[NodeHistory]] = {}
    for file in result.files:
        lives.setdefault(file.node, []).append(file)
    hops = {n: broker_hop(n) if f[0].role == "broker" else client_hop(n) for n, f in lives.items()}
    sent: dict[tuple[Hop, Hop], dict[int, tuple[Any, ...]]] = {}
    arrived: dict[tuple[Hop, Hop], list[tuple[int, tuple[Any, ...]]]] = {}
    checked, faults = 0, []
    for line in result.lines():
        if line.name in (events.SENT, events.ARRIVED):
            other, number = line.fields["link"], line.fields["seq"]
            what = (line.fields["message"], line.fields["tx"], line.fields.get("op"))
            if line.name == events.SENT:
                sent.setdefault((hops[line.node], other), {})[number] = what
            else:
                arrived.setdefault((other, hops[line.node]), []).append((number, what))
    for (source, target), messages in arrived.items():
        if len(lives.get(name_of(source), ())) != 1 or len(lives.get(name_of(target), ())) != 1:
            continue  # numbers begin anew with each life, and of one that is not here nothing is known
        told = sent.get((source, target), {})
        is_cut_off = _is_cut_off(lives[name_of(source)][0])
        checked += len(messages)
        faults += [f"{source} to {target}: {text}" for text in _link_faults(told, messages, is_cut_off)]
    return Verdict(
        "links", "invalid" if faults else "valid" if checked else "unknown", checked, tuple(faults)
    )


def _is_cut_off(file: NodeHistory) -> bool:
    """Its last lines may be lost."""
    return file.role == "client" and not any(
        line.name in (events.LEFT, events.CRASHED) for line in file.lines
    )


def _link_faults(
    sent: dict[int, tuple[Any, ...]], arrived: Sequence[tuple[int, tuple[Any, ...]]], is_cut_off: bool
) -> Iterator[str]:
    last = 0
    for number, what in arrived:
        if number <= last:
            yield f"message {number} came after {last}"
        last = max(last, number)
        if sent.get(number, what if is_cut_off else None) != what:
            yield f"message {number} was {sent.get(number)} and arrived as {what}"
    came = {number for number, _ in arrived}
    for number, what in sent.items():
        if number < last and number not in came:
            yield f"message {number}, {what}, was left out"
