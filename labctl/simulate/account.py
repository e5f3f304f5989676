"""What must arrive on links, by the words of cores and clients alone.

It knows nothing of frames, numbers and windows: whatever a core or a client says is due at the other end of its link,
once and in that order, and each message is compared when a core or a client gets it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from broker.core import Input
from broker.protocol.hops import Hop
from broker.protocol.messages import Publish, Refused
from broker.protocol.wire import AnyMessage
from broker.routing.joining import ClientInput
from broker.routing.publications import Decision
from broker.routing.ready import ProtocolError, Ready
from labctl.simulate.world import TIDYING, Stray

if TYPE_CHECKING:
    from labctl.simulate.linked import LinkedWorld
    from labctl.simulate.nodes import BrokerNode

Way = tuple[Hop, Hop, int]
"""A direction of a link, and the incarnation of the client at one of its ends (0: between brokers)."""


class ExpectedArrivals:
    """What must arrive, by the words of cores and clients alone."""

    def __init__(self) -> None:
        self.checked = 0
        self.faults: list[str] = []
        self._due: dict[Way, deque[AnyMessage]] = {}

    def sent(self, way: Way, message: AnyMessage) -> None:
        self._due.setdefault(way, deque()).append(message)

    def arrived(self, way: Way, message: AnyMessage) -> None:
        self.checked += 1
        due = self._due.get(way)
        expected = due.popleft() if due else None
        if message != expected:
            source, target, _ = way
            self.faults.append(f"{target} got {message} of {source} where {expected} was due")

    def forget(self, *ways: Way) -> None:
        for way in ways:
            self._due.pop(way, None)

    def left(self) -> list[str]:
        return [
            f"{target} did not get {len(due)} messages of {source}, {due[0]} first"
            for (source, target, _), due in self._due.items()
            if due
        ]


class Watched:
    """A broker's core, as its transit sees it, with an account of what goes in and out."""

    def __init__(self, world: LinkedWorld, node: BrokerNode) -> None:
        self._world = world
        self._node = node
        self._core = node.broker

    @property
    def has_open_transactions(self) -> bool:
        return self._core.has_open_transactions

    def start(self) -> Ready:
        return self._left(self._core.start())

    def expire(self, now: float, /) -> Ready:
        return self._left(self._core.expire(now))

    def handle(self, now: float, source: Hop, message: Input, /) -> Ready:
        self._came(source, message)
        try:
            return self._left(self._core.handle(now, source, message))
        except ProtocolError as error:
            self._world.strays.append(Stray(self._core.id, source, message, str(error)))
            raise

    def decide(self, source: Hop, messages: Sequence[Publish], /) -> Decision:
        for message in messages:
            self._came(source, message)
        try:
            hops, refused = self._core.decide(source, messages)
        except ProtocolError as error:
            self._world.strays.append(Stray(self._core.id, source, messages[0], str(error)))
            raise
        for place, reason in refused.items():
            self._left_one(source, Refused(messages[place].id, reason))
        decision = Decision([self._ordered(each, source) for each in hops], refused)
        for message, each in zip(messages, decision.hops, strict=True):
            for hop in each:
                self._left_one(hop, message)
        return decision

    def decide_one(self, source: Hop, message: Publish, /) -> tuple[Collection[Hop], str]:
        self._came(source, message)
        try:
            hops, reason = self._core.decide_one(source, message)
        except ProtocolError as error:
            self._world.strays.append(Stray(self._core.id, source, message, str(error)))
            raise
        if reason:
            self._left_one(source, Refused(message.id, reason))
        ordered = self._ordered(hops, source)
        for hop in ordered:
            self._left_one(hop, message)
        return ordered, reason

    @staticmethod
    def _ordered(hops: Iterable[Hop], source: Hop) -> tuple[Hop, ...]:
        """They come from a set, in an order that is not the seed's."""
        return tuple(sorted(hop for hop in hops if hop != source))

    def _came(self, source: Hop, message: Input) -> None:
        world = self._world
        world.messages += 1
        world.tidying += type(message) in TIDYING
        if not isinstance(message, ClientInput):
            world.account.arrived((source, self._node.hop, self._node.incarnation_of(source)), message)

    def _left(self, ready: Ready) -> Ready:
        for hop, message in ready.sends:
            self._left_one(hop, message)
        return ready

    def _left_one(self, hop: Hop, message: AnyMessage) -> None:
        node = self._node
        if hop in node.transit.peers:  # whoever else it was for is gone
            self._world.account.sent((node.hop, hop, node.incarnation_of(hop)), message)
