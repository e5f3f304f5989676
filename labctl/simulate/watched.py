"""A broker's core, as its transit sees it, with an account of what goes in and out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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

ROUNDED_S = 1e-6
"""By so much a sum of times is wrong at most."""


class Watched:
    def __init__(self, world: LinkedWorld, node: BrokerNode) -> None:
        self._world = world
        self._node = node
        self._core = node.broker
        self.inputs: Mapping[str, type[Any]] = node.broker.inputs
        self.latest = float("-inf")
        """By its own clock, when it was given something last."""

    @property
    def has_open_transactions(self) -> bool:
        return self._core.has_open_transactions

    def start(self) -> Ready:
        return self._left(self._core.start())

    def expire(self, now: float, /) -> Ready:
        self._look_at(now)
        return self._left(self._core.expire(now))

    def handle(self, now: float, source: Hop, message: Input, /) -> Ready:
        self._look_at(now)
        self._came(source, message)
        try:
            return self._left(self._core.handle(now, source, message))
        except ProtocolError as error:
            self._stray(source, message, error)
            raise

    def decide(self, source: Hop, messages: Sequence[Publish], /) -> Decision:
        for message in messages:
            self._came(source, message)
        try:
            hops, refused = self._core.decide(source, messages)
        except ProtocolError as error:
            self._stray(source, messages[0], error)
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
            self._stray(source, message, error)
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

    def _look_at(self, now: float) -> None:
        if now < self.latest - ROUNDED_S:
            fault = f"time goes back by {self.latest - now:.3f} s at {self._node.hop}"
            self._world.account.crash_faults.append(fault)
        self.latest = now

    def _came(self, source: Hop, message: Input) -> None:
        node, world = self._node, self._world
        if node.is_recovering:
            return
        world.messages += 1
        world.tidying += type(message) in TIDYING
        if not isinstance(message, ClientInput):
            way = (source, node.hop, node.incarnation_of(source))
            world.account.arrived(way, message, node.entry)

    def _left(self, ready: Ready) -> Ready:
        for hop, message in ready.sends:
            self._left_one(hop, message)
        return ready

    def _left_one(self, hop: Hop, message: AnyMessage) -> None:
        node = self._node
        if hop in node.transit.peers and not node.is_recovering:  # whoever else it was for is gone
            self._world.account.sent((node.hop, hop, node.incarnation_of(hop)), message, node.entry)

    def _stray(self, source: Hop, message: Input, error: ProtocolError) -> None:
        if not self._node.is_recovering:
            self._world.strays.append(Stray(self._core.id, source, message, str(error)))
