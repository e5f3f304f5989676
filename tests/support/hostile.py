"""What a hostile peer sends: bytes that are no messages, and messages that no honest peer would write.

Everything is drawn from a seed. Names, stamps and numbers come from small pools, so that hostile messages
meet what earlier ones, and honest clients, have left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from broker.protocol import messages, vocabulary, wire
from broker.protocol.filters import Filter, Interval, OneOf, Predicate, Value
from broker.protocol.limits import Limits
from broker.protocol.vocabulary import Message
from broker.protocol.wire import AnyMessage
from tests.support.hostile_transactions import HostileTransactions

CLIENTS = ("E", "A", "F", "G", "stranger")
BROKERS = ("b1", "b2", "b3", "b9")
NAMES = ("n", "m", "process", "step")
_TEXTS = (
    "",
    "a",
    "\0",
    "\n",
    "ü",
    "\U0001f600" * 3,
    "client:E",
    "broker:b1",
    "E/1",
    "x" * 1025,
    "%s{}",
    "'\"",
)
_INTEGERS = (0, 1, 2, 3, -1, 255, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
_FLOATS = (0.0, -0.0, 0.5, 1.0, 1e308, 5e-324, float("inf"), float("-inf"), float("nan"))
_KINDS: tuple[vocabulary.Kind, ...] = ("adv", "uadv", "sub", "usub")
_KNOWN_TAGS = (
    1,
    2,
    3,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
    20,
    21,
    22,
    23,
    24,
    25,
    30,
    31,
    40,
    *range(50, 61),
    *range(70, 80),
)

_NOTHING_BEHIND = (
    b"\xdd\xff\xff\xff\xff",  # an array of four billion
    b"\xdd\x10\x00\x00\x00",  # and one that might just fit into memory
    b"\xdf\xff\xff\xff\xff",  # a map
    b"\xdb\xff\xff\xff\xff",  # a text
    b"\xc6\xff\xff\xff\xff",  # bytes
    b"\xc9\xff\xff\xff\xff\x01",  # an extension
    b"\xdc\xff\xff",
    b"\xd9\xff",
)
"""Headers that declare much and are followed by little."""

_PREFIXES = (
    b"",
    b"\x91",
    b"\x91\x94\x0a\x01",  # Publish, up to its event
    b"\x91\x94\x0a\x01\x80",  # up to its payload
    b"\x91\x94\x0b\x01\xa3sub\x92",  # Request, up to its filter's names
    b"\x91\x94\x0b\x01\xa3sub\x92\x91\xa1n",  # up to its predicates
    b"\x91\x94\x0b\x01\xa3sub\x92\x91\xa1n\x91\x92\xa1o",  # up to a set's values
    b"\x91\x95\x14\xa3sub\xa1E",  # Operation, up to its stamp
    b"\x91\x95\x02\xa2b1\x01\x00",  # Welcome, up to its limits
)


class Hostile:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    # Bytes

    def body(self) -> bytes:
        """A frame's body, seldom a good one."""
        makers: tuple[Callable[[], bytes], ...] = (
            self._noise,
            self._damaged,
            self._damaged,
            self._wrong_shape,
            self._wrong_field,
            self._wrong_field,
            self._bomb,
            self._well_typed,
        )
        return self.random.choice(makers)()

    def _noise(self) -> bytes:
        return self.random.randbytes(self.random.randrange(40))

    def _well_typed(self) -> bytes:
        return _body(self.message() for _ in range(self.random.randrange(3)))

    def _damaged(self) -> bytes:
        random = self.random
        data = bytearray(self._well_typed())
        for _ in range(random.randint(1, 4)):
            place = random.randrange(len(data) + 1)
            how = random.randrange(4)
            if how == 0 and place < len(data):
                data[place] ^= 1 << random.randrange(8)
            elif how == 1:
                del data[place:]
            elif how == 2:
                data[place:place] = random.randbytes(random.randint(1, 4))
            else:
                data += data[place : place + random.randrange(20)]
        return bytes(data)

    def _wrong_shape(self) -> bytes:
        return msgspec.msgpack.encode(self._anything(0))

    def _wrong_field(self) -> bytes:
        """A message in which one field, or one part of a field, is of some other type."""
        fields = msgspec.msgpack.decode(wire.encode(self.message()))
        where: list[Any] = fields
        while True:
            place = self.random.randrange(len(where)) if where else 0
            if where and isinstance(where[place], list) and self.random.random() < 0.7:
                where = where[place]
                continue
            where[place : place + self.random.randrange(2)] = [self._anything(1)]
            return msgspec.msgpack.encode([fields])

    def _bomb(self) -> bytes:
        random = self.random
        prefix = random.choice(_PREFIXES)
        if random.random() < 0.1:
            return prefix + random.choice((b"\x91", b"\x81\xa1n", b"\x92\xa1i")) * random.randint(50, 20_000)
        return prefix + random.choice(_NOTHING_BEHIND) + self._noise()

    def _anything(self, depth: int) -> Any:
        random = self.random
        if depth < 4 and random.random() < 0.5:
            items = [self._anything(depth + 1) for _ in range(random.randrange(4))]
            if random.random() < 0.7:
                return [random.choice(_KNOWN_TAGS), *items] if random.random() < 0.5 else items
            return {self.text(): item for item in items}
        return random.choice(
            (None, True, False, b"\xff", self.text(), self.integer(), random.choice(_FLOATS))
        )

    # Parts of messages

    def text(self) -> str:
        return self.random.choice(self.random.choice((_TEXTS, CLIENTS, BROKERS, NAMES)))

    def client(self) -> str:
        return self.text() if self.random.random() < 0.1 else self.random.choice(CLIENTS)

    def broker(self) -> str:
        return self.text() if self.random.random() < 0.1 else self.random.choice(BROKERS)

    def broker_or_none(self) -> str:
        return self.random.choice(("", self.broker()))

    def life(self) -> int:
        return self.random.randrange(1, 4)

    def integer(self) -> int:
        return self.random.choice(_INTEGERS) if self.random.random() < 0.3 else self.random.randrange(4)

    def value(self) -> Value:
        random = self.random
        pick = random.random()
        if pick < 0.6:
            return self.integer()
        return random.choice(_FLOATS) if pick < 0.8 else self.text()

    def event(self) -> dict[str, Value]:
        count = (
            self.random.choice((0, 1, 2, 3, 70)) if self.random.random() < 0.2 else self.random.randrange(3)
        )
        event = {self.random.choice(NAMES): self.value() for _ in range(count)}
        if self.random.random() < 0.05:
            event |= {f"{self.text()}{n}": self.value() for n in range(self.random.choice((1, 70)))}
        return event

    def filter(self) -> Filter:
        random = self.random
        names = sorted(random.sample(NAMES, random.randrange(3)))
        if random.random() < 0.1:
            names = [self.text() for _ in range(random.choice((0, 1, 2, 3, 70)))]
        count = len(names) + (random.choice((-1, 1, 3)) if random.random() < 0.05 else 0)
        return Filter(tuple(names), tuple(self.predicate() for _ in range(count)))

    def predicate(self) -> Predicate:
        random = self.random
        pick = random.random()
        if pick < 0.4:
            return self.value()
        if pick < 0.8:
            ends: list[Any] = [random.choice((None, self.value(), random.randrange(6))) for _ in range(2)]
            if random.random() < 0.7 and all(isinstance(end, int) for end in ends):
                ends.sort()
            return Interval(ends[0], ends[1], random.random() < 0.3, random.random() < 0.3)
        count = random.choice((0, 1, 2, 3, 3, 300)) if random.random() < 0.3 else random.randint(1, 3)
        values: list[Any] = [self.value() for _ in range(count)]
        if random.random() < 0.7:
            values = sorted({v for v in values if not isinstance(v, str) and v == v})  # noqa: PLR0124 no NaN
        return OneOf(tuple(values))

    def stamp(self) -> vocabulary.Stamp:
        key = vocabulary.NO_KEY if self.random.random() < 0.8 else (self.integer(), self.text())
        return (key, self.integer(), self.life(), self.integer())

    # Messages

    def message(self) -> AnyMessage:
        """Of any kind, right in its types only."""
        makers: tuple[Callable[[], AnyMessage], ...] = (
            *self._of_links(),
            *self._of_overlay(),
            *self._others(),
            *HostileTransactions(self).makers(),
        )
        return self.random.choice(makers)()

    def _of_links(self) -> tuple[Callable[[], AnyMessage], ...]:
        return (self.publication, self.publication, self._request, self._request, self._settle, messages.Ping)

    def _of_overlay(self) -> tuple[Callable[[], AnyMessage], ...]:
        return (
            self._operation,
            self._operation,
            lambda: messages.Forget(self.client(), self.stamp()),
            lambda: messages.Join(self.client(), self.life(), self.broker()),
            lambda: messages.JoinAnswer(self.client(), self.life(), self.broker(), self.broker_or_none()),
            lambda: messages.Leave(self.client(), self.life(), self.broker()),
            lambda: messages.Announce(self.broker(), self.life(), self.broker_or_none()),
        )

    def _others(self) -> tuple[Callable[[], AnyMessage], ...]:
        return (
            self.hello,
            lambda: messages.Welcome(self.broker(), self.integer(), self.integer(), Limits()),
            lambda: messages.Goodbye("leaving", self.text()),
            lambda: messages.Settled(f"{self.client()}/{self.life()}", self.integer()),
            lambda: messages.Refused(self.integer(), self.text()),
            lambda: messages.Accepted(self.integer()),
            lambda: messages.Joined(self.integer()),
            lambda: messages.StatusRequest(True),
            lambda: messages.StatusAnswer(b"{}", False),
        )

    def hello(self) -> messages.Hello:
        return messages.Hello(
            self.integer(), self.random.choice(("client", "broker", "monitor")), self.client(), self.broker(),
            self.integer(), self.integer(), self.integer(), self.random.choice(("all", "any")),
        )  # fmt: skip

    def publication(self) -> messages.Publish:
        payload = b"x" * (self.random.choice((0, 1, 300_000)) if self.random.random() < 0.01 else 0)
        return messages.Publish(self.integer(), self.event(), payload)

    def _request(self) -> messages.Request:
        return messages.Request(self.integer(), self.random.choice(_KINDS), self.filter())

    def _operation(self) -> messages.Operation:
        return messages.Operation(self.random.choice(_KINDS), self.client(), self.stamp(), self.filter())

    def _settle(self) -> messages.Settle:
        return messages.Settle(f"{self.client()}/{self.life()}", self.integer())


def _body(messages: Any) -> bytes:
    encoded = [wire.encode(message) for message in messages]
    return wire.body(b"".join(encoded), len(encoded))


def through_the_wire(message: Message) -> AnyMessage | None:
    """As the core would get it; None where the decoder does not let it pass."""
    try:
        return wire.decode(_body([message]))[0]
    except wire.WireError:
        return None
