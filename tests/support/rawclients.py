"""A simulated overlay whose clients send what a test says, word for word, and keep what they get.

Nothing is checked at the caller, as it is for programs, so that a test can ask a broker for anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from broker.core import Input
from broker.protocol.filters import Event, Filter, Overlap
from broker.protocol.hops import Hop
from broker.protocol.messages import Publish, Request, Settle
from broker.protocol.vocabulary import Kind, Message
from broker.protocol.wire import HEADER_BYTES, AnyMessage, decode, encode, frame
from labctl.simulate.clients import SimClient
from labctl.simulate.world import World


class RawClient(SimClient):
    def __init__(self, world: World, client_id: str, home: str, incarnation: int) -> None:
        super().__init__(world, client_id, home, incarnation, None)
        self.inbox: list[Input] = []

    def take(self, message: Input) -> None:
        self.inbox.append(message)


class RawWorld(World):
    """A message that a broker cannot place ends the test."""

    def __init__(
        self,
        links: Iterable[tuple[str, str]],
        brokers: Iterable[str] = (),
        seed: int = 0,
        overlap: Overlap = "all",
        announcing: Iterable[str] | None = None,
    ) -> None:
        super().__init__(links, brokers, seed, overlap=overlap, announcing=announcing)
        self._raw: dict[str, RawClient] = {}
        self._requests = count(1)

    def enter(self, client: str, home: str) -> None:
        incarnation = next(self._lives)
        self._raw[client] = RawClient(self, client, home, incarnation)
        self.bring_in(self._raw[client], incarnation)

    def operate(self, client: str, kind: Kind, filter_: Filter) -> None:
        self._raw[client].send(Request(next(self._requests), kind, filter_))

    def publish(self, client: str, event: Event, identity: int) -> None:
        self._raw[client].send(Publish(identity, event, b""))

    def settle(self, client: str, number: int) -> None:
        self._raw[client].send(Settle(client, number))

    def leave(self, client: str) -> None:
        self._raw[client].leave()

    def got(self, client: str, kind: type[AnyMessage]) -> list[Input]:
        return [message for message in self._raw[client].inbox if isinstance(message, kind)]

    def deliveries(self, client: str) -> list[int]:
        return [message.id for message in self._raw[client].inbox if isinstance(message, Publish)]

    def records(self) -> int:
        return sum(len(b.routing.srt) + len(b.routing.prt) for b in self.brokers.values())

    def transmit(self, source: Hop, target: Hop, message: Input) -> None:
        """Through bytes and back, so that no broker shares an object with another."""
        if isinstance(message, Message):
            message = decode(frame(encode(message), 1, 1, 0)[HEADER_BYTES:])[0]
        super().transmit(source, target, message)

    def step(self) -> bool:
        went_on = super().step()
        assert self.strays == []
        return went_on
