"""What has links in a simulated overlay: a broker's process without sockets, and what carries a client's session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from broker.core import Broker
from broker.gate.channel import Channel, Pipe
from broker.gate.clock import Timer
from broker.gate.peer import Peer
from broker.gate.transit import Transit
from broker.protocol import wire
from broker.protocol.events import CLIENT_REFUSED
from broker.protocol.hops import Hop, broker_hop, client_hop, is_client
from broker.protocol.messages import Goodbye, Hello, Welcome
from broker.protocol.wire import HEADER_BYTES, PROTOCOL_VERSION, AnyMessage, WireError
from broker.routing.ready import Notice
from broker.sessions.greeting import Departed
from broker.sessions.presence import PeerSessions
from labctl.simulate.clients import SimClient
from labctl.simulate.connections import End, SimClock
from labctl.simulate.watched import Watched

if TYPE_CHECKING:
    from labctl.simulate.linked import LinkedWorld

GRACE_S = 5.0
SILENCE_S = 1e9


class BrokerNode:
    """A broker's process without sockets."""

    def __init__(self, world: LinkedWorld, broker: Broker, departed: Departed | None = None) -> None:
        self.world = world
        self.broker = broker
        self.hop = broker_hop(broker.id)
        self.is_alive = True
        self.is_recovering = False
        self.core = Watched(world, self)
        self.clock = ProcessClock(self, self.time)
        self.transit: Transit[Peer] = Transit(self.core, self, self.clock, world.queue_bytes_max)
        self.transit.expire_s = world.conditions.expire_s
        self.presence = SimPresence(self, departed)
        self.dialled: list[Hop] = []
        """Neighbours, by us."""
        for hop in broker.neighbours:
            self.transit.add(world.make_peer(hop, self.clock))

    def time(self) -> float:
        """What the clock of its machine shows."""
        return self.world.time_at(self.broker)

    def announce(self) -> None:
        self.transit.perform(self.core.start())
        self.transit.flush()

    @property
    def entry(self) -> int:
        """Of its journal, on which everything stands that happens now; 0: it has none."""
        return 0

    def incarnation_of(self, hop: Hop) -> int:
        return self.transit.peers[hop].incarnation if is_client(hop) and hop in self.transit.peers else 0

    # Connections

    def dial(self, hop: Hop) -> None:
        """A neighbour, and again when the connection is lost."""
        if not self.is_alive or self.world.is_connected(self.hop, hop):
            return
        end = self.world.connected(self, hop)
        peer = self.transit.peers[hop]
        end.context = peer
        self.transit.gate.submit(self._say_hello, end, peer)

    def _say_hello(self, end: End, peer: Peer) -> None:
        broker = self.broker
        end.say(
            Hello(
                PROTOCOL_VERSION, "broker", broker.id, peer.name, self.presence.incarnation,
                peer.incarnation, peer.link.processed, broker.routing.overlap,
            )
        )  # fmt: skip

    def receive(self, end: End, sent: float, data: bytes) -> None:
        """Frames of one read."""
        if not self.is_alive:
            return
        (_, first, processed), body = wire.read_header(data), data[HEADER_BYTES:]
        peer = end.context
        try:
            messages = wire.decode(body)
            if not first:
                for message in messages:
                    self._greeted(end, message)
            elif peer is None or peer.stream is not end:
                raise WireError("a message before the greeting")
            else:
                self.world.passed(sent, peer.hop, self.hop, first, messages)
                self.transit.receive(peer, first, processed, messages, body)
        except WireError as error:
            end.fail(str(error))
            self.failed(end)
        self.transit.flush(peer)

    def _greeted(self, end: End, message: AnyMessage) -> None:
        peer, presence = end.context, self.presence
        if isinstance(message, Goodbye):
            end.abort()
            if peer is not None and peer.kind == "client":
                presence.gone(peer, message)
            else:
                self.world.account.faults.append(f"{self.hop} was dismissed: {message.reason}")
        elif isinstance(message, Welcome):
            presence.welcomed(peer, end, message)
        elif isinstance(message, Hello) and message.role == "broker":
            loser = presence.greet_broker(self.transit.peers[broker_hop(message.name)], end, message)
            if loser:
                self.world.account.faults.append(f"{self.hop} finds that {loser} has lost its state")
        elif isinstance(message, Hello):
            presence.greet_client(end, message)

    def lost(self, end: End) -> None:
        if not self.is_alive:
            return
        peer = end.context
        if peer is not None and peer.stream is end:
            self.presence.lost(peer)
            self.transit.flush()
        if self.world.dials(self.hop, end):
            self.world.when_restored((self.hop, end.other.holder.hop), self.dial)

    def gone(self, hop: Hop, incarnation: int, reason: str) -> None:
        """A client's session has ended, if it has not before."""
        peer = self.transit.peers.get(hop)
        if self.is_alive and peer is not None and peer.incarnation == incarnation:
            self.presence.gone(peer, Goodbye("leaving", reason))
            self.transit.flush()

    def ended(self, peer: Peer, entry: int) -> None:
        """Nothing is due to or from this client any more, by this entry."""
        account, hop, incarnation = self.world.account, peer.hop, peer.incarnation
        for way in ((self.hop, hop, incarnation), (hop, self.hop, incarnation)):
            account.forget(way, self.hop, entry)

    # What the transit tells

    def happened(self, notice: Notice) -> None:
        self.world.record(self.broker.id, notice.name, notice.fields)
        self._part_with_refused(notice)

    def _part_with_refused(self, notice: Notice) -> None:
        if notice.name == CLIENT_REFUSED:
            peer = self.transit.peers.get(client_hop(notice.fields["client"]))
            if peer is not None:
                self.ended(peer, 0)
                self.presence.part_with(peer, Goodbye(notice.fields["code"], notice.fields["reason"]))

    def is_too_slow(self, peer: Peer) -> None:
        """It is thrown out, unless nothing counts any more; what it has said by then is heard."""
        if self.world.keeps_history:
            self.world.clients[peer.name].crash()

    def failed(self, end: Pipe) -> None:
        """It broke the protocol, and is not heard any more."""
        assert isinstance(end, End)
        self.world.account.faults.append(f"{self.hop} dismissed {end.other.holder.hop}: {end.fault}")

    def left(self) -> Iterable[str]:
        for peer in self.transit.peers.values():
            if peer.is_busy or peer.held.frames or peer.waits_for or peer.waited_for_by:
                yield f"{self.hop} is not done with {peer.hop}: {len(peer.held.frames)} frames are held"


class ProcessClock(SimClock):
    """Of a process: what it wanted to do later ends with it."""

    def __init__(self, node: BrokerNode, time: Callable[[], float]) -> None:
        super().__init__(node.world, node.world.soon, time)
        self._node = node

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> Timer:
        return super().call_later(delay, self._if_alive, callback, *args)

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> object:
        return super().call_soon(self._if_alive, callback, *args)

    def _if_alive(self, callback: Callable[..., object], *args: Any) -> None:
        if self._node.is_alive:
            callback(*args)


class SimPresence(PeerSessions[Peer]):
    def __init__(self, node: BrokerNode, departed: Departed | None) -> None:
        broker, grace_ms = node.broker, node.world.grace_ms
        super().__init__(broker.id, broker.incarnation, node.transit, node.clock, grace_ms, departed)
        self._node = node

    def made_peer(self, hop: Hop, incarnation: int) -> Peer:
        peer = self._node.world.make_peer(hop, self._node.clock)
        peer.incarnation = incarnation
        return peer

    def greeting_to(self, peer: Peer) -> Welcome:
        return Welcome(self.broker, self.incarnation, peer.link.processed, self._node.broker.limits)

    def address_of(self, stream: End) -> str:
        return stream.other.holder.hop

    def is_lost(self, stream: End) -> bool:
        return stream.is_lost

    def refuse(self, stream: End, goodbye: Goodbye) -> None:
        if goodbye.code == "protocol":
            stream.fault = goodbye.reason
            self._node.failed(stream)
        stream.say(goodbye)
        stream.abort()

    def attached(self, peer: Peer, stream: End) -> None:
        stream.context = peer

    def gone(self, peer: Peer, goodbye: Goodbye) -> None:
        node = self._node
        if self.peers.get(peer.hop) is peer:
            node.ended(peer, node.entry and node.entry + 1)
        super().gone(peer, goodbye)


class ClientNode:
    """What carries the session of a simulated client."""

    def __init__(self, world: LinkedWorld, client: SimClient, incarnation: int) -> None:
        self._world = world
        self._client = client
        self.incarnation = incarnation
        self._broker_incarnation = 0
        self.hop = client.hop
        self.home = broker_hop(client.home)
        self.channel = Channel(world.clock, SILENCE_S, None, world.make_link(f"of {client.hop}"))
        self._stays_away = self._is_leaving = self._has_left = self._is_flushing = False

    def send(self, message: AnyMessage) -> None:
        self._world.account.sent((self.hop, self.home, self.incarnation), message)
        self.channel.send(message)
        if not self._is_flushing:
            self._is_flushing = True
            self._world.clock.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        self.channel.flush()

    def dial(self, _hop: Hop = "") -> None:
        if self._stays_away or self._has_left or self._world.is_connected(self.hop, self.home):
            return
        client = self._client
        end = self._world.connected(self, self.home)
        end.context = self.channel
        end.say(
            Hello(
                PROTOCOL_VERSION, "client", client.client_id, "", self.incarnation,
                self._broker_incarnation, self.channel.link.processed, "all",
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
            world.at(world.now + GRACE_S, world.gone, self, "it was away for too long")

    def crash(self, heard_until: int, reason: str) -> None:
        """What it sent behind the message of this number is lost with it."""
        world, self._stays_away = self._world, True
        end = world.end_of(self.hop)
        if end is not None:
            end.heard_until(heard_until)
            end.abort()
        self.channel.detach()
        due = world.heard_of(self.hop, self.home)
        world.at(due + 1e-9, world.gone, self, reason)

    def receive(self, end: End, sent: float, data: bytes) -> None:
        if self._has_left:
            return
        (_, first, processed), body = wire.read_header(data), data[HEADER_BYTES:]
        channel, messages = self.channel, wire.decode(body)
        if not first:
            for message in messages:
                if isinstance(message, Welcome) and channel.stream is None:
                    channel.attach(end, message.received)
                    self._broker_incarnation = message.incarnation
                elif isinstance(message, Goodbye):
                    self._dismissed(message)
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
        self._world.account.arrived((self.home, self.hop, self.incarnation), message)
        if self._client.is_alive:
            self._world.messages += 1
            self._client.take(message)

    def _dismissed(self, goodbye: Goodbye) -> None:
        """Its broker has ended its session."""
        self._has_left = True
        self.channel.detach()
        account = self._world.account
        for way in ((self.hop, self.home, self.incarnation), (self.home, self.hop, self.incarnation)):
            account.give_up(way)
        self._client.dismissed(goodbye.reason)

    def lost(self, end: End) -> None:
        if self.channel.stream is end:
            self.channel.detach()
        if self._world.dials(self.hop, end):
            self._world.when_restored((self.hop, self.home), self.dial)

    def left(self) -> Iterable[str]:
        if self._client.is_alive and self.channel.is_busy:
            yield f"{self.hop} is not done with {self.home}"
