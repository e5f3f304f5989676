"""Whether what left one broker is what came to the next: all of it, once, in order.

Each end has written down what it saw. What was still on its way when the receiver was stopped is not missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from broker.protocol import wire
from broker.protocol.hops import Hop, broker_hop
from broker.protocol.wire import AnyMessage
from broker.recorded import Given, Put
from labctl.results.histories import Line
from labctl.simulate.recorded.nodes import Replayed
from labctl.simulate.recorded.reading import Recording


class Altered(Struct, frozen=True):
    """The first message of a link that came otherwise than it left."""

    source: str
    target: str
    number: int
    line: Line
    """Of its arrival."""
    left: AnyMessage | None
    """None: as many had not left."""
    came: AnyMessage


class Link(Struct, frozen=True):
    """One direction between two brokers."""

    source: str
    target: str
    messages: int
    altered: Altered | None


def compare(recordings: Sequence[Recording], replayed: Sequence[Replayed]) -> list[Link]:
    """Brokers that lived once; with another life numbers begin anew."""
    lives = [recording.node for recording in recordings]
    once: Mapping[str, tuple[Recording, Replayed]] = {
        pair[0].node: pair
        for pair in zip(recordings, replayed, strict=True)
        if lives.count(pair[0].node) == 1
    }
    return [
        _compare(once[source][0], *pair)
        for target, pair in once.items()
        for source in pair[0].made.neighbours
        if source in once
    ]


def _compare(source: Recording, target: Recording, replayed: Replayed) -> Link:
    left = _left(source, broker_hop(target.node))
    number = 0
    for line, came in _came(target, broker_hop(source.node), replayed.refused):
        number += 1
        sent = next(left, None)
        if sent is None or wire.encode(sent) != wire.encode(came):
            altered = Altered(source.node, target.node, number, line, sent, came)
            return Link(source.node, target.node, number - 1, altered)
    return Link(source.node, target.node, number, None)


def _left(source: Recording, hop: Hop) -> Iterator[AnyMessage]:
    for entry in source.entries:
        if isinstance(entry.what, Put) and entry.what.link == hop:
            yield from entry.what.all()


def _came(target: Recording, hop: Hop, refused: frozenset[int]) -> Iterator[tuple[Line, AnyMessage]]:
    for entry in target.entries:
        if isinstance(entry.what, Given) and entry.what.source == hop and entry.line.number not in refused:
            for message in entry.what.all():
                yield entry.line, message
