"""One order of all that the cores of a run were given, in which every message leaves before it arrives.

Each broker keeps its own order. Between two brokers their links decide: what came as the n-th message was given no
sooner than the n-th had got its number at the other end. Within this freedom the clocks of the brokers decide. Those of
one machine are one clock; where something arrived before it left they are not, and are set right by the
quickest messages both ways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from broker.protocol.hops import broker_hop, is_client, name_of
from broker.recorded import Given, Made, Put
from labctl.simulate.recorded.reading import Recording

Direction = tuple[str, str]


class CoreCall(Struct, frozen=True):
    """A call of a core."""

    node: str
    time: float
    """By the one clock."""
    given: Given


class Schedule(Struct, frozen=True):
    made: tuple[Made, ...]
    steps: tuple[CoreCall, ...]

    @property
    def links(self) -> tuple[Direction, ...]:
        return tuple((m.broker, n) for m in self.made for n in m.neighbours if m.broker < n)


def merge(recordings: Sequence[Recording]) -> Schedule:
    """Of a run that was reproduced, and in which every broker lived once."""
    offsets = _offsets(recordings)
    waiting = {recording.node: _Head(recording, offsets[recording.node]) for recording in recordings}
    left: Counter[Direction] = Counter()
    came: Counter[Direction] = Counter()
    steps: list[CoreCall] = []
    time = 0.0
    while waiting:
        ready = [head for head in waiting.values() if head.is_ready(left, came)]
        assert ready, "a run that was reproduced has an order"
        head = min(ready, key=lambda one: one.time)
        time = max(time, head.time)
        if isinstance(head.what, Put):
            left[head.node, name_of(head.what.link)] += head.what.count
        elif head.what is not None:
            came[name_of(head.what.source), head.node] += head.what.count
            steps.append(CoreCall(head.node, time, head.what))
        if not head.go_on():
            del waiting[head.node]
    return Schedule(tuple(recording.made for recording in recordings), tuple(steps))


class _Head:
    """How far one recording has been merged."""

    def __init__(self, recording: Recording, offset: float) -> None:
        self.node = recording.node
        self._offset = offset
        self._left = iter([(e.line.time, e.what) for e in recording.entries if e.what is not None])
        self.time = 0.0
        self.what: Given | Put | None = None

    def go_on(self) -> bool:
        time, self.what = next(self._left, (0.0, None))
        self.time = time - self._offset
        return self.what is not None

    def is_ready(self, left: Counter[Direction], came: Counter[Direction]) -> bool:
        if not _is_from_broker(self.what):
            return True
        assert isinstance(self.what, Given)
        link = (name_of(self.what.source), self.node)
        return left[link] >= came[link] + self.what.count


def _is_from_broker(what: Given | Put | None) -> bool:
    return isinstance(what, Given) and bool(what.source) and not is_client(what.source)


def _offsets(recordings: Sequence[Recording]) -> Mapping[str, float]:
    """How much the clock of each broker is ahead of the first one's."""
    trips = {
        (one.node, other.node): min(_trips(one, other), default=0.0)
        for one in recordings
        for other in recordings
        if other.node in one.made.neighbours
    }
    if min(trips.values(), default=0.0) >= 0:
        return {recording.node: 0.0 for recording in recordings}
    found = {recordings[0].node: 0.0}
    while len(found) < len(recordings):
        for (one, other), trip in trips.items():
            if one in found and other not in found:
                found[other] = found[one] + (trip - trips[other, one]) / 2
    return found


def _trips(source: Recording, target: Recording) -> Iterator[float]:
    """How long messages seem to have been on their way."""
    hop, way_back = broker_hop(target.node), broker_hop(source.node)
    left = (
        entry.line.time
        for entry in source.entries
        if isinstance(entry.what, Put) and entry.what.link == hop
        for _ in range(entry.what.count)
    )
    came = (
        entry.line.time
        for entry in target.entries
        if isinstance(entry.what, Given) and entry.what.source == way_back
        for _ in range(entry.what.count)
    )
    return (arrived - sent for sent, arrived in zip(left, came, strict=False))
