"""What has links in a simulated overlay: a broker's process without sockets, and what carries a client's session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.core import Broker
from broker.gate.channel import Channel, Pipe
from broker.gate.peer import Peer
from broker.gate.transit import Transit
from broker.protocol import wire
from broker.protocol.hops import Hop, broker_hop, client_hop, is_client, name_of
from broker.protocol.link import Link
from broker.protocol.messages import Goodbye, Hello, Welcome
from broker.protocol.wire import HEADER_BYTES, PROTOCOL_VERSION, AnyMessage, WireError
from broker.routing.joining import ClientArrived, ClientAway, ClientBack, ClientGone
from broker.routing.ready import Notice
from labctl.simulate.account import Watched
from labctl.simulate.clients import SimClient
from labctl.simulate.connections import End, SimClock

if TYPE_CHECKING:
    from labctl.simulate.linked import LinkedWorld

GRACE_S = 5.0
SILENCE_S = 1e9
QUEUE_BYTES_MAX = 1 << 60
"""Nobody is too slow: time is virtual."""


class BrokerNode:
    """A broker's process without sockets."""

    def __init__(self, world: LinkedWorld, broker: Broker) -> None:
        self._world = world
        self.broker = broker
        self.hop = broker_hop(broker.id)
        self.core = Watched(world, self)
        clock = SimClock(world, world.soon, lambda: world.time_at(broker))
        self.transit: Transit[Peer] = Transit(self.core, self, clock, QUEUE_BYTES_MAX)
        for hop in broker.neighbours:
            self.transit.add(world.make_peer(hop))

    def announce(self) -> None:
        self.transit.perform(self.core.start())
        self.transit.flush()

    def incarnation_of(self, hop: Hop) -> int:
        return self.transit.peers[hop].incarnation if is_client(hop) else 0

    # Connections

    def dial(self, hop: Hop) -> None:
        """A neighbour, and again when the connection is lost."""
        end = self._world.connected(self, hop)
        peer = self.transit.peers[hop]
        end.context = peer
        self.transit.gate.submit(self._say_hello, end, peer)

    def _say_hello(self, end: End, peer: Peer) -> None:
        broker = self.broker
        end.say(
            Hello(
                PROTOCOL_VERSION, "broker", broker.id, peer.name, broker.incarnation,
                peer.incarnation, peer.link.processed, broker.routing.overlap,
            )
        )  # fmt: skip

    def receive(self, end: End, sent: float, data: bytes) -> None:
        """Frames of one read."""
        (_, first, processed), body = wire.read_header(data), data[HEADER_BYTES:]
        peer = end.context
        try:
            messages = wire.decode(body)
            if not first:
                for message in messages:
                    self._greeted(end, message)
            elif peer is not None and peer.stream is end:
                self._world.passed(sent, peer.hop, self.hop, first, messages)
                self.transit.receive(peer, first, processed, messages, body)
        except WireError as error:
            end.fail(str(error))
            self.failed(end)
        self.transit.flush(peer)

    def _greeted(self, end: End, message: AnyMessage) -> None:
        if isinstance(message, Goodbye):
            self.gone(end.context.hop, end.context.incarnation, message.reason)
        elif isinstance(message, Welcome):
            self._attach(end, end.context, message.incarnation, message.received, False)
        elif isinstance(message, Hello) and message.role == "broker":
            peer = self.transit.peers[broker_hop(message.name)]
            self._attach(end, peer, message.incarnation, message.received, True)
        elif isinstance(message, Hello):
            self._greet_client(end, message)

    def _greet_client(self, end: End, hello: Hello) -> None:
        hop, transit = client_hop(hello.name), self.transit
        peer = transit.peers.get(hop)
        if peer is not None and peer.incarnation == hello.incarnation:
            self._attach(end, peer, hello.incarnation, hello.received, True)
            transit.handle(hop, ClientBack())
        elif not hello.received:
            if peer is not None:
                self.gone(hop, peer.incarnation, "another client has come by that name")
            peer = self._world.make_peer(hop)
            transit.add(peer)
            attach = self._attaching(end, peer, hello.incarnation, 0, True)
            transit.handle(hop, ClientArrived(hello.incarnation), attach)

    def _attach(self, end: End, peer: Peer, incarnation: int, received: int, answers: bool) -> None:
        """In turn: then all that it said on an earlier connection has been processed."""
        self.transit.gate.submit(self._attaching(end, peer, incarnation, received, answers))

    def _attaching(
        self, end: End, peer: Peer, incarnation: int, received: int, answers: bool
    ) -> Callable[[], None]:
        def attach() -> None:
            broker = self.broker
            welcome = Welcome(broker.id, broker.incarnation, peer.link.processed, broker.limits)
            self.transit.met(peer, incarnation)
            self.transit.resume(peer, end, received, welcome if answers else None)
            end.context = peer

        return attach

    def lost(self, end: End) -> None:
        peer = end.context
        if peer is not None and peer.stream is end:
            self.transit.interrupt(peer)
            if peer.kind == "client":
                self.transit.handle(peer.hop, ClientAway())
            self.transit.flush()
        if self._world.dials(self.hop, end):
            self._world.when_restored((self.hop, end.other.holder.hop), self.dial)

    def gone(self, hop: Hop, incarnation: int, reason: str) -> None:
        """A client's session has ended, if it has not before."""
        peer = self.transit.peers.get(hop)
        if peer is not None and peer.incarnation == incarnation:
            self._world.account.forget((self.hop, hop, incarnation), (hop, self.hop, incarnation))
            self.transit.remove(peer)
            self.transit.handle(hop, ClientGone(reason))
            self.transit.flush()

    # What the transit tells

    def happened(self, notice: Notice) -> None:
        self._world.record(self.broker.id, notice.name, notice.fields)

    def is_too_slow(self, peer: Peer) -> None:
        raise AssertionError(f"{peer.hop} is too slow")

    def failed(self, end: Pipe) -> None:
        """It broke the protocol, and is not heard any more."""
        assert isinstance(end, End)
        self._world.account.faults.append(f"{self.hop} dismissed {end.other.holder.hop}: {end.fault}")

    def left(self) -> Iterable[str]:
        for peer in self.transit.peers.values():
            if peer.is_busy or peer.held.frames or peer.waits_for or peer.waited_for_by:
                yield f"{self.hop} is not done with {peer.hop}: {len(peer.held.frames)} frames are held"


class ClientNode:
    """What carries the session of a simulated client."""

    def __init__(self, world: LinkedWorld, client: SimClient, incarnation: int) -> None:
        self._world = world
        self._client = client
        self._incarnation = incarnation
        self.hop = client.hop
        self.home = broker_hop(client.home)
        self.channel = Channel(world.clock, SILENCE_S, None, Link(world.window_bytes))
        self._stays_away = self._is_leaving = self._has_left = self._is_flushing = False

    def send(self, message: AnyMessage) -> None:
        self._world.account.sent((self.hop, self.home, self._incarnation), message)
        self.channel.send(message)
        if not self._is_flushing:
            self._is_flushing = True
            self._world.clock.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self.channel.flush()

    def dial(self, _hop: Hop = "") -> None:
        if self._stays_away or self._has_left:
            return
        client = self._client
        end = self._world.connected(self, self.home)
        end.context = self.channel
        end.say(
            Hello(
                PROTOCOL_VERSION, "client", client.client_id, "", self._incarnation, 0,
                self.channel.link.processed, "all",
            )
        )  # fmt: skip

    def go_away(self) -> None:
        """It knows that its connection is lost, and its broker does not yet."""
        world, self._stays_away = self._world, True
        end = world.end_of(self.hop)
        world.cut((self.hop, self.home))
        if end is not None:
            end.abort()
        self.channel.detach()

    def come_back(self) -> None:
        if self._stays_away:
            self._stays_away = False
            if not self._world.is_connected(self.hop):
                self.dial()

    def leave(self) -> None:
        """With a goodbye, when the broker has processed all that was said."""
        self._is_leaving = True
        self.come_back()
        self._flush()
        self._part()

    def _part(self) -> None:
        end = self.channel.stream
        if self._is_leaving and not self._has_left and end is not None and not self.channel.is_busy:
            self._has_left = True
            end.say(Goodbye("leaving", "it said goodbye"))
            world = self._world
            node, hop = world.nodes[name_of(self.home)], self.hop
            world.at(world.now + GRACE_S, node.gone, hop, self._incarnation, "it was away for too long")

    def crash(self, heard_until: int, reason: str) -> None:
        """What it sent behind the message of this number is lost with it."""
        world, self._stays_away = self._world, True
        end = world.end_of(self.hop)
        if end is not None:
            end.heard_until(heard_until)
            end.abort()
        self.channel.detach()
        due = world.heard_of(self.hop, self.home)
        node = world.nodes[name_of(self.home)]
        world.at(due + 1e-9, node.gone, self.hop, self._incarnation, reason)

    def receive(self, end: End, sent: float, data: bytes) -> None:
        if self._has_left:
            return
        (_, first, processed), body = wire.read_header(data), data[HEADER_BYTES:]
        channel, messages = self.channel, wire.decode(body)
        if not first:
            for message in messages:
                if isinstance(message, Welcome) and channel.stream is None:
                    channel.attach(end, message.received)
        elif channel.stream is end:
            try:
                if channel.link.accept(first, processed, len(messages)):
                    channel.pump()
            except WireError as error:
                self._world.account.faults.append(f"{self.hop} dismissed {self.home}: {error}")
                end.fail(str(error))
                return
            self._world.passed(sent, self.home, self.hop, first, messages)
            for message in messages:
                self._take(message)
            if messages:
                channel.done(len(messages), len(body))
        self._part()

    def _take(self, message: AnyMessage) -> None:
        self._world.account.arrived((self.home, self.hop, self._incarnation), message)
        if self._client.is_alive:
            self._world.messages += 1
            self._client.take(message)

    def lost(self, end: End) -> None:
        if self.channel.stream is end:
            self.channel.detach()
        if self._world.dials(self.hop, end):
            self._world.when_restored((self.hop, self.home), self.dial)

    def left(self) -> Iterable[str]:
        if self._client.is_alive and self.channel.is_busy:
            yield f"{self.hop} is not done with {self.home}"
