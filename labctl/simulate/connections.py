"""Connections over virtual time: frames in flight, and what becomes of them when a connection is lost.

A lost connection has delivered a part of what was in flight on it, from the beginning, as TCP does; each side
notices by itself, later. What is written on it meanwhile goes nowhere.

What may be under way, and how long somebody may wait for a slow client, is watched by books of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from broker.gate.clock import Timer
from broker.gate.peer import LOOKS, Peer, Release
from broker.protocol import wire
from broker.protocol.hops import Hop
from broker.protocol.link import Link
from broker.protocol.vocabulary import Message

NOTICE_S = 2e-3
"""Mean time until a side knows that its connection is lost."""
SLACK_S = 1e-9
"""Times are sums, and not exact."""
_FIRST = slice(4, 12)
_COUNT = slice(wire.HEADER_BYTES + 1, wire.HEADER_BYTES + 5)


class Holder(Protocol):
    """Who has one side of a connection."""

    hop: Hop

    def receive(self, end: End, sent: float, data: bytes) -> None: ...

    def lost(self, end: End) -> None: ...


class Network(Protocol):
    """The world, as connections see it."""

    now: float

    def due(self, link: tuple[Hop, Hop]) -> float:
        """When what is sent on a link now arrives."""

    def at(self, time: float, callback: Callable[..., None], *arguments: object) -> None: ...


Watch = Callable[["End", bytes], None]


class End:
    """One side of a connection: a `broker.gate.channel.Pipe` of whoever has it."""

    def __init__(self, network: Network, holder: Holder, watch: Watch | None = None) -> None:
        """`watch` is told what is written here, and does not change it."""
        self.heard = 0.0
        self.fault = ""
        self.context: Any = None
        """Whose link it carries, once that is known."""
        self.holder = holder
        self.other: End
        self.is_open = True
        self.is_lost = False
        """And its holder knows."""
        self._network = network
        self._watch = watch
        self._sent = self._arrived = 0
        """Frames."""
        self._last: float = float("inf")
        """No frame behind this one arrives."""
        self._newest: list[int] = []
        """Of each frame, the number of its last message on the link."""

    def write(self, data: bytes, /) -> None:
        if not self.is_open:
            return
        if self._watch is not None:
            self._watch(self, data)
        self._sent += 1
        first, count = (int.from_bytes(data[part], "big") for part in (_FIRST, _COUNT))
        self._newest.append(first + count - 1)
        due = self._network.due((self.holder.hop, self.other.holder.hop))
        self._network.at(due, self._bring, self._sent, self._network.now, data)

    def say(self, message: Message, /) -> None:
        self.write(wire.frame(wire.encode(message), 1, 0, 0))

    def fail(self, reason: str, /) -> None:
        self.fault = reason
        self.abort()

    def abort(self, _reason: str = "", /) -> None:
        """Nothing is sent or taken here any more."""
        self.is_open, self.is_lost = False, True
        self.other.stop(self.other._arrived)

    def stop(self, last: int) -> None:
        """What stands behind this frame is lost."""
        self.is_open = False
        self._last = min(self._last, last)

    def notice(self) -> None:
        """That it is lost."""
        self.is_lost = True
        self.holder.lost(self)

    def lose(self, random: Random) -> None:
        self.stop(random.randint(self._arrived, self._sent))

    def heard_until(self, number: int) -> None:
        """Its holder is dead, and what it sent behind the message of this number is lost with it."""
        self.stop(sum(newest <= number for newest in self._newest))

    def _bring(self, number: int, sent: float, data: bytes) -> None:
        if number <= self._last:
            self._arrived = number
            self.other.heard = self._network.now
            self.other.holder.receive(self.other, sent, data)


class SimConnection:
    def __init__(
        self, network: Network, dialler: Holder, acceptor: Holder, watch: Watch | None = None
    ) -> None:
        self._network = network
        self.end, other = End(network, dialler, watch), End(network, acceptor, watch)
        self.end.other, other.other = other, self.end

    @property
    def is_open(self) -> bool:
        return self.end.is_open and self.end.other.is_open

    def cut(self, random: Random) -> None:
        network = self._network
        for end in (self.end, self.end.other):
            end.lose(random)
        for end in (self.end, self.end.other):
            incoming = network.due((end.other.holder.hop, end.holder.hop))
            network.at(incoming + random.expovariate(1 / NOTICE_S), end.notice)


class SimTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        if self._callback is not None:
            self._callback()


class SimClock:
    """A world's time as `broker.gate.clock.Clock`."""

    def __init__(
        self, network: Network, soon: Callable[[Callable[[], Any]], None], time: Callable[[], float]
    ) -> None:
        """`time`: what the clock shows; it takes as long as the world's from one time to another."""
        self._network = network
        self._soon = soon
        self.time = time

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> Timer:
        timer = SimTimer(partial(callback, *args))
        self._network.at(self._network.now + delay, timer.fire)
        return timer

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> object:
        self._soon(partial(callback, *args))
        return None


class WatchedLink(Link):
    """Nothing leaves while a window of messages is under way that the peer has not said to have processed."""

    def __init__(self, name: str, window_bytes: int, faults: list[str]) -> None:
        super().__init__(window_bytes)
        self._name = name
        self._most = window_bytes
        self._faults = faults
        self._under_way: deque[tuple[int, int]] = deque()
        """Of each frame: the number of its last message, and its bytes."""
        self._bytes = 0

    def accept(self, first: int, processed: int, count: int) -> bool:
        has_moved = super().accept(first, processed, count)
        self._forget(processed)
        return has_moved

    def resume(self, peer_processed: int) -> list[bytes]:
        frames = super().resume(peer_processed)
        self._forget(peer_processed)
        return frames

    def _send(self, messages: bytes, count: int) -> bytes:
        if self._bytes >= self._most:
            self._faults.append(f"{self._name}: {self._bytes} bytes under way, and more is sent")
        frame = super()._send(messages, count)
        self._bytes += len(messages)
        self._under_way.append((self.sent, len(messages)))
        return frame

    def _forget(self, processed: int) -> None:
        while self._under_way and self._under_way[0][0] <= processed:
            self._bytes -= self._under_way.popleft()[1]


class WatchedPeer(Peer):
    """Nobody waits for a client that does not move for longer than it may, and a look more."""

    def watch(self, network: Network, faults: list[str]) -> None:
        self._network = network
        self._faults = faults
        self._moved_s = 0.0
        self._seen = 0
        """So many messages it had processed then."""
        self._since_s: dict[Peer, float] = {}

    def make_wait(self, source: Peer, release: Release) -> None:
        self._since_s.setdefault(source, self._network.now)
        super().make_wait(source, release)

    def drained(self, release: Release) -> None:
        self._look()
        super().drained(release)

    def _let_go(self, release: Release) -> None:
        self._look()
        self._since_s.clear()
        super()._let_go(release)

    def _look(self) -> None:
        now, bound_s = self._network.now, self.patience_s * (1 + 1 / LOOKS)
        for source in self.waited_for_by:
            waited_s = now - max(self._since_s[source], self._moved_s)
            if waited_s > bound_s + SLACK_S:
                self._faults.append(
                    f"{source.hop} has waited {waited_s:.3f} s for {self.hop}, which did not move"
                )
        if self.link.sent_processed != self._seen:
            self._seen, self._moved_s = self.link.sent_processed, now
