"""What the parts of a broker share: who is here, the tables, and the form of an answer; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from broker.matching.space import Space
from broker.protocol.hops import Hop, Sends, client_hop
from broker.protocol.limits import Limits
from broker.protocol.vocabulary import NO_KEY, Key, Stamp
from broker.protocol.wire import AnyMessage
from broker.routing.membership import CRT
from broker.routing.ready import Notice, ProtocolError, Ready
from broker.routing.retirement import Retirement
from broker.routing.tables import Routing


class Guest(Struct):
    """A client of this broker."""

    incarnation: int
    joined: bool = False
    yielded_to: str = ""
    """Another broker that claims the same id and goes first."""
    away: bool = False
    """Its connection is lost; it may come back."""
    operations: int = 0
    plans: int = 0
    """The number of its last transaction with a plan."""
    settles: int = 0
    space: Space = field(default_factory=Space)
    """What it may publish."""


class BrokerState:
    """One broker, as its protocols see it."""

    def __init__(self, broker: str, neighbours: Sequence[Hop], routing: Routing, limits: Limits) -> None:
        self.id = broker
        self.neighbours = tuple(neighbours)
        self.routing = routing
        self.limits = limits
        self.retirement = Retirement(routing)
        self.crt = CRT()
        self.guests: dict[str, Guest] = {}
        self.last_key: Key = NO_KEY
        """Of the transactions committed here, the largest."""
        self.marks: set[str] = set()
        """What seldom happens, and has happened here: a test that has not met it has not tested it."""
        self.now = 0.0
        self.keeps_history = False

    def others(self, source: Hop) -> list[Hop]:
        return [hop for hop in self.neighbours if hop != source]

    def to_others(self, source: Hop, message: AnyMessage) -> Sends:
        return [(hop, message) for hop in self.neighbours if hop != source]

    def joined_guest(self, client: str) -> Guest:
        guest = self.guests.get(client)
        if guest is None or not guest.joined:
            raise ProtocolError(f"{client} has not joined")
        return guest

    def next_stamp(self, guest: Guest) -> Stamp:
        """For an operation that takes effect at once; to be followed by `guest.operations += 1`."""
        return (self.last_key, 1, guest.incarnation, guest.operations + 1)

    def hop_to(self, client: str) -> Hop | None:
        """Where a client lies."""
        return self.crt.hops.get(client)

    def rebuild_space(self, client: str) -> None:
        """A transaction has changed what a client of ours may publish."""
        guest = self.guests.get(client)
        if guest is None:
            return
        guest.space = Space()
        for record in self.routing.srt.log(client, client_hop(client)):
            if record.tag is None:
                guest.space.change(record.positive, record.filter)

    def commit(self, tag: str, veils: bool = False) -> None:
        """What a transaction has written under its tag becomes everybody's."""
        records = self.routing.commit(tag, veils)
        self.retirement.committed(tag, records)
        for record, _ in records:
            if record.kind in ("adv", "uadv"):
                self.rebuild_space(record.client)

    def mark(self, rare: str) -> None:
        """To be called where something seldom happens."""
        self.marks.add(rare)

    def note(self, ready: Ready, name: str, **fields: Any) -> None:
        """A line for the history, if one is kept."""
        if self.keeps_history:
            ready.notices.append(Notice(name, fields))
