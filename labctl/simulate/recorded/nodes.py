"""Each broker's core through its own arrivals, in the order in which they came to it.

The core is pure: given the same, it answers the same. So where its node did otherwise than the core says, that is the
work of what stands around the core: the server, its links, its timers. Two things are compared, each in its order: on
each link what got a number there with what the core sends, and what the node told with what the core tells.

What a client has not been sent when it is gone is not missed.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from broker.protocol import events, wire
from broker.protocol.hops import Hop, broker_hop, client_hop
from broker.protocol.messages import Publish
from broker.protocol.wire import AnyMessage
from broker.recorded import Given, Put
from broker.routing.joining import ClientArrived, ClientGone
from broker.routing.ready import Notice, ProtocolError, Ready
from labctl.results.histories import Line
from labctl.simulate.recorded.reading import Recording

LOOK_S_MAX = 10.0
"""Twice a second is due (`Broker.expire`); a machine that stands still for a while has no fault yet."""
Life = tuple[Hop, int]
"""A link, and which of those to this hop."""


class Told(Struct, frozen=True):
    """What is told, as a history keeps it."""

    name: str
    fields: Mapping[str, Any]


class Deviation(Struct, frozen=True):
    """The first thing that a node did otherwise than its core."""

    node: str
    line: Line
    """Where it was noticed: the line of what the node did or, if that is missing, of what should have led to it."""
    link: Hop
    """To whom; empty for what is told."""
    number: int
    """On the link; 0 for what is told."""
    expected: AnyMessage | Told | None
    """None: nothing."""
    actual: AnyMessage | Told | None


class Late(Struct, frozen=True):
    """A node did not look at its open transactions, though its timer should have seen to it."""

    node: str
    line: Line
    """What came to it then."""
    seconds: float


class Replayed(Struct, frozen=True):
    """What came of one life of a broker."""

    node: str
    arrivals: int
    messages: int
    """Sent, and the same as the core's."""
    told: int
    lost: int
    """Connections."""
    difference: Deviation | Late | None

    @property
    def is_reproduced(self) -> bool:
        return self.difference is None


def replay(recording: Recording) -> Replayed:
    return _Node(recording).run()


class _Owed(Struct, frozen=True):
    """What a node must do, and the line of what leads to it."""

    because: Line
    what: AnyMessage | Told


class _Different(Exception):
    def __init__(self, difference: Deviation | Late) -> None:
        self.difference = difference


class _Node:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._node = recording.node
        self._core = recording.made.core()
        self._lives: Counter[Hop] = Counter()
        self._open: dict[Hop, int] = {}
        """The links that are there; what goes to nobody is not sent."""
        for neighbour in recording.made.neighbours:
            self._arrive(broker_hop(neighbour))
        self._owed: defaultdict[Life, deque[_Owed]] = defaultdict(deque)
        self._numbers: Counter[Life] = Counter()
        self._untold: deque[_Owed] = deque()
        self._looked: float | None = None
        """When it last looked at its open transactions, or the first of them began; None: it has none."""
        self._arrivals = self._messages = self._told = 0

    def run(self) -> Replayed:
        difference = None
        try:
            for entry in self._recording.entries:
                if isinstance(entry.what, Given):
                    self._give(entry.line, entry.what)
                elif isinstance(entry.what, Put):
                    self._compare_put(entry.line, entry.what)
                else:
                    self._compare_told(entry.line)
            self._compare_end()
        except _Different as found:
            difference = found.difference
        lost = len(self._recording.lost)
        return Replayed(self._node, self._arrivals, self._messages, self._told, lost, difference)

    # What the core does

    def _give(self, line: Line, given: Given) -> None:
        if self._looked is not None and line.time - self._looked > LOOK_S_MAX:
            raise _Different(Late(self._node, line, line.time - self._looked))
        self._arrivals += max(1, given.count)
        if given.client == ClientArrived.__name__:
            self._arrive(given.source)
        elif given.client == ClientGone.__name__:
            self._open.pop(given.source, None)
        try:
            ready = given.put_to(self._core)
        except ProtocolError:
            return  # the source was cut off, there as here
        self._owe(line, ready)
        if not self._core.has_open_transactions:
            self._looked = None
        elif self._looked is None or given.act == "expire":
            self._looked = line.time

    def _arrive(self, hop: Hop) -> None:
        self._lives[hop] += 1
        self._open[hop] = self._lives[hop]

    def _owe(self, line: Line, ready: Ready) -> None:
        for hop, message in ready.sends:
            if hop in self._open:
                self._owed[hop, self._open[hop]].append(_Owed(line, message))
        for notice in ready.notices:
            self._untold.append(_Owed(line, Told(notice.name, _as_kept(notice))))
            if notice.name == events.CLIENT_REFUSED:  # parted with at once
                self._open.pop(client_hop(notice.fields["client"]), None)

    # What the node did

    def _compare_put(self, line: Line, put: Put) -> None:
        life = (put.link, put.life)
        for message in put.all():
            self._numbers[life] += 1
            owed = self._owed[life].popleft() if self._owed[life] else None
            if owed is None or not _is_same(owed.what, message):
                raise self._different(line, life, owed, message, self._numbers[life])
            self._messages += 1

    def _compare_told(self, line: Line) -> None:
        told = Told(line.name, line.fields)
        owed = self._untold.popleft() if self._untold else None
        if owed is None or owed.what != told:
            raise self._different(line, ("", 0), owed, told, 0)
        self._told += 1

    def _compare_end(self) -> None:
        """Nothing may be left that it should have done."""
        left = [
            (queue[0], life)
            for life, queue in self._owed.items()
            if queue and self._open.get(life[0]) == life[1]
        ]
        left += [(self._untold[0], ("", 0))] if self._untold else []
        if left:
            owed, life = min(left, key=lambda one: one[0].because.number)
            number = self._numbers[life] + 1 if life[0] else 0
            raise self._different(owed.because, life, owed, None, number)

    def _different(
        self, line: Line, life: Life, owed: _Owed | None, actual: AnyMessage | Told | None, number: int
    ) -> _Different:
        expected = None if owed is None else owed.what
        return _Different(Deviation(self._node, line, life[0], number, expected, actual))


def _is_same(expected: AnyMessage | Told, actual: AnyMessage) -> bool:
    if isinstance(expected, Publish):  # its bytes are those of its publisher, and need not be ours
        return expected == actual
    return type(expected) is type(actual) and wire.encode(expected) == wire.encode(actual)


def _as_kept(notice: Notice) -> Mapping[str, Any]:
    """Its fields, after the way through a history."""
    fields: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(notice.fields))
    return fields
