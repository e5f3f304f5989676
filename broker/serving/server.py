"""The broker's process: its sockets and its life, around the pure core.

What is said outside a link is the business of `reception`, what arrives on links that of `forwarding`, and
`sessions` knows the peers.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from broker import status
from broker.config import NodeConfig
from broker.core import Broker
from broker.journal.failures import FolderRefused, JournalFailed
from broker.node.history import HistoryFile
from broker.node.log import JsonLog
from broker.node.vitals import Vitals
from broker.protocol import wire
from broker.protocol.address import parse_address
from broker.protocol.events import CLIENT_REFUSED, FATAL, LOGGED
from broker.protocol.hops import broker_hop, client_hop
from broker.protocol.messages import Goodbye
from broker.protocol.wire import WireError
from broker.routing.ready import Notice
from broker.serving.durability import Durability
from broker.serving.forwarding import Forwarder
from broker.serving.impairment import Impairment
from broker.serving.monitors import Monitors
from broker.serving.peer import Peer
from broker.serving.reception import Reception
from broker.serving.recording import RecordingFile
from broker.serving.sessions import Sessions
from broker.sessions.saved import Saved, whole_state
from broker.transport.dial import HANDSHAKE_S_MAX, Backoff, carry
from broker.transport.stream import Stream

FLUSH_S_MAX = 2.0
"""How long a stopping broker tries to get rid of its queues."""
DIAL_S_FIRST = 0.05
DIAL_S_MAX = 2.0
GREETING_BYTES_MAX = 16 << 10
"""Of a frame from a peer that has not been let in: as long as a name may be, not as a message."""


class Server:
    def __init__(self, config: NodeConfig, log: JsonLog) -> None:
        self._config = config
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._durability = None if config.durable == "none" else Durability(config, config.durable, log)
        """Raises `FolderRefused`."""
        saved = None if self._durability is None else self._durability.saved
        self._incarnation = time.time_ns() if self._durability is None else self._durability.incarnation
        is_recorded = bool(config.history) and config.history_detail == "all"
        self._recording = RecordingFile(self._record) if is_recorded else None
        self.core = self._made_core() if saved is None else saved.core
        self._forwarder = Forwarder(self.core, self, config.queue_bytes_max)
        departed = None if saved is None else saved.departed
        self._impairment = Impairment(config.control, log)
        self._sessions = Sessions(
            config,
            self._incarnation,
            self._forwarder,
            log,
            self._recording,
            departed,
            self._impairment.delaying,
        )
        self._reception = Reception(
            config, self._incarnation, self._sessions, Monitors(self._describe), log, self.stop
        )
        self._history: HistoryFile | None = None
        self._is_recovering = False
        self._streams: set[Stream] = set()
        self._stopped: asyncio.Future[tuple[int, str]] = self._loop.create_future()
        self._vitals = Vitals(log.emit)
        self._started = time.monotonic()
        self.address = config.listen

    def _made_core(self) -> Broker:
        config = self._config
        if self._recording is not None:
            return self._recording.core(config, self._incarnation)
        names = [neighbour.id for neighbour in config.neighbours]
        return Broker(config.id, names, self._incarnation, config.overlap, config.limits)

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
        try:
            self._begin()
        except FolderRefused as error:
            listener.close()
            return 2, str(error)
        self._vitals.start()
        self._impairment.begin(self._streams)
        self._log.log("ready", broker=self._config.id, address=self.address, pid=os.getpid())
        tasks = [
            asyncio.create_task(self._dial(n.id, n.address)) for n in self._config.neighbours if n.address
        ]
        tasks.append(asyncio.create_task(self._sessions.look_after()))
        try:
            return await self._stopped
        finally:
            listener.close()
            self._impairment.end()
            await self._say_goodbye()
            for task in tasks:
                task.cancel()
            self._vitals.stop()
            self._forwarder.close()
            if self._durability is not None:
                self._durability.close(None if self._forwarder.gate else self._saved())
            if self._recording is not None:
                self._recording.end()
            if self._history is not None:
                self._history.close()

    def _begin(self) -> None:
        """As somebody new, or where the journal ends."""
        durability = self._durability
        if durability is None:
            self._forwarder.perform(self.core.start())
            self._forwarder.flush()
            return
        self._is_recovering = True
        count = durability.recover(self._forwarder, self._sessions)
        self._is_recovering = False
        if self._history is not None:
            # With the mode `os` a machine may have forgotten entries of which its history tells.
            self._history.passed_over = 0
        self._forwarder.keep_journal(durability.folder, self)
        if not count and durability.saved is None:
            self._forwarder.begin(durability.first_entry(self._forwarder.time()), self.core.start())
        else:
            self._sessions.wait_for_all()

    def _start_history(self) -> None:
        config, durability = self._config, self._durability
        if config.history:
            goes_on = durability is not None
            self._history = HistoryFile(
                config.history, config.id, "broker", self._incarnation, config.history_detail, goes_on
            )
            if durability is not None:
                before = 1 if durability.saved is None else durability.saved.lines
                self._history.passed_over = max(0, self._history.number - before)
            self._forwarder.keep_history(self._history)
            if self._recording is not None:
                self._recording.begin(self.core)

    def _record(self, name: str, fields: Mapping[str, Any] | Struct) -> None:
        if self._history is not None:
            self._history.record(name, fields)

    def _note(self, name: str, fields: Mapping[str, Any]) -> None:
        if self._history is not None:
            self._history.note(name, fields)

    # The journal

    def sync_soon(self, sync: Callable[[], None]) -> None:
        self._loop.call_soon(sync)

    def journal_failed(self, error: JournalFailed) -> None:
        self.stop(4, f"Broker {self._config.id} ends: {error}")

    def rested(self) -> None:
        if self._durability is not None and self._durability.is_snapshot_due:
            try:
                self._durability.begin_snapshot(self._saved())
            except JournalFailed as error:
                self.journal_failed(error)

    def _saved(self) -> Saved:
        lines = 0
        if self._history is not None:
            self._history.flush()
            lines = self._history.number
        return whole_state(self.core, self._sessions, lines)

    def stop(self, exit_code: int = 0, reason: str = "") -> None:
        if not self._stopped.done():
            self._stopped.set_result((exit_code, reason))

    async def _dial(self, neighbour: str, where: str) -> None:
        """Keep a connection to a neighbour."""
        peer = self._sessions.peers[broker_hop(neighbour)]
        host, port = parse_address(where)
        backoff = Backoff(peer, DIAL_S_FIRST, DIAL_S_MAX)
        while not self._stopped.done():
            await self._impairment.passable(peer.hop)
            await carry(peer, self, host, port)
            await backoff.pause()

    async def _say_goodbye(self) -> None:
        """Flush what can be flushed within the bound, and tell everybody."""
        deadline = self._loop.time() + FLUSH_S_MAX
        peers = self._sessions.peers
        self._forwarder.sync()
        self._forwarder.flush()
        while any(peer.stream and peer.is_busy for peer in peers.values()):
            await asyncio.sleep(0.01)
            if self._loop.time() > deadline:
                break
        streams = tuple(self._streams)
        for stream in streams:
            stream.close(self._farewell())
        if streams:
            await asyncio.wait([stream.closed for stream in streams], timeout=0.5)
        self._forwarder.sync()
        self._forwarder.flush()  # what the last goodbyes have led to
        for peer in peers.values():
            peer.close()
        self._log.log("stopped", broker=self._config.id)

    def _farewell(self) -> Goodbye:
        _, reason = self._stopped.result() if self._stopped.done() else (0, "")
        return Goodbye("stopping", reason or f"Broker {self._config.id} is stopping.")

    # Streams

    def stream_opened(self, stream: Stream) -> None:
        self._streams.add(stream)
        if self._stopped.done():
            stream.close(self._farewell())
        elif isinstance(stream.context, Peer):
            self._forwarder.gate.submit(self._say_hello, stream, stream.context)
        else:
            stream.body_bytes_max = GREETING_BYTES_MAX
            stream.limit(HANDSHAKE_S_MAX, partial(self._check_handshake, stream))

    def _say_hello(self, stream: Stream, peer: Peer) -> None:
        stream.say(self._reception.hello(peer))

    def frame_received(self, stream: Stream, first: int, processed: int, body: bytes) -> None:
        messages = wire.decode(body)
        peer = stream.context
        if first and type(peer) is Peer and peer.stream is stream:
            self._forwarder.receive(peer, first, processed, messages, body)
        elif first:
            raise WireError("a message before the greeting")
        else:
            for message in messages:
                if stream.is_open and not self._impairment.keeps_out(stream, message):
                    self._reception.take(stream, message)

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
        if isinstance(peer, Peer) and peer.stream is stream:
            self._sessions.interrupted(peer, reason)

    def _check_handshake(self, stream: Stream) -> None:
        if stream.is_open and stream.context is None:
            goodbye = Goodbye("timeout", f"no greeting within {HANDSHAKE_S_MAX:.0f} s")
            self._sessions.refuse(stream, goodbye)

    # What the forwarder tells

    def happened(self, notice: Notice) -> None:
        self._note(notice.name, notice.fields)
        if notice.name not in LOGGED:
            return  # too much for people
        if not self._is_recovering:
            self._log.log(notice.name, **notice.fields)
        if notice.name == FATAL:
            self.stop(notice.fields["exit_code"], notice.fields["reason"])
        elif notice.name == CLIENT_REFUSED:
            peer = self._sessions.peers.get(client_hop(notice.fields["client"]))
            if peer is not None:
                goodbye = Goodbye(notice.fields["code"], notice.fields["reason"])
                self._sessions.part_with(peer, goodbye)

    def is_too_slow(self, peer: Peer) -> None:
        self._sessions.too_slow(peer)

    def failed(self, stream: Stream) -> None:
        """It broke the protocol. A client is gone by that: what it meant to say cannot be guessed."""
        peer = stream.context
        goodbye = Goodbye("protocol", stream.fault)
        if isinstance(peer, Peer) and peer.kind == "client" and peer.stream is stream:
            self._sessions.gone(peer, goodbye)
        else:
            self._sessions.refuse(stream, goodbye)

    def _describe(self, dump: bool) -> dict[str, Any]:
        return status.describe(self.core, dump) | {
            "address": self.address,
            "pid": os.getpid(),
            "uptime_s": time.monotonic() - self._started,
            "vitals": self._vitals.latest,
            "links": [peer.status() for peer in self._sessions.peers.values()],
            "departed": self._sessions.departed.as_list(),
            "journal": None if self._durability is None else self._durability.describe(),
        }
