"""A world in which links carry frames over connections that are lost and restored.

Each broker runs what its server runs (`broker.gate.transit`): sequence numbers, windows, resumption, back-pressure,
publications decided on by the frame. What must come of it stands in an account of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import Random
from typing import Any

from broker.core import Broker, Input
from broker.gate.clock import Clock
from broker.gate.peer import Kind, Peer
from broker.protocol.hops import Hop, broker_hop, is_client, name_of
from broker.protocol.link import Link
from broker.protocol.wire import AnyMessage
from broker.routing.joining import ClientArrived, ClientAway, ClientBack, ClientGone
from labctl.checks.verdict import Verdict
from labctl.simulate.clients import SimClient
from labctl.simulate.connections import End, SimClock, SimConnection, Watch, WatchedLink, WatchedPeer
from labctl.simulate.crashes.account import ExpectedArrivals
from labctl.simulate.nodes import SILENCE_S, BrokerNode, ClientNode
from labctl.simulate.programs.programs import UNLIMITED_BYTES, Conditions
from labctl.simulate.world import Passage, Tree, World

PATIENCES_S = (inf, 0.25, 0.01)
"""So long a broker waits for a client that takes nothing; then publishers go on, and its queue grows."""


class LinkedWorld(World):
    takes_twins = False
    grace_ms = inf
    """Clients come back, or somebody says that they are gone."""

    def __init__(
        self,
        links: Tree,
        brokers: Iterable[str] = (),
        seed: int = 0,
        *arguments: Any,
        window_bytes: int,
        queue_bytes_max: int = UNLIMITED_BYTES,
        **named: Any,
    ) -> None:
        """`window_bytes`: how much may be under way on a link, and twice as much wait, before others must wait.

        `queue_bytes_max`: a client for which more waits is thrown out.
        """
        self.window_bytes = window_bytes
        self.queue_bytes_max = queue_bytes_max
        self.account = ExpectedArrivals()
        self.nodes: dict[str, BrokerNode] = {}
        self._client_nodes: dict[Hop, ClientNode] = {}
        self._connections: dict[tuple[Hop, Hop], SimConnection] = {}
        """The newest of each link, whose first end has dialled."""
        self._restored: dict[tuple[Hop, Hop], float] = {}
        self._chance = Random(f"connections {seed}")
        self.watch: Watch | None = None
        self._patience_s = Random(f"patience {seed}").choice(PATIENCES_S)
        super().__init__(links, brokers, seed, *arguments, **named)

    def begin(self, edges: Iterable[tuple[str, str]]) -> None:
        self.clock = SimClock(self, self.soon, lambda: self.now)
        self.nodes = {name: self.make_node(broker) for name, broker in self.brokers.items()}
        for one, other in edges:
            self.nodes[one].dialled.append(broker_hop(other))
        for node in self.nodes.values():
            for hop in node.dialled:
                node.dial(hop)

    def make_node(self, broker: Broker) -> BrokerNode:
        return BrokerNode(self, broker)

    def soon(self, callback: Callable[[], Any]) -> None:
        self._soon.append(callback)

    def live_under(self, conditions: Conditions) -> None:
        super().live_under(conditions)
        for node in self.nodes.values():
            node.transit.expire_s = conditions.expire_s

    def make_peer(self, hop: Hop, clock: Clock) -> Peer:
        kind: Kind = "client" if is_client(hop) else "broker"
        peer = WatchedPeer(clock, hop, kind, SILENCE_S, None, self.make_link(f"to {hop}"))
        peer.watch(self, self.account.faults)
        peer.hold_bytes = 2 * self.window_bytes
        if kind == "client":
            peer.patience_s = self._patience_s
        return peer

    def make_link(self, name: str) -> Link:
        return WatchedLink(name, self.window_bytes, self.account.faults)

    def verdicts(self) -> list[Verdict]:
        """Every message arrives once, in order, windows and patience are kept, and nothing is left on a link."""
        faults = [*self.account.faults, *self.account.left()]
        for node in self.nodes.values():
            faults += node.left()
        for client in self._client_nodes.values():
            faults += client.left()
        return [Verdict("links", "invalid" if faults else "valid", self.account.checked, tuple(faults[:3]))]

    def cut(self, link: tuple[Hop, Hop], seconds: float = 0.0) -> None:
        """The connection of a link is lost, and no other can be made for so long."""
        for way in (link, link[::-1]):
            connection = self._connections.get(way)
            if connection is not None and connection.is_open:
                self._restored[way] = max(self.now + seconds, self._restored.get(way, 0.0))
                connection.cut(self._chance)

    # What nodes ask

    def connected(self, dialler: BrokerNode | ClientNode, hop: Hop) -> End:
        link = (dialler.hop, hop)
        connection = self._connections[link] = SimConnection(
            self, dialler, self.nodes[name_of(hop)], self.watch
        )
        return connection.end

    def dials(self, hop: Hop, end: End) -> bool:
        """This end is of the newest connection of its link, and its holder has dialled it."""
        connection = self._connections.get((hop, end.other.holder.hop))
        return connection is not None and connection.end is end

    def end_of(self, hop: Hop) -> End | None:
        """Of a client's newest connection."""
        node = self._client_nodes[hop]
        connection = self._connections.get((hop, node.home))
        return None if connection is None else connection.end

    def is_connected(self, dialler: Hop, hop: Hop) -> bool:
        connection = self._connections.get((dialler, hop))
        return connection is not None and connection.end.is_open

    def when_restored(self, link: tuple[Hop, Hop], dial: Callable[[Hop], None]) -> None:
        self.at(max(self.now, self._restored.get(link, 0.0)), dial, link[1])

    def heard_of(self, source: Hop, target: Hop) -> float:
        return max(self.now, self._link_times.get((source, target), 0.0))

    def due(self, link: tuple[Hop, Hop]) -> float:
        return self._due(link)

    def gone(self, client: ClientNode, reason: str) -> None:
        """Its broker notices, if it is there."""
        self.nodes[name_of(client.home)].gone(client.hop, client.incarnation, reason)

    def passed(
        self, sent: float, source: Hop, target: Hop, first: int, messages: Sequence[AnyMessage]
    ) -> None:
        if self._traces:
            for number, message in enumerate(messages, first):
                self.passages.append(Passage(sent, self.now, source, target, number, message))

    # What a world does otherwise by messages

    def announce(self, broker: str) -> None:
        self.nodes[broker].announce()

    def transmit(self, source: Hop, target: Hop, message: Input) -> None:
        """What clients say, and what becomes of their connections."""
        if isinstance(message, ClientArrived):
            client = self.clients[name_of(source)]
            self._client_nodes[source] = node = ClientNode(self, client, message.incarnation)
            node.dial()
            return
        node = self._client_nodes[source]
        if isinstance(message, ClientAway):
            node.go_away()
        elif isinstance(message, ClientBack):
            node.come_back()
        else:
            assert not isinstance(message, ClientGone)
            node.send(message)

    def depart(self, client: SimClient, reason: str) -> None:
        node = self._client_nodes[client.hop]
        if client.has_crashed:
            node.crash(client.heard_until - 1, reason)
        else:
            node.leave()

    def link_count(self, source: Hop, target: Hop) -> int:
        """With the arrival, as where links carry messages."""
        node = self._client_nodes.get(source)
        return 0 if node is None else node.channel.newest + 1
