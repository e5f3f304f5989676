"""Who is in the overlay: brokers by `Announce`, clients by `Join` and `Leave` (the CRT); pure.

The overlay is a tree, so a message that every broker passes to its other neighbours reaches each of
them once; its answers, gathered on the way back, tell the sender that all have it (a *wave*). A broker
that hears of another one by two ways has found a cycle, or two processes with one id.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from broker.protocol.hops import Hop
from broker.protocol.messages import Announce, Leave


class Wave(Struct, eq=False):
    """A message that went on to `awaiting` and will be answered to `origin` when all have answered."""

    origin: Hop
    awaiting: set[Hop]
    objection: str = ""


class Waves:
    """The waves that pass through this broker, by key."""

    def __init__(self) -> None:
        self._waves: dict[Hashable, Wave] = {}

    def __len__(self) -> int:
        return len(self._waves)

    def __iter__(self) -> Iterator[tuple[Hashable, Wave]]:
        return iter(self._waves.items())

    def __contains__(self, key: Hashable) -> bool:
        return key in self._waves

    def start(self, key: Hashable, origin: Hop, onward: Sequence[Hop]) -> Wave | None:
        """Begin a wave; returned at once where it ends here."""
        wave = Wave(origin, set(onward))
        if not onward:
            return wave
        self._waves[key] = wave
        return None

    def answer(self, key: Hashable, hop: Hop, objection: str = "") -> Wave | None:
        """Count an answer; the wave is returned, and forgotten, with its last."""
        wave = self._waves.get(key)
        if wave is None or hop not in wave.awaiting:
            return None
        wave.awaiting.discard(hop)
        wave.objection = wave.objection or objection
        if wave.awaiting:
            return None
        return self._waves.pop(key)

    def forget(self, key: Hashable) -> None:
        self._waves.pop(key, None)


class Presence(NamedTuple):
    """A client's presence at its edge broker, as every broker knows it."""

    home: str
    hop: Hop
    incarnation: int


class CRT:
    """Client routing table. Two claims on one id coexist only until the overlay has refused one."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[str, Presence]] = {}
        self.hops: dict[str, Hop] = {}
        """Where each client lies, by the first claim on its id."""

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[tuple[str, Presence]]:
        for client, claims in self._claims.items():
            for claim in claims.values():
                yield client, claim

    def claims(self, client: str) -> dict[str, Presence]:
        return self._claims.get(client, {})

    def add(self, client: str, claim: Presence) -> None:
        claims = self._claims.setdefault(client, {})
        claims[claim.home] = claim
        self._locate(client, claims)

    def remove(self, leave: Leave) -> Presence | None:
        claims = self._claims.get(leave.client, {})
        claim = claims.get(leave.home)
        if claim is None or claim.incarnation != leave.incarnation:
            return None
        del claims[leave.home]
        if claims:
            self._locate(leave.client, claims)
        else:
            del self._claims[leave.client], self.hops[leave.client]
        return claim

    def behind(self, client: str, hop: Hop, incarnation: int) -> Presence | None:
        """The claim of that life of the client, if it came from `hop`."""
        for claim in self._claims.get(client, {}).values():
            if claim.hop == hop and claim.incarnation == incarnation:
                return claim
        return None

    def hop_of(self, client: str, incarnation: int) -> Hop | None:
        """Where that life of the client lies; None: it is not here, though another one may be."""
        for claim in self.claims(client).values():
            if claim.incarnation == incarnation:
                return claim.hop
        return None

    def has(self, client: str, incarnation: int) -> bool:
        """Whether that life of the client is in the overlay."""
        return self.hop_of(client, incarnation) is not None

    def first(self, client: str) -> Presence | None:
        """The claim that came first; of those that race, perhaps one that will be refused."""
        return next(iter(self.claims(client).values()), None)

    def _locate(self, client: str, claims: Mapping[str, Presence]) -> None:
        self.hops[client] = next(iter(claims.values())).hop


class Known(NamedTuple):
    incarnation: int
    hop: Hop
    next: str
    """Its neighbour on the way here."""


class OverlayMap:
    """Every broker that has announced itself, and by which of our links.

    Whoever has found a fault passes nothing on. So a broker hears of those on a way before it hears of what
    lies behind them; the first that it hears of by two ways closes the cycle, and both ways are known."""

    def __init__(self, broker: str, incarnation: int) -> None:
        self._broker = broker
        self._incarnation = incarnation
        self.known: dict[str, Known] = {}
        self._is_tree = True

    def hear(self, announce: Announce, hop: Hop) -> str | None:
        """Learn of a broker. None: it is new. A sentence: the overlay is no tree. Empty: nothing to do."""
        # Our own comes back around a cycle; the brokers between are heard twice, and then it can be named.
        if not self._is_tree or (announce.broker, announce.incarnation) == (self._broker, self._incarnation):
            return ""
        before = self.known.get(announce.broker)
        via = announce.next or self._broker
        if before is None and announce.broker != self._broker:
            self.known[announce.broker] = Known(announce.incarnation, hop, via)
            return None
        self._is_tree = False
        if before is None or before.incarnation != announce.incarnation:
            return (
                f"Two brokers call themselves {announce.broker}; every broker of an overlay needs its own id."
            )
        ring = [*self.path(announce.broker), *reversed(self.path(via))]
        return f"The overlay has a cycle: {' - '.join(ring)}; remove one of these links."

    def path(self, broker: str) -> list[str]:
        """From this broker to another, both included; as far as it is known."""
        way = [broker]
        while way[-1] != self._broker and way[-1] in self.known and len(way) <= len(self.known) + 1:
            way.append(self.known[way[-1]].next)
        return way[::-1]
