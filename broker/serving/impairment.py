"""Links that are cut or slow on purpose: what an experiment's faults do to them, at the sender, where delays are.

A file says how the links to neighbours are at present, `{"cut": ["b1"], "slow": {"b3": 50}}`, the latter in
milliseconds that each message takes longer. It is read at the beginning and whenever SIGUSR1 comes. A link that is cut
has no connection: the one that it has is aborted, none is dialled, and none is taken. Messages wait as they do
whenever a connection is lost. Without such a file nothing here does anything.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from broker.gate.channel import Delaying
from broker.node.log import JsonLog
from broker.protocol.delay import DELAY_MS_MAX, Delay, DelayLine
from broker.protocol.hops import Hop, broker_hop, is_client, name_of
from broker.protocol.messages import Hello
from broker.protocol.wire import AnyMessage
from broker.serving.peer import Peer
from broker.transport.channel import delaying
from broker.transport.delayed import DelayedSender
from broker.transport.stream import Stream

CUT = "the link is cut"


class ImpairedLinks(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file says; of each neighbour by its id."""

    cut: tuple[str, ...] = ()
    slow: dict[str, float] = {}

    def __post_init__(self) -> None:
        for name, by_ms in self.slow.items():
            if not 0 <= by_ms <= DELAY_MS_MAX:
                raise ValueError(f"the link to {name} is slow by {by_ms} ms")


class SlowedLine(DelayLine):
    """First in, first out, also when it is not slow any more."""

    def __init__(self, delay: Delay, link: str) -> None:
        super().__init__(delay, link)
        self.by_s = 0.0
        self._latest = float("-inf")

    def due(self, now: float) -> float:
        self._latest = max(self._latest, super().due(now) + self.by_s)
        return self._latest


class Impairment:
    def __init__(self, path: str, log: JsonLog) -> None:
        """An empty path: links are as they are."""
        self._path = path
        self._log = log
        self._lines: dict[Hop, SlowedLine] = {}
        self._streams: Iterable[Stream] = ()
        self._cut: frozenset[Hop] = frozenset()
        self._lifted = asyncio.Event()

    def delaying(self, delay: Delay, hop: Hop) -> Delaying | None:
        """What holds messages on a link of this delay."""
        if not self._path or is_client(hop):
            return delaying(delay, hop)
        self._lines[hop] = SlowedLine(delay, hop)
        return partial(DelayedSender, self._lines[hop])

    def begin(self, streams: Iterable[Stream]) -> None:
        """`streams`: those that there are, whenever it is looked at."""
        self._streams = streams
        if self._path:
            self.look()
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.look)

    def end(self) -> None:
        if self._path:
            asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)

    def look(self) -> None:
        """At the file; one that makes no sense changes nothing."""
        try:
            links = msgspec.json.decode(Path(self._path).read_bytes(), type=ImpairedLinks)
        except FileNotFoundError:
            links = ImpairedLinks()
        except (OSError, msgspec.MsgspecError) as error:
            self._log.log("control-unreadable", file=self._path, reason=str(error))
            return
        self._cut = frozenset(map(broker_hop, links.cut))
        for hop, line in self._lines.items():
            line.by_s = links.slow.get(name_of(hop), 0.0) / 1e3
        self._lifted.set()
        for stream in tuple(self._streams):
            if isinstance(stream.context, Peer) and stream.context.hop in self._cut:
                stream.abort(CUT)
        self._log.log("links", cut=sorted(links.cut), slow=links.slow)

    async def passable(self, hop: Hop) -> None:
        """Returns as soon as the link is not cut."""
        while hop in self._cut:
            self._lifted.clear()
            await self._lifted.wait()

    def keeps_out(self, stream: Stream, message: AnyMessage) -> bool:
        """A neighbour has dialled us over a link that is cut: it gets no answer."""
        if (
            not isinstance(message, Hello)
            or message.role != "broker"
            or broker_hop(message.name) not in self._cut
        ):
            return False
        stream.abort(CUT)
        return True
