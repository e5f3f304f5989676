"""Whether what left one broker is what came to the next: all of it, once, in order.

Each end has written down what it saw. What was still on its way when the receiver was stopped is not missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from broker.protocol import wire
from broker.protocol.hops import Hop, broker_hop
from broker.protocol.wire import AnyMessage
from broker.recorded import Given, Put
from labctl.results.histories import Line
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


class LinkReplay(Struct, frozen=True):
    """One direction between two brokers."""

    source: str
    target: str
    messages: int
    altered: Altered | None


def compare(recordings: Sequence[Recording]) -> list[LinkReplay]:
    """Brokers that lived once; with another life numbers begin anew."""
    lives = Counter(recording.node for recording in recordings)
    once = {recording.node: recording for recording in recordings if lives[recording.node] == 1}
    return [
        _compare(once[source], target)
        for target in once.values()
        for source in target.made.neighbours
        if source in once
    ]


def _compare(source: Recording, target: Recording) -> LinkReplay:
    left = _left(source, broker_hop(target.node))
    number = 0
    for line, came in _came(target, broker_hop(source.node)):
        number += 1
        sent = next(left, None)
        if sent is None or wire.encode(sent) != wire.encode(came):
            altered = Altered(source.node, target.node, number, line, sent, came)
            return LinkReplay(source.node, target.node, number - 1, altered)
    return LinkReplay(source.node, target.node, number, None)


def _left(source: Recording, hop: Hop) -> Iterator[AnyMessage]:
    for entry in source.entries:
        if isinstance(entry.what, Put) and entry.what.link == hop:
            yield from entry.what.all()


def _came(target: Recording, hop: Hop) -> Iterator[tuple[Line, AnyMessage]]:
    for entry in target.entries:
        if isinstance(entry.what, Given) and entry.what.source == hop:
            for message in entry.what.all():
                yield entry.line, message
