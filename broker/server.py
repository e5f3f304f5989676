"""The broker's process: sockets, sessions and timers around the pure core; all its I/O is here and in
`broker.transport`.

A peer (`Peer`) outlives its connections: a neighbour for the whole life of the process, a client until
it says goodbye or stays away longer than the grace time. What it says on its link is the business of
`broker.transport.forwarding`.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import Any

from broker import greeting, status, wire
from broker.address import parse_address
from broker.config import NodeConfig
from broker.core import Broker, ClientArrived, ClientAway, ClientBack, ClientGone, Event
from broker.routing import Hop, broker_hop, client_hop
from broker.transport.channel import look_s
from broker.transport.dial import HANDSHAKE_S_MAX, Backoff, carry
from broker.transport.forwarding import Forwarder
from broker.transport.history import History
from broker.transport.log import JsonLog
from broker.transport.peer import HOLD_BYTES, Peer
from broker.transport.stream import Stream
from broker.transport.vitals import Vitals
from broker.wire import (
    PROTOCOL_VERSION,
    AnyMessage,
    Goodbye,
    Hello,
    Ping,
    StatusRequest,
    Welcome,
    WireError,
)

FLUSH_S_MAX = 2.0
"""How long a stopping broker tries to get rid of its queues."""
DIAL_S_FIRST = 0.05
DIAL_S_MAX = 2.0
STATUS_BACKLOG_BYTES_MAX = 1 << 20
GREETING_BYTES_MAX = 16 << 10
"""Of a frame from a peer that has not been let in: as long as a name may be, not as a message."""
CONFIGURATION_GOODBYES = frozenset(
    {"unknown-neighbour", "both-dial", "overlap-mode", "duplicate-id", "cycle"}
)
"""What a neighbour may answer that no repetition will change."""

OF_TRANSACTIONS = frozenset({"begun", "processed", "voted", "committed", "aborted", "steps-void"})
"""Events of the core that are for the history alone."""


class Server:
    def __init__(self, config: NodeConfig, log: JsonLog) -> None:
        self._config = config
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._incarnation = time.time_ns()
        names = [neighbour.id for neighbour in config.neighbours]
        self.core = Broker(config.id, names, self._incarnation, config.overlap, config.limits)
        self._forwarder = Forwarder(self.core, self, config.queue_bytes_max)
        self.peers = self._forwarder.peers
        self._history: History | None = None
        self._streams: set[Stream] = set()
        self._asking: set[Stream] = set()
        """Monitors that wait for an answer."""
        self._departed = greeting.Departed()
        self._stopped: asyncio.Future[tuple[int, str]] = self._loop.create_future()
        self._vitals = Vitals(log.emit)
        self._started = time.monotonic()
        self.address = config.listen

    async def run(self) -> tuple[int, str]:
        """Serve until told to stop; the exit code, and the reason where it is not 0."""
        host, port = parse_address(self._config.listen)
        try:
            self._start_history()
        except OSError as error:
            return 4, f"Broker {self._config.id} cannot write to {self._config.history}: {error.strerror}."
        try:
            listener = await self._loop.create_server(lambda: Stream(self), host, port)
        except OSError as error:
            return 4, f"Broker {self._config.id} cannot listen on {self._config.listen}: {error.strerror}."
        self.address = "{}:{}".format(*listener.sockets[0].getsockname()[:2])
        for neighbour in self._config.neighbours:
            hop = broker_hop(neighbour.id)
            self.peers[hop] = Peer(hop, "broker", neighbour.delay, self._config.silence_ms / 1e3)
        self._forwarder.perform(self.core.start())
        self._forwarder.flush()
        self._vitals.start()
        self._log.log("ready", broker=self._config.id, address=self.address, pid=os.getpid())
        tasks = [
            asyncio.create_task(self._dial(n.id, n.address)) for n in self._config.neighbours if n.address
        ]
        tasks.append(asyncio.create_task(self._look_after_peers()))
        try:
            return await self._stopped
        finally:
            listener.close()
            await self._say_goodbye()
            for task in tasks:
                task.cancel()
            self._vitals.stop()
            self._forwarder.close()
            if self._history is not None:
                self._history.close()

    def _start_history(self) -> None:
        config = self._config
        if config.history:
            self._history = History(
                config.history, config.id, "broker", self._incarnation, config.history_detail
            )
            self._forwarder.keep_history(self._history)

    def stop(self, exit_code: int = 0, reason: str = "") -> None:
        if not self._stopped.done():
            self._stopped.set_result((exit_code, reason))

    # Streams

    def stream_opened(self, stream: Stream) -> None:
        self._streams.add(stream)
        if isinstance(stream.context, Peer):
            stream.say(self._hello(stream.context))
        else:
            stream.body_bytes_max = GREETING_BYTES_MAX
            stream.limit(HANDSHAKE_S_MAX, partial(self._check_handshake, stream))

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        messages = wire.decode(body)
        peer = stream.context
        if first and type(peer) is Peer and peer.stream is stream:
            self._forwarder.receive(peer, first, processed, messages, body)
        elif first:
            raise WireError("a message before the greeting")
        else:
            for message in messages:
                if stream.is_open:
                    self._outside_link(stream, message)

    def turn_ended(self, stream: Stream) -> None:
        if stream.fault:
            self.failed(stream)
        peer = stream.context
        self._forwarder.flush(peer if type(peer) is Peer else None)

    def stream_closed(self, stream: Stream, reason: str) -> None:
        self._streams.discard(stream)
        peer = stream.context
        if peer is None and not stream.was_dismissed:
            self._log.log("hung-up", address=stream.peer_address, reason=reason)
        if not isinstance(peer, Peer) or peer.stream is not stream:
            return
        peer.detach()
        peer.held.clear()
        self._log.log("away", peer=peer.hop, reason=reason)
        if peer.kind == "client":
            grace_ms = self._config.grace_ms
            goodbye = greeting.away_too_long(peer.name, self._config.id, grace_ms)
            peer.grace_timer = self._loop.call_later(grace_ms / 1e3, self._gone, peer, goodbye)
            self._forwarder.handle(peer.hop, ClientAway())
            self._loop.call_soon(self._forwarder.flush)

    def _check_handshake(self, stream: Stream) -> None:
        if stream.is_open and stream.context is None:
            self._refuse(stream, Goodbye("timeout", f"no greeting within {HANDSHAKE_S_MAX:.0f} s"))

    # What is said outside a link

    def _outside_link(self, stream: Stream, message: AnyMessage) -> None:
        if isinstance(message, Hello):
            self._greet(stream, message)
        elif isinstance(message, Welcome):
            self._welcomed(stream, message)
        elif isinstance(message, Goodbye):
            self._dismissed(stream, message)
        elif isinstance(message, Ping) and isinstance(stream.context, Peer):
            stream.answer_ping()
        elif isinstance(message, StatusRequest) and stream.context == "monitor":
            self._answer_status(stream, message)
        else:
            raise WireError(f"{type(message).__name__} outside a link")

    def _greet(self, stream: Stream, hello: Hello) -> None:
        if stream.context is not None:
            raise WireError("a second greeting")
        greeting.check(hello)
        refusal = greeting.refusal(hello, self._config)
        if refusal is not None:
            self._refuse(stream, refusal)
        elif hello.role == "monitor":
            stream.context = "monitor"
            stream.say(self._welcome(0))
        elif hello.role == "broker":
            self._greet_broker(stream, hello)
        else:
            self._greet_client(stream, hello)

    def _greet_broker(self, stream: Stream, hello: Hello) -> None:
        peer = self.peers[broker_hop(hello.name)]
        me = self._config.id
        loser = greeting.lost_state(hello, me, self._incarnation, peer.incarnation)
        if not loser:
            self._attach(peer, stream, hello.incarnation, hello.received, self._welcome(peer.link.processed))
            return
        goodbye = greeting.state_lost(loser)
        if loser == me:
            # It has lost nothing, and need not end because we do.
            self.stop(4, goodbye.reason)
            goodbye = Goodbye("stopping", goodbye.reason)
        self._refuse(stream, goodbye)

    def _greet_client(self, stream: Stream, hello: Hello) -> None:
        hop, me = client_hop(hello.name), self._config.id
        peer = self.peers.get(hop)
        if peer is not None and peer.incarnation == hello.incarnation:
            self._attach(peer, stream, hello.incarnation, hello.received, self._welcome(peer.link.processed))
            self._forwarder.handle(hop, ClientBack())
        elif greeting.is_return(hello):
            self._refuse(stream, self._departed.goodbye(hello.name, hello.incarnation, me))
        elif peer is not None and peer.stream is not None:
            self._refuse(stream, greeting.in_use(hello.name, me, peer.stream.peer_address))
        else:
            if peer is not None:
                self._gone(peer, greeting.replaced(hello.name, me))
            self._let_in(hop, stream, hello)

    def _let_in(self, hop: Hop, stream: Stream, hello: Hello) -> None:
        """A new client; the rest of the overlay may still object."""
        config = self._config
        peer = Peer(hop, "client", config.clients, config.silence_ms / 1e3)
        peer.hold_bytes = min(HOLD_BYTES, config.queue_bytes_max // 4)
        peer.patience_s = config.patience_ms / 1e3
        self.peers[hop] = peer
        self._attach(peer, stream, hello.incarnation, 0, self._welcome(0))
        self._forwarder.handle(hop, ClientArrived(hello.incarnation))

    def _welcomed(self, stream: Stream, welcome: Welcome) -> None:
        peer = stream.context
        if not isinstance(peer, Peer) or peer.stream is not None:
            raise WireError("a welcome that was not asked for")
        if peer.incarnation not in (0, welcome.incarnation):
            self._refuse(stream, greeting.state_lost(welcome.broker))
            return
        self._attach(peer, stream, welcome.incarnation, welcome.received)

    def _dismissed(self, stream: Stream, goodbye: Goodbye) -> None:
        peer = stream.context
        stream.close()
        if not isinstance(peer, Peer):
            return
        self._log.log("goodbye", peer=peer.hop, code=goodbye.code, reason=goodbye.reason)
        if peer.kind == "client":
            if goodbye.code == "leaving" and peer.stream is stream:
                self._gone(peer, goodbye)
        elif goodbye.code == "state-lost":
            self.stop(4, goodbye.reason)
        elif goodbye.code in CONFIGURATION_GOODBYES:
            self.stop(2, goodbye.reason)

    def _hello(self, peer: Peer) -> Hello:
        return Hello(
            PROTOCOL_VERSION, "broker", self._config.id, peer.name,
            self._incarnation, peer.incarnation, peer.link.processed, self._config.overlap,
        )  # fmt: skip

    def _welcome(self, received: int) -> Welcome:
        return Welcome(self._config.id, self._incarnation, received, self._config.limits)

    def _refuse(self, stream: Stream, goodbye: Goodbye) -> None:
        self._log.log("refused", address=stream.peer_address, code=goodbye.code, reason=goodbye.reason)
        stream.close(goodbye)

    def _attach(
        self, peer: Peer, stream: Stream, incarnation: int, received: int, welcome: Welcome | None = None
    ) -> None:
        peer.attach(stream, received, welcome)
        stream.context = peer
        stream.body_bytes_max = wire.BODY_BYTES_MAX
        peer.incarnation = incarnation
        peer.held.clear()
        if peer.grace_timer is not None:
            peer.grace_timer.cancel()
            peer.grace_timer = None
        # What it has processed may be known only now, and others may have waited for that.
        peer.drained(self._forwarder.release)
        self._log.log("up", peer=peer.hop, address=stream.peer_address)

    async def _dial(self, neighbour: str, where: str) -> None:
        """Keep a connection to a neighbour."""
        peer = self.peers[broker_hop(neighbour)]
        host, port = parse_address(where)
        backoff = Backoff(peer, DIAL_S_FIRST, DIAL_S_MAX)
        while not self._stopped.done():
            await carry(peer, self, host, port)
            await backoff.pause()

    # What the forwarder tells

    def happened(self, event: Event) -> None:
        if self._history is not None:
            self._history.note(event.name, event.fields)
        if event.name in OF_TRANSACTIONS:
            return  # too much for the log
        self._log.log(event.name, **event.fields)
        if event.name == "fatal":
            self.stop(event.fields["exit_code"], event.fields["reason"])
        elif event.name == "client-refused":
            peer = self.peers.get(client_hop(event.fields["client"]))
            if peer is not None:
                self._part_with(peer, Goodbye(event.fields["code"], event.fields["reason"]))

    def is_too_slow(self, peer: Peer) -> None:
        limit = self._config.queue_bytes_max
        self._gone(peer, greeting.too_slow(peer.name, peer.link.queue_bytes, limit))

    def failed(self, stream: Stream) -> None:
        """It broke the protocol. A client is gone by that: what it meant to say cannot be guessed."""
        peer = stream.context
        goodbye = Goodbye("protocol", stream.fault)
        if isinstance(peer, Peer) and peer.kind == "client" and peer.stream is stream:
            self._gone(peer, goodbye)
        else:
            self._refuse(stream, goodbye)

    # Clients that are slow or gone

    def _gone(self, peer: Peer, goodbye: Goodbye) -> None:
        if self.peers.get(peer.hop) is not peer:
            return
        self._part_with(peer, goodbye)
        self._forwarder.handle(peer.hop, ClientGone(goodbye.reason))
        self._loop.call_soon(self._forwarder.flush)

    def _part_with(self, peer: Peer, goodbye: Goodbye) -> None:
        """A client's session ends here; with what reason, it is told now or when it comes back."""
        del self.peers[peer.hop]
        if goodbye.code != "leaving":
            self._departed.add(peer.name, peer.incarnation, goodbye)
            if peer.stream is not None:
                self._refuse(peer.stream, goodbye)
        peer.forget(self._forwarder.release)

    async def _look_after_peers(self) -> None:
        while True:
            await asyncio.sleep(look_s(self._config.silence_ms / 1e3))
            now = self._loop.time()
            for peer in tuple(self.peers.values()):
                if not peer.look_after(now):
                    self._log.log("silent", peer=peer.hop)

    async def _say_goodbye(self) -> None:
        """Flush what can be flushed within the bound, and tell everybody."""
        deadline = self._loop.time() + FLUSH_S_MAX
        self._forwarder.flush()
        while any(peer.stream and peer.is_busy for peer in self.peers.values()):
            await asyncio.sleep(0.01)
            if self._loop.time() > deadline:
                break
        _, reason = self._stopped.result() if self._stopped.done() else (0, "")
        streams = tuple(self._streams)
        for stream in streams:
            stream.close(Goodbye("stopping", reason or f"Broker {self._config.id} is stopping."))
        if streams:
            await asyncio.wait([stream.closed for stream in streams], timeout=0.5)
        for peer in self.peers.values():
            peer.close()
        self._log.log("stopped", broker=self._config.id)

    def _answer_status(self, stream: Stream, request: StatusRequest) -> None:
        """In a turn of its own: a hundred requests in one frame must not keep everybody else waiting."""
        if stream in self._asking or stream.unwritten_bytes > STATUS_BACKLOG_BYTES_MAX:
            raise WireError("a status request before the answer to the one before it was read")
        self._asking.add(stream)
        self._loop.call_soon(self._tell_status, stream, request.dump)

    def _tell_status(self, stream: Stream, dump: bool) -> None:
        self._asking.discard(stream)
        for answer in status.answers(self._describe(dump)) if stream.is_open else ():
            stream.say(answer)

    def _describe(self, dump: bool) -> dict[str, Any]:
        return status.describe(self.core, dump) | {
            "address": self.address,
            "pid": os.getpid(),
            "uptime_s": time.monotonic() - self._started,
            "vitals": self._vitals.latest,
            "links": [peer.status() for peer in self.peers.values()],
            "departed": self._departed.as_list(),
        }
