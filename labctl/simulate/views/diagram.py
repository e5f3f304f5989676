"""A schedule as a space-time diagram: one column for each node, time downwards, an arrow for each message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from broker.protocol import events
from broker.protocol.hops import is_client, name_of
from labctl.simulate.programs.programs import Program
from labctl.simulate.recorded.world import RecordedWorld
from labctl.simulate.views.describe import message
from labctl.simulate.world import Passage, SimMoment, World

DRAWN_WIDTH_MAX = 72
"""Wider than this the columns would push the text off the screen: then it is told in words alone."""

TOLD = frozenset(
    {
        events.VOTED,
        events.COMMITTED,
        events.ABORTED,
        events.ENDED,
        events.DELIVERED,
        events.CRASHED,
        events.LEFT,
        events.STEPS_VOID,
    }
)


Drawn = World | RecordedWorld


class DiagramRow(NamedTuple):
    """Something between two nodes, or at one of them (then `source` is empty)."""

    time: float
    source: str
    target: str
    text: str


def diagram(world: Drawn, program: Program) -> list[str]:
    """Of a world that kept its traces: a head line, and a line for each thing that happened."""
    lines = sorted([*_passages(world), *_moments(world.moments)], key=lambda line: line.time)
    start = min((line.time for line in lines), default=0.0)
    columns = order(program)
    width = max(map(len, columns)) + 1
    is_drawn = width * len(columns) <= DRAWN_WIDTH_MAX
    head = "".join(column.ljust(width) for column in columns) if is_drawn else ""
    drawn = [f"{'ms':>9}  {head} what arrives".rstrip()]
    for line in lines:
        picture = draw(columns, width, line.source, line.target) if is_drawn else ""
        drawn.append(f"{1e3 * (line.time - start):9.3f}  {picture} {line.text}".rstrip())
    return drawn


def order(program: Program) -> list[str]:
    """Nodes from left to right: along the tree, clients beside their broker, so that arrows are short."""
    near: dict[str, list[str]] = {broker: [] for broker in program.brokers}
    for one, other in program.links:
        near[one].append(other)
        near[other].append(one)
    found: list[str] = []

    def visit(broker: str, above: str) -> None:
        below = [name for name in near[broker] if name != above]
        guests = [client for client, home in program.homes.items() if home == broker]
        half = len(below) // 2
        for name in below[:half]:
            visit(name, broker)
        found.extend((broker, *guests))
        for name in below[half:]:
            visit(name, broker)

    visit(program.brokers[0], "")
    return found


def draw(columns: Sequence[str], width: int, source: str, target: str) -> str:
    """The row of one arrow: `o` where it left, its head where it arrived; `*` for what happens at a node."""
    cells = list(("|" + " " * (width - 1)) * len(columns))
    places: Mapping[str, int] = {name: width * place for place, name in enumerate(columns)}
    end = places[target]
    if not source:
        cells[end] = "*"
        return "".join(cells)
    start = places[source]
    low, high = min(start, end), max(start, end)
    for place in range(low + 1, high):
        cells[place] = "-"
    cells[start], cells[end] = "o", "|"
    if start < end:
        cells[end - 1] = ">"
    else:
        cells[end + 1] = "<"
    return "".join(cells)


def _passages(world: Drawn) -> Iterator[DiagramRow]:
    ends = {m.node: m.time for m in world.moments if m.name in (events.CRASHED, events.LEFT)}
    for passage in world.passages:
        source, target = name_of(passage.source), name_of(passage.target)
        lost = "" if _is_heard(world, passage, ends) else "  (lost)"
        text = f"{source} -> {target}  {message(passage.message)}{lost}"
        yield DiagramRow(passage.arrived, source, target, text)


def _is_heard(world: Drawn, passage: Passage, ends: Mapping[str, float]) -> bool:
    if is_client(passage.target):
        return passage.arrived <= ends.get(name_of(passage.target), passage.arrived)
    if is_client(passage.source):
        client = world.clients.get(name_of(passage.source))
        return client is None or passage.number <= client.heard_until
    return True


def _moments(moments: Iterable[SimMoment]) -> Iterator[DiagramRow]:
    for moment in moments:
        if moment.name in TOLD:
            yield DiagramRow(moment.time, "", moment.node, f"{moment.node}: {_words(moment)}")


def _words(moment: SimMoment) -> str:
    fields = moment.fields
    tx = f" {fields['tx']}" if fields.get("tx") else ""
    reason = f" because {fields['reason']}" if fields.get("reason") else ""
    if moment.name == events.VOTED:
        return f"votes {'yes' if fields['yes'] else 'no'} on{tx}{reason}"
    if moment.name == events.ENDED:
        return f"knows that{tx} has {fields['outcome']}{reason}".replace(
            "has unknown", "has an unknown outcome"
        )
    if moment.name == events.DELIVERED:
        event = " ".join(f"{name}={value}" for name, value in fields["event"].items())
        return f"is handed {event}" + (f" of{tx}" if tx else "")
    if moment.name == events.STEPS_VOID:
        return f"does not wait for steps {fields['steps']} of{tx}{reason}"
    return f"{moment.name}{tx}{reason}"
