"""All cores of a run together: each message that one sends is what the next one gets, in the order of a schedule.

What clients said is in the schedule. What they are told is kept, apart for each thing that they do (`Unit`), so that one can
see whether they would have said the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from broker import status
from broker.core import Input
from broker.protocol.hops import Hop, broker_hop, client_hop, is_client, name_of
from broker.protocol.messages import Accepted, Publish, Refused, Request
from broker.protocol.wire import AnyMessage
from broker.recorded import Given
from broker.routing.joining import ClientGone
from broker.routing.ready import ProtocolError, Ready
from labctl.results.histories import tables_of
from labctl.simulate.clients import SimClient
from labctl.simulate.recorded.schedule import CoreCall, Schedule
from labctl.simulate.world import Passage, SimMoment

Unit = tuple[str, str]
"""Something that a client does, with all that is said about it: a transaction, a request, a publication; or its stay."""

SAME = ("tx", "op", "client", "id", "kind", "filter", "origin")
"""What a message is about."""


class Travelling(NamedTuple):
    """Between two brokers."""

    sent: float
    number: int
    message: AnyMessage


class RecordedWorld:
    def __init__(self, schedule: Schedule, staying: Collection[str] = (), traces: bool = False) -> None:
        """The tables are looked at when the first of those who stay to the end leaves. With traces it keeps every
        message, and what clients said and were told."""
        self.brokers = {made.broker: made.core() for made in schedule.made}
        self.clients: Mapping[str, SimClient] = {}
        self.moments: list[SimMoment] = []
        self.passages: list[Passage] = []
        self.deliveries: list[tuple[str, Publish]] = []
        """Regular ones, with whom they went to."""
        self.said: defaultdict[tuple[str, Unit], list[str]] = defaultdict(list)
        """By client and unit, what it said and was told, in order."""
        self.faults: list[str] = []
        """What brokers could not place."""
        self.impossible: list[str] = []
        """What clients said and no broker takes: then they would not have said it."""
        self.tables: dict[str, dict[str, Any]] = {}
        self._schedule = schedule
        self._traces = traces
        self._staying = frozenset(map(client_hop, staying))
        self._on_links: defaultdict[tuple[Hop, Hop], deque[Travelling]] = defaultdict(deque)
        self._sent: Counter[tuple[Hop, Hop]] = Counter()
        self._numbers: Counter[str] = Counter()
        self._now = 0.0

    def run(self) -> None:
        for step in self._schedule.steps:
            self._now = step.time
            if step.given.client == ClientGone.__name__ and step.given.source in self._staying:
                self._look()
            source = step.given.source
            if not source or is_client(source):
                self._take(step.node, step.given)
            else:
                self._arrive(step)
        self._drain()
        self._look()

    # What arrives

    def _arrive(self, step: CoreCall) -> None:
        """The messages that came then, and those before them; fewer, if the others were never sent."""
        given = step.given
        source, target = given.source, broker_hop(step.node)
        waiting = self._on_links[source, target]
        arrived: list[Travelling] = []
        for due in given.all():
            place = next((p for p, one in enumerate(waiting) if _is_like(one.message, due)), -1)
            arrived += [waiting.popleft() for _ in range(place + 1)]
        self._give(step.node, source, arrived, given.now)

    def _give(self, node: str, source: Hop, arrived: Sequence[Travelling], now: float) -> None:
        """Publications that have come together are decided on together."""
        core = self.brokers[node]
        if self._traces:
            target = broker_hop(node)
            self.passages += [Passage(s, self._now, source, target, n, m) for s, n, m in arrived]
        publications = [one.message for one in arrived if isinstance(one.message, Publish)]
        try:
            if len(publications) == len(arrived):
                self._carry_out(node, core.publish(source, publications))
                return
            for _, _, message in arrived:
                self._carry_out(node, core.handle(now or core.state.now, source, message))
        except ProtocolError as error:
            self.faults.append(f"{node} could not place what came from {source}: {error}")

    def _take(self, node: str, given: Given) -> None:
        """From a client, or a timer."""
        if given.source:
            for message in given.all() if given.count else (given.first,):
                assert message is not None
                self._say(given.source, broker_hop(node), message)
        try:
            self._carry_out(node, given.put_to(self.brokers[node]))
        except ProtocolError as error:
            self.impossible.append(f"{given.source} at {node}: {error}")

    def _carry_out(self, node: str, ready: Ready) -> None:
        source = broker_hop(node)
        for notice in ready.notices:
            self._numbers[node] += 1
            fields = msgspec.json.decode(msgspec.json.encode(notice.fields))
            self.moments.append(SimMoment(node, self._numbers[node], self._now, notice.name, fields))
        for hop, message in ready.sends:
            if is_client(hop):
                self._say(source, hop, message)
                if isinstance(message, Publish):
                    self.deliveries.append((name_of(hop), message))
            else:
                self._sent[source, hop] += 1
                self._on_links[source, hop].append(Travelling(self._now, self._sent[source, hop], message))

    def _say(self, source: Hop, target: Hop, message: Input) -> None:
        """Between a client and its broker."""
        if not self._traces:
            return
        self._sent[source, target] += 1
        self.passages.append(
            Passage(self._now, self._now, source, target, self._sent[source, target], message)
        )
        client = name_of(source if is_client(source) else target)
        sign = ">" if is_client(source) else "<"
        self.said[client, unit_of(client, message)].append(f"{sign}{message!r}")

    # The end

    def _drain(self) -> None:
        """All that is still under way arrives."""
        while links := [link for link, waiting in self._on_links.items() if waiting]:
            for link in links:
                self._now += 1e-6
                self._give(name_of(link[1]), link[0], [self._on_links[link].popleft()], 0.0)

    def _look(self) -> None:
        if not self.tables:
            self._drain()
            for name, core in self.brokers.items():
                described = msgspec.json.decode(msgspec.json.encode(status.describe(core, dump=True)))
                self.tables[name] = tables_of(described)


def unit_of(client: str, message: Input) -> Unit:
    if tx := getattr(message, "tx", ""):
        return ("transaction", tx)
    if isinstance(message, Request | Accepted | Refused):
        return ("request", f"{client} {message.number}")
    if isinstance(message, Publish):
        return ("publication", str(message.id))
    return ("stay", client)


def _is_like(one: AnyMessage, other: AnyMessage) -> bool:
    """The same message, though it may say something else where less has happened before it."""
    return type(one) is type(other) and all(
        getattr(one, name, None) == getattr(other, name, None) for name in SAME
    )
