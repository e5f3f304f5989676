"""What is said outside a link: greetings, and who is let in by them; goodbyes; a monitor's questions.

Who may come in is decided in `broker.sessions`, without I/O.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.config import NodeConfig
from broker.node.log import JsonLog
from broker.protocol.hops import broker_hop
from broker.protocol.messages import Goodbye, Hello, Ping, StatusRequest, Welcome
from broker.protocol.wire import PROTOCOL_VERSION, AnyMessage, WireError
from broker.serving.monitors import Monitors
from broker.serving.peer import Peer
from broker.serving.sessions import Sessions
from broker.sessions import greeting
from broker.transport.stream import Stream

CONFIGURATION_GOODBYES = frozenset(
    {"unknown-neighbour", "both-dial", "overlap-mode", "duplicate-id", "cycle"}
)
"""What a neighbour may answer that no repetition will change."""
MONITOR = "monitor"
"""The context of a stream by which somebody asks."""


class Reception:
    def __init__(
        self,
        config: NodeConfig,
        incarnation: int,
        sessions: Sessions,
        monitors: Monitors,
        log: JsonLog,
        stop: Callable[[int, str], None],
    ) -> None:
        self._config = config
        self._incarnation = incarnation
        self._sessions = sessions
        self._monitors = monitors
        self._log = log
        self._stop = stop

    def hello(self, peer: Peer) -> Hello:
        """To a neighbour that we have dialled."""
        return Hello(
            PROTOCOL_VERSION, "broker", self._config.id, peer.name,
            self._incarnation, peer.incarnation, peer.link.processed, self._config.overlap,
        )  # fmt: skip

    def take(self, stream: Stream, message: AnyMessage) -> None:
        if isinstance(message, Hello):
            self._greet(stream, message)
        elif isinstance(message, Welcome):
            self._welcomed(stream, message)
        elif isinstance(message, Goodbye):
            self._dismissed(stream, message)
        elif isinstance(message, Ping) and isinstance(stream.context, Peer):
            stream.answer_ping()
        elif isinstance(message, StatusRequest) and stream.context == MONITOR:
            self._monitors.asked(stream, message)
        else:
            raise WireError(f"{type(message).__name__} outside a link")

    def _greet(self, stream: Stream, hello: Hello) -> None:
        if stream.context is not None:
            raise WireError("a second greeting")
        greeting.check(hello)
        refusal = greeting.refusal(hello, self._config)
        if refusal is not None:
            self._sessions.refuse(stream, refusal)
        elif hello.role == "monitor":
            stream.context = MONITOR
            stream.say(self._sessions.greeting_to())
        elif hello.role == "broker":
            self._greet_broker(stream, hello)
        else:
            self._sessions.greet_client(stream, hello)

    def _greet_broker(self, stream: Stream, hello: Hello) -> None:
        peer = self._sessions.peers[broker_hop(hello.name)]
        if loss := self._sessions.greet_broker(peer, stream, hello):
            self._end_loser(stream, *loss)

    def _end_loser(self, stream: Stream, loser: str, goodbye: Goodbye) -> None:
        """One of two neighbours has lost something that the other knows."""
        if loser == self._config.id:
            # The other has lost nothing, and need not end because we do.
            self._stop(4, goodbye.reason)
            goodbye = Goodbye("stopping", goodbye.reason)
        self._sessions.refuse(stream, goodbye)

    def _welcomed(self, stream: Stream, welcome: Welcome) -> None:
        peer = stream.context
        if not isinstance(peer, Peer) or peer.stream is not None:
            raise WireError("a welcome that was not asked for")
        if loss := self._sessions.welcomed(peer, stream, welcome):
            self._end_loser(stream, *loss)

    def _dismissed(self, stream: Stream, goodbye: Goodbye) -> None:
        peer = stream.context
        stream.close()
        if not isinstance(peer, Peer):
            return
        self._log.log("goodbye", peer=peer.hop, code=goodbye.code, reason=goodbye.reason)
        if peer.kind == "client":
            if goodbye.code == "leaving" and peer.stream is stream:
                self._sessions.gone(peer, goodbye)
        elif goodbye.code == "state-lost":
            self._stop(4, goodbye.reason)
        elif goodbye.code in CONFIGURATION_GOODBYES:
            self._stop(2, goodbye.reason)
