"""The broker as a pure state machine: a message goes in, what must be done comes out.

`handle(now, source, message) -> Ready`. The caller owns sockets, clock and disk, and lets effects out in the
order of `broker.gate`: what was given is durable, then sends leave, then it is reported as processed. Without clock
and chance, the core is what it was given: a journal of that brings it back (`broker.gate.recovery`). The same core runs in `broker.serving` and under simulation. For many regular publications at once there is `decide`,
by which the server forwards bytes; `publish` carries the same decision out with messages.

`ProtocolError` means that the source broke the protocol and must be cut off; the state is untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from broker.protocol.filters import Overlap
from broker.protocol.hops import Hop, broker_hop, is_client, name_of
from broker.protocol.limits import Limits
from broker.protocol.wire import AnyMessage
from broker.protocols import Protocols
from broker.routing.joining import ClientInput, Joining
from broker.routing.publications import Publications
from broker.routing.ready import ProtocolError, Ready
from broker.routing.regular import Regular
from broker.routing.settling import Settling
from broker.routing.state import BrokerState
from broker.routing.tables import Routing

Input = AnyMessage | ClientInput
CLIENT_INPUTS: Mapping[str, type[ClientInput]] = {kind.__name__: kind for kind in get_args(ClientInput)}
"""What is told of clients besides their messages, by name."""


class Broker:
    inputs: Mapping[str, type[Any]] = CLIENT_INPUTS

    def __init__(
        self,
        broker: str,
        neighbours: Sequence[str],
        incarnation: int,
        overlap: Overlap = "all",
        limits: Limits | None = None,
    ) -> None:
        self.id = broker
        self.incarnation = incarnation
        self.limits = limits or Limits()
        self.neighbours = tuple(broker_hop(n) for n in neighbours)
        self.routing = Routing(self.neighbours, overlap, self.limits.records_max)
        self.state = BrokerState(broker, self.neighbours, self.routing, self.limits)
        self.transactions = Protocols(self.state)
        self.retirement = self.state.retirement
        self.routing.compaction.unfinished = (*self.transactions.unfinished, self.retirement.written)
        self.joining = Joining(self.state, incarnation, self.transactions)
        self.settling = Settling(self.state)
        publications, regular = Publications(self.state), Regular(self.state, self.transactions)
        self.decide, self.decide_one = publications.decide, publications.decide_one
        self.publish = publications.spread
        parts = (publications, regular, self.joining, self.settling, self.transactions)
        self._from_client: dict[type, Callable[[str, Any], Ready]] = {}
        self._from_broker: dict[type, Callable[[Hop, Any], Ready]] = dict(self.retirement.from_broker)
        for part in parts:
            self._from_client |= part.from_client
            self._from_broker |= part.from_broker

    def start(self) -> Ready:
        return self.joining.start()

    def handle(self, now: float, source: Hop, message: Input) -> Ready:
        self.state.now = now
        srt = self.routing.srt
        changes = srt.changes
        if source in self.neighbours:
            handler, name = self._from_broker.get(type(message)), source
        elif is_client(source):
            handler, name = self._from_client.get(type(message)), name_of(source)
        else:
            raise ProtocolError(f"{source} is no neighbour and no client of {self.id}")
        if handler is None:
            raise ProtocolError(f"a {source.partition(':')[0]} does not send {type(message).__name__}")
        ready = handler(name, message)
        if srt.changes != changes and self.transactions:
            ready += self.transactions.advertised()
        if self.routing.compaction.has_candidates:
            ready.sends += self.routing.compaction.sweep()
        return ready

    def expire(self, now: float) -> Ready:
        """End the transactions whose lifetime is over; to be called now and then while `has_open_transactions`."""
        self.state.now = now
        ready = self.transactions.expire(now)
        ready += self.retirement.tell()
        ready.sends += self.routing.compaction.sweep()
        return ready

    @property
    def has_open_transactions(self) -> bool:
        """Here, or the others have yet to be told that they have ended everywhere."""
        return bool(self.transactions) or self.retirement.has_news
