"""What the core of a broker was given, and what got a number on its links, as lines of a history; pure, both ways.

A broker whose history is kept at the level `all` writes these lines between the others (`broker.protocol.events`):

    made     once, the second line: what the core was made of
    given    before the core handles something, in the order in which it does
    put      when messages get their numbers on a link, in the order of these
    lost     when a link has lost its connection; the core does not know of it
    closed   the last line

The core is pure, so `made` and `given` decide what it answers. What the broker did with the answer is in `put` and
in the lines of the core's notices. `labctl simulate replay --from` compares the two.

Messages stand there as they are encoded on the wire, one behind the other, in base64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from broker.core import CLIENT_INPUTS, Broker, Input
from broker.protocol import wire
from broker.protocol.filters import Overlap
from broker.protocol.hops import Hop
from broker.protocol.limits import Limits
from broker.protocol.messages import Publish
from broker.protocol.wire import PROTOCOL_VERSION, AnyMessage
from broker.routing.ready import Ready

VERSION = 2
"""Of these lines. Another one is not replayed."""

Act = Literal["start", "expire", "handle", "decide"]


class Made(Struct, frozen=True):
    """What a core was made of."""

    broker: str
    neighbours: tuple[str, ...]
    incarnation: int
    overlap: Overlap
    limits: Limits
    protocol: int = PROTOCOL_VERSION
    version: int = VERSION

    def core(self) -> Broker:
        """Another one that will do the same."""
        made = Broker(self.broker, self.neighbours, self.incarnation, self.overlap, self.limits)
        made.state.keeps_history = True
        return made


class Given(Struct, frozen=True, omit_defaults=True):
    """What the core was called with."""

    act: Act
    now: float = 0.0
    """The clock that it was given; a decision on publications has none."""
    source: Hop = ""
    count: int = 0
    messages: bytes = b""
    client: str = ""
    """Instead of a message: the name of one of `ClientInput`, and its fields."""
    about: dict[str, Any] = {}

    def all(self) -> Sequence[AnyMessage]:
        """What came on a link."""
        return wire.decode(wire.body(self.messages, self.count))

    @property
    def first(self) -> Input | None:
        """What it is about; None where nothing came."""
        if self.client:
            return CLIENT_INPUTS[self.client](**self.about)
        return self.all()[0] if self.count else None

    def put_to(self, core: Broker) -> Ready:
        """What the core answers; raises `ProtocolError` as it does."""
        if self.act == "start":
            return core.start()
        if self.act == "expire":
            return core.expire(self.now)
        if self.act == "decide":
            return core.publish(self.source, [m for m in self.all() if isinstance(m, Publish)])
        assert self.first is not None, "something is handled"
        return core.handle(self.now, self.source, self.first)


class Put(Struct, frozen=True):
    """Messages that got their numbers on a link."""

    link: Hop
    life: int
    """Counts the links to this hop: a client that comes again has another one."""
    first: int
    """Number of the first on the link."""
    count: int
    messages: bytes

    def all(self) -> Sequence[AnyMessage]:
        return wire.decode(wire.body(self.messages, self.count))


class LinkLost(Struct, frozen=True):
    """A link has lost its connection."""

    link: Hop
    life: int
    """As in `Put`."""
    processed: int
    """So many messages that came on it had been processed by then: the rest comes again on the next connection."""


def handled(now: float, source: Hop, message: Input) -> Given:
    name = type(message).__name__
    if name in CLIENT_INPUTS:
        return Given("handle", now, source, client=name, about=msgspec.structs.asdict(message))
    return Given("handle", now, source, 1, wire.encode(message))


def decided(source: Hop, messages: Sequence[Publish]) -> Given:
    return Given("decide", 0.0, source, len(messages), b"".join(map(wire.encode, messages)))
