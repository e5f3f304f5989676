"""The broker's process: sockets, sessions and timers around the pure core; all its I/O is here and in
`broker.transport`.

A peer (`Peer`) outlives its connections: a neighbour for the whole life of the process, a client until
it says goodbye or stays away longer than the grace time. Whatever a read leads to is gathered per
destination and written at the end of that turn of the loop. Publications take the short cut of
`Routing.next_hops` and travel as the bytes they came as.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Raw

from broker import status, wire
from broker.address import parse_address
from broker.config import NodeConfig
from broker.core import Broker, ClientArrived, ClientGone, Event, ProtocolError, Ready
from broker.routing import Hop, broker_hop, client_hop
from broker.transport.log import JsonLog
from broker.transport.peer import Peer
from broker.transport.stream import Stream
from broker.transport.vitals import Vitals
from broker.wire import (
    PROTOCOL_VERSION,
    AnyMessage,
    Goodbye,
    Hello,
    Publish,
    Refused,
    StatusRequest,
    Welcome,
    WireError,
)

HANDSHAKE_S_MAX = 5.0
FLUSH_S_MAX = 2.0
"""How long a stopping broker tries to get rid of its queues."""
DIAL_S_FIRST = 0.05
DIAL_S_MAX = 2.0
FATAL_GOODBYES = {"unknown-neighbour": 2, "overlap-mode": 2, "duplicate-id": 2, "cycle": 2, "state-lost": 4}
"""What a neighbour may answer that no repetition will change, and our exit code then."""


class Server:
    def __init__(self, config: NodeConfig, log: JsonLog) -> None:
        self._config = config
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._incarnation = time.time_ns()
        names = [neighbour.id for neighbour in config.neighbours]
        self.core = Broker(config.id, names, self._incarnation, config.overlap, config.limits)
        self.peers: dict[Hop, Peer] = {}
        self._dirty: list[Peer] = []
        self._streams: set[Stream] = set()
        self._stopped: asyncio.Future[tuple[int, str]] = self._loop.create_future()
        self._vitals = Vitals(log.emit)
        self._started = time.monotonic()
        self.address = config.listen

    async def run(self) -> tuple[int, str]:
        """Serve until told to stop; the exit code, and the reason where it is not 0."""
        host, port = parse_address(self._config.listen)
        try:
            listener = await self._loop.create_server(lambda: Stream(self), host, port)
        except OSError as error:
            return 4, f"Broker {self._config.id} cannot listen on {self._config.listen}: {error.strerror}."
        self.address = "{}:{}".format(*listener.sockets[0].getsockname()[:2])
        for neighbour in self._config.neighbours:
            hop = broker_hop(neighbour.id)
            self.peers[hop] = Peer(hop, "broker", neighbour.delay)
        self._perform(self.core.start())
        self._flush()
        self._vitals.start()
        self._log.log("ready", broker=self._config.id, address=self.address, pid=os.getpid())
        tasks = [
            asyncio.create_task(self._dial(n.id, n.address)) for n in self._config.neighbours if n.address
        ]
        tasks.append(asyncio.create_task(self._look_after_peers()))
        try:
            return await self._stopped
        finally:
            for task in tasks:
                task.cancel()
            listener.close()
            await self._say_goodbye()
            self._vitals.stop()

    def stop(self, exit_code: int = 0, reason: str = "") -> None:
        if not self._stopped.done():
            self._stopped.set_result((exit_code, reason))

    # Streams

    def stream_opened(self, stream: Stream) -> None:
        self._streams.add(stream)
        self._loop.call_later(HANDSHAKE_S_MAX, self._check_handshake, stream)

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        messages = wire.decode(body)
        peer = stream.context
        if first == 0:
            for message in messages:
                self._outside_link(stream, message)
        elif not isinstance(peer, Peer) or peer.stream is not stream:
            raise WireError("a message before the greeting")
        else:
            self._receive(peer, first, processed, messages, body)

    def turn_ended(self, stream: Stream) -> None:
        self._flush(stream.context if isinstance(stream.context, Peer) else None)

    def stream_closed(self, stream: Stream, reason: str) -> None:
        self._streams.discard(stream)
        peer = stream.context
        if not isinstance(peer, Peer) or peer.stream is not stream:
            return
        peer.detach()
        peer.held.clear()
        self._log.log("away", peer=peer.hop, reason=reason)
        if peer.kind == "client":
            peer.grace_timer = self._loop.call_later(
                self._config.grace_ms / 1e3, self._gone, peer, f"away for {self._config.grace_ms} ms"
            )

    def _check_handshake(self, stream: Stream) -> None:
        if stream.is_open and stream.context is None:
            stream.close(Goodbye("timeout", f"no greeting within {HANDSHAKE_S_MAX:.0f} s"))

    # What is said outside a link: greetings and goodbyes

    def _outside_link(self, stream: Stream, message: AnyMessage) -> None:
        if isinstance(message, Hello):
            self._greet(stream, message)
        elif isinstance(message, Welcome):
            self._welcomed(stream, message)
        elif isinstance(message, Goodbye):
            self._dismissed(stream, message)
        elif isinstance(message, StatusRequest) and stream.context == "monitor":
            for answer in status.answers(self._describe(message.dump)):
                stream.say(answer)
        else:
            raise WireError(f"{type(message).__name__} outside a link")

    def _greet(self, stream: Stream, hello: Hello) -> None:
        if stream.context is not None:
            raise WireError("a second greeting")
        if hello.version != PROTOCOL_VERSION:
            raise WireError(f"protocol version {hello.version}; this broker speaks {PROTOCOL_VERSION}")
        if hello.peer and hello.peer != self._config.id:
            self._refuse(stream, "refused", f"This is broker {self._config.id}, not {hello.peer}.")
        elif hello.role == "monitor":
            stream.context = "monitor"
            stream.say(self._welcome(0))
        elif hello.role == "broker":
            self._greet_broker(stream, hello)
        else:
            self._greet_client(stream, hello)

    def _greet_broker(self, stream: Stream, hello: Hello) -> None:
        peer = self.peers.get(broker_hop(hello.name))
        mine = self._config
        if hello.name == mine.id:
            self._refuse(stream, "duplicate-id", f"Two brokers call themselves {mine.id}.")
        elif peer is None:
            reason = f"Broker {mine.id} does not know {hello.name} as a neighbour; add it to {mine.id}'s neighbours."
            self._refuse(stream, "unknown-neighbour", reason)
        elif hello.overlap != mine.overlap:
            reason = f"Broker {mine.id} has overlap {mine.overlap!r}, {hello.name} has {hello.overlap!r}; they must agree."
            self._refuse(stream, "overlap-mode", reason)
        elif peer.incarnation not in (0, hello.incarnation):
            reason = f"Broker {hello.name} has restarted and lost its state; restart the whole overlay."
            self._refuse(stream, "state-lost", reason)
        elif hello.peer_incarnation not in (0, self._incarnation):
            self._refuse(stream, "state-lost", f"Broker {mine.id} has restarted and lost its state.")
            self.stop(4, f"Broker {mine.id} has restarted and lost its state; restart the whole overlay.")
        else:
            stream.say(self._welcome(peer.link.processed))
            self._attach(peer, stream, hello.incarnation, hello.received)

    def _greet_client(self, stream: Stream, hello: Hello) -> None:
        hop = client_hop(hello.name)
        peer = self.peers.get(hop)
        if peer is not None and peer.incarnation != hello.incarnation:
            if peer.stream is not None:
                where = f"in use at broker {self._config.id}, from {peer.stream.peer_address}"
                self._refuse(stream, "in-use", f"The client id {hello.name} is {where}.")
                return
            self._gone(peer, "its successor has come")
            peer = None
        if peer is None and (hello.received or hello.peer_incarnation):
            reason = f"Broker {self._config.id} no longer knows this session of {hello.name}; connect anew."
            self._refuse(stream, "state-lost", reason)
            return
        is_new = peer is None
        if peer is None:
            peer = self.peers[hop] = Peer(hop, "client", self._config.clients)
        if peer.grace_timer is not None:
            peer.grace_timer.cancel()
        stream.say(self._welcome(peer.link.processed))
        self._attach(peer, stream, hello.incarnation, hello.received)
        if is_new:
            self._handle(hop, ClientArrived(hello.incarnation))

    def _welcomed(self, stream: Stream, welcome: Welcome) -> None:
        peer = stream.context
        if not isinstance(peer, Peer) or peer.stream is not None:
            raise WireError("a welcome that was not asked for")
        if peer.incarnation not in (0, welcome.incarnation):
            self._refuse(stream, "state-lost", f"Broker {welcome.broker} has restarted and lost its state.")
            return
        self._attach(peer, stream, welcome.incarnation, welcome.received)

    def _dismissed(self, stream: Stream, goodbye: Goodbye) -> None:
        peer = stream.context
        stream.close()
        if not isinstance(peer, Peer):
            return
        self._log.log("goodbye", peer=peer.hop, code=goodbye.code, reason=goodbye.reason)
        if peer.kind == "client":
            if goodbye.code == "leaving":
                self._gone(peer, "it said goodbye")
        elif goodbye.code in FATAL_GOODBYES:
            self.stop(FATAL_GOODBYES[goodbye.code], goodbye.reason)

    def _welcome(self, received: int) -> Welcome:
        return Welcome(self._config.id, self._incarnation, received, self._config.limits)

    def _refuse(self, stream: Stream, code: wire.GoodbyeCode, reason: str) -> None:
        self._log.log("refused", address=stream.peer_address, code=code, reason=reason)
        stream.close(Goodbye(code, reason))

    def _attach(self, peer: Peer, stream: Stream, incarnation: int, received: int) -> None:
        stream.context = peer
        peer.incarnation = incarnation
        peer.held.clear()
        peer.attach(stream, received)
        self._log.log("up", peer=peer.hop, address=stream.peer_address)

    async def _dial(self, neighbour: str, where: str) -> None:
        """Keep a connection to a neighbour, with back-off."""
        peer = self.peers[broker_hop(neighbour)]
        host, port = parse_address(where)
        pause_s = DIAL_S_FIRST
        while True:
            try:
                _, stream = await self._loop.create_connection(lambda: Stream(self, peer), host, port)
            except OSError:
                pause_s = min(DIAL_S_MAX, pause_s * 2)
            else:
                hello = Hello(
                    PROTOCOL_VERSION, "broker", self._config.id, neighbour,
                    self._incarnation, peer.incarnation, peer.link.processed, self._config.overlap,
                )  # fmt: skip
                stream.say(hello)
                await asyncio.shield(stream.closed)
                pause_s = DIAL_S_FIRST
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))

    # What arrives on a link

    def _receive(
        self, peer: Peer, first: int, processed: int, messages: list[AnyMessage], body: bytes
    ) -> None:
        if peer.link.accept(first, processed, len(messages)):
            peer.drained(self._release)
            peer.pump()
        if not messages:
            return
        if peer.waits_for or peer.held:
            peer.held.append((messages, body))
        else:
            self._process(peer, messages, body)

    def _release(self, peer: Peer) -> None:
        """Its destinations have room again: go on with what was held."""
        while peer.held and not peer.waits_for and peer.stream is not None:
            messages, body = peer.held.popleft()
            try:
                self._process(peer, messages, body)
            except WireError as error:
                peer.stream.close(Goodbye("protocol", str(error)))
                break
            self._flush(peer)
        self._flush(peer)

    def _process(self, peer: Peer, messages: list[AnyMessage], body: bytes) -> None:
        """In order. Publications that go the same way, one behind the other, are put there together."""
        client = peer.name if peer.kind == "client" else None
        source, core = peer.hop, self.core
        next_hops = core.routing.next_hops
        run: list[bytes | Raw] = []
        run_hops: Collection[Hop] = ()
        try:
            for message, piece in zip(messages, wire.split(body, len(messages)), strict=True):
                if type(message) is Publish and (
                    client is None or not (reason := core.admit(client, message))
                ):
                    hops = next_hops(message.event, source)
                    if hops is not run_hops:
                        self._put(run, run_hops)
                        run, run_hops = [], hops
                    run.append(piece)
                    continue
                self._put(run, run_hops)
                run, run_hops = [], ()
                if type(message) is Publish:
                    self._put([wire.encode(Refused(message.id, reason))], (source,))
                else:
                    self._handle(source, message)
        except ProtocolError as error:
            raise WireError(str(error)) from error
        finally:
            self._put(run, run_hops)
        peer.done(len(messages), len(body))

    def _put(self, pieces: Sequence[bytes | Raw], hops: Iterable[Hop]) -> None:
        for hop in hops:
            peer = self.peers.get(hop)
            if peer is not None and pieces:
                if not peer.outbox:
                    self._dirty.append(peer)
                peer.outbox.extend(pieces)

    def _handle(self, source: Hop, message: AnyMessage | ClientArrived | ClientGone) -> None:
        self._perform(self.core.handle(self._loop.time(), source, message))

    def _perform(self, ready: Ready) -> None:
        encoded, last = b"", None
        for hop, message in ready.sends:
            if message is not last:
                encoded, last = wire.encode(message), message
            self._put((encoded,), (hop,))
        for event in ready.events:
            self._note(event)

    def _note(self, event: Event) -> None:
        self._log.log(event.name, **event.fields)
        if event.name == "fatal":
            self.stop(event.fields["exit_code"], event.fields["reason"])
        elif event.name == "client-refused":
            peer = self.peers.pop(client_hop(event.fields["client"]), None)
            if peer is not None and peer.stream is not None:
                self._refuse(peer.stream, event.fields["code"], event.fields["reason"])
                peer.forget(self._release)

    def _flush(self, source: Peer | None = None) -> None:
        """Write what this turn has gathered; a destination that is full makes the source wait."""
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for peer in dirty:
                peer.flush()
                if peer.link.queue_bytes > self._config.queue_bytes_max and peer.kind == "client":
                    self._cut_off(peer)
                elif source is not None and source is not peer and peer.is_full:
                    peer.make_wait(source, self._release)

    # Clients that are slow or gone

    def _cut_off(self, peer: Peer) -> None:
        limit = self._config.queue_bytes_max
        reason = f"{peer.link.queue_bytes} bytes wait for {peer.name}; the limit is {limit}"
        if peer.stream is not None:
            peer.stream.close(Goodbye("slow-consumer", reason))
        self._gone(peer, f"slow consumer: {reason}")

    def _gone(self, peer: Peer, reason: str) -> None:
        if self.peers.get(peer.hop) is not peer:
            return
        del self.peers[peer.hop]
        peer.forget(self._release)
        self._handle(peer.hop, ClientGone(reason))
        self._loop.call_soon(self._flush)

    async def _look_after_peers(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            now = self._loop.time()
            for peer in tuple(self.peers.values()):
                if not peer.look_after(now) and peer.stream is not None:
                    self._log.log("silent", peer=peer.hop)
                    peer.stream.abort()

    async def _say_goodbye(self) -> None:
        """Flush what can be flushed within the bound, and tell everybody."""
        deadline = self._loop.time() + FLUSH_S_MAX
        self._flush()
        while self._loop.time() < deadline and any(
            p.stream and p.link.queue_messages for p in self.peers.values()
        ):
            await asyncio.sleep(0.01)
        _, reason = self._stopped.result() if self._stopped.done() else (0, "")
        for stream in tuple(self._streams):
            stream.close(Goodbye("stopping", reason or f"Broker {self._config.id} is stopping."))
        while self._streams and self._loop.time() < deadline + 0.5:
            await asyncio.sleep(0.01)
        for peer in self.peers.values():
            peer.close()
        self._log.log("stopped", broker=self._config.id)

    def _describe(self, dump: bool) -> dict[str, Any]:
        return status.describe(self.core, dump) | {
            "address": self.address,
            "pid": os.getpid(),
            "uptime_s": time.monotonic() - self._started,
            "vitals": self._vitals.latest,
            "links": [peer.status() for peer in self.peers.values()],
        }
