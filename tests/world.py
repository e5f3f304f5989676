"""An overlay of broker cores without sockets: FIFO links, delivery in any order that a seed picks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random

from broker.core import Broker, ClientArrived, ClientGone, Event, ProtocolError
from broker.filters import Event as Point
from broker.filters import Filter, Overlap
from broker.routing import Hop, broker_hop, client_hop
from broker.wire import (
    HEADER_BYTES,
    Accepted,
    AnyMessage,
    Joined,
    Kind,
    Publish,
    Refused,
    Request,
    Settle,
    Settled,
    decode,
    encode,
    frame,
)

Input = AnyMessage | ClientArrived | ClientGone


class World:
    def __init__(
        self,
        links: Iterable[tuple[str, str]],
        brokers: Iterable[str] = (),
        seed: int = 0,
        overlap: Overlap = "all",
    ) -> None:
        self.random = Random(seed)
        edges = list(links)
        names = sorted({*brokers, *(name for edge in edges for name in edge)})
        near = {n: [b if a == n else a for a, b in edges if n in (a, b)] for n in names}
        self.brokers = {n: Broker(n, near[n], i + 1, overlap) for i, n in enumerate(names)}
        self.links: dict[tuple[Hop, Hop], deque[Input]] = {}
        self.homes: dict[str, str] = {}
        self.inbox: dict[str, list[AnyMessage]] = {}
        self.events: list[tuple[str, Event]] = []
        self._incarnation = 100
        self._number = 0
        for broker in self.brokers.values():
            self._perform(broker.id, broker.start().sends)

    def connect(self, client: str, home: str) -> None:
        self._incarnation += 1
        self.homes[client] = home
        self.inbox[client] = []
        self._send(client_hop(client), broker_hop(home), ClientArrived(self._incarnation))

    def leave(self, client: str) -> None:
        self._send(client_hop(client), broker_hop(self.homes.pop(client)), ClientGone("it said goodbye"))

    def operate(self, client: str, kind: Kind, filter_: Filter) -> int:
        self._number += 1
        self._send(client_hop(client), broker_hop(self.homes[client]), Request(self._number, kind, filter_))
        return self._number

    def publish(self, client: str, event: Point, identity: int) -> None:
        self._send(client_hop(client), broker_hop(self.homes[client]), Publish(identity, event, b""))

    def settle(self, client: str, number: int) -> None:
        self._send(client_hop(client), broker_hop(self.homes[client]), Settle(client, number))

    def step(self) -> bool:
        """Deliver one message of one link; False when all links are empty."""
        ready = [link for link, queue in self.links.items() if queue]
        if not ready:
            return False
        source, target = self.random.choice(ready)
        message = self.links[source, target].popleft()
        role, _, name = target.partition(":")
        if role == "client":
            self.inbox.setdefault(name, []).append(message)  # type: ignore[arg-type]
        else:
            broker = self.brokers[name]
            ready_ = broker.handle(0.0, source, message)
            self.events += [(name, event) for event in ready_.events]
            self._perform(name, ready_.sends)
        return True

    def run(self, steps_max: int = 1_000_000) -> None:
        for _ in range(steps_max):
            if not self.step():
                return
        raise AssertionError(f"still busy after {steps_max} messages")

    def got(self, client: str, kind: type[AnyMessage]) -> list[AnyMessage]:
        return [message for message in self.inbox[client] if isinstance(message, kind)]

    def deliveries(self, client: str) -> list[int]:
        return [m.id for m in self.inbox[client] if isinstance(m, Publish)]

    def records(self) -> int:
        return sum(len(b.routing.srt) + len(b.routing.prt) for b in self.brokers.values())

    def _perform(self, broker: str, sends: Iterable[tuple[Hop, AnyMessage]]) -> None:
        for hop, message in sends:
            # Through bytes and back, so that no broker shares an object with another.
            body = frame(encode(message), 1, 1, 0)[HEADER_BYTES:]
            self._send(broker_hop(broker), hop, decode(body)[0])

    def _send(self, source: Hop, target: Hop, message: Input) -> None:
        self.links.setdefault((source, target), deque()).append(message)


__all__ = ["Accepted", "Joined", "ProtocolError", "Refused", "Settled", "World"]
