"""A broker that writes down what it takes to replay it: what its core is given, what gets a number on its links.

The broker and the links of one whose history is kept at the level `all` are of these kinds; any other has the plain
ones, and pays nothing. What the lines say is in `broker.recorded`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from broker import recorded
from broker.config import NodeConfig
from broker.core import Broker, Input
from broker.protocol.events import CLOSED, GIVEN, LOST, MADE, PUT
from broker.protocol.hops import Hop
from broker.protocol.link import Link
from broker.protocol.messages import Publish
from broker.recorded import Given, LinkLost, Made, Put
from broker.routing.publications import Decision
from broker.routing.ready import Ready

Note = Callable[[str, Mapping[str, Any] | Struct], None]


class RecordingFile:
    def __init__(self, note: Note) -> None:
        self._note = note
        self._lives: Counter[Hop] = Counter()

    def core(self, config: NodeConfig, incarnation: int) -> Broker:
        names = [neighbour.id for neighbour in config.neighbours]
        return RecordedBroker(self.given, config.id, names, incarnation, config.overlap, config.limits)

    def link(self, hop: Hop) -> Link:
        """Of somebody who has just come."""
        self._lives[hop] += 1
        return RecordedLink(self._put, hop, self._lives[hop])

    def lost(self, hop: Hop, link: Link) -> None:
        self._note(LOST, LinkLost(hop, self._lives[hop], link.processed))

    def begin(self, core: Broker) -> None:
        names = tuple(hop.partition(":")[2] for hop in core.neighbours)
        made = Made(core.id, names, core.incarnation, core.routing.overlap, core.limits)
        self._note(MADE, made)

    def end(self) -> None:
        self._note(CLOSED, {})

    def given(self, given: Given) -> None:
        self._note(GIVEN, given)

    def _put(self, put: Put) -> None:
        self._note(PUT, put)


class RecordedBroker(Broker):
    """Tells what it is given before it handles that."""

    def __init__(self, tell: Callable[[Given], None], *made_of: Any) -> None:
        super().__init__(*made_of)
        self._tell = tell
        decide, decide_one = self.decide, self.decide_one

        def told(source: Hop, messages: Sequence[Publish]) -> Decision:
            tell(recorded.decided(source, messages))
            return decide(source, messages)

        def told_one(source: Hop, message: Publish) -> tuple[Collection[Hop], str]:
            tell(recorded.decided(source, (message,)))
            return decide_one(source, message)

        self.decide, self.decide_one = told, told_one

    def start(self) -> Ready:
        self._tell(Given("start"))
        return super().start()

    def handle(self, now: float, source: Hop, message: Input) -> Ready:
        self._tell(recorded.handled(now, source, message))
        return super().handle(now, source, message)

    def expire(self, now: float) -> Ready:
        self._tell(Given("expire", now))
        return super().expire(now)


class RecordedLink(Link):
    """Tells what is put on it, where it gets its number."""

    def __init__(self, tell: Callable[[Put], None], hop: Hop, life: int) -> None:
        super().__init__()
        self._tell = tell
        self._hop = hop
        self._life = life

    def push(self, messages: bytes, count: int = 1) -> None:
        self._told(self.taken + 1, messages, count)
        super().push(messages, count)

    def pass_on(self, messages: bytes, count: int) -> bytes | None:
        first = self.taken + 1
        frame = super().pass_on(messages, count)
        if frame is not None:  # otherwise it was pushed
            self._told(first, messages, count)
        return frame

    def _told(self, first: int, messages: bytes, count: int) -> None:
        self._tell(Put(self._hop, self._life, first, count, messages))
