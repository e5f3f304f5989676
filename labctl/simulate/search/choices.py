"""A world in which somebody chooses what happens next: which link delivers, which program begins.

Links stay FIFO; virtual time stands still. With a choice for every moment a schedule can be repeated,
and with all choices all schedules of a small world are seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

from broker.core import Input
from broker.protocol import events
from broker.protocol.hops import Hop, broker_hop, is_client, name_of
from broker.routing.joining import ClientGone
from labctl.simulate import snapshot
from labctl.simulate.clients import SimClient
from labctl.simulate.world import Passage, World

Link = tuple[Hop, Hop]


class Offer(NamedTuple):
    """Something that may happen at any moment: a client's transaction begins, a client crashes."""

    name: str
    client: str
    callback: Callable[[], None]


class Action(NamedTuple):
    """A link that delivers its first message, or an offer that is taken."""

    link: Link | None
    offer: str = ""


class ChoiceWorld(World):
    is_holding = False

    def hold(self, shows_steps: bool = False) -> None:
        """From now on nothing happens but what is chosen; `shows_steps`: time counts the steps."""
        self.is_holding = True
        self._shows_steps = shows_steps
        self._links: dict[Link, deque[tuple[int, Input]]] = {}
        self._offers: list[Offer] = []
        self._digests: dict[str, bytes] = {}
        self._inputs: dict[tuple[str, str], bytes] = {}
        self._told: dict[tuple[str, str], bytes] = {}
        self._ends: list[tuple[str, str]] = []
        self._moments_read = len(self.moments)

    def offer(self, name: str, client: str, callback: Callable[[], None]) -> None:
        self._offers.append(Offer(name, client, callback))

    def actions(self) -> list[Action]:
        """What can happen next. Where something commutes with all else, it alone: its order is no choice."""
        self._settle()
        links = sorted(link for link, queue in self._links.items() if queue)
        busy = {offer.client for offer in self._offers}
        for link in links:
            if is_client(link[1]) and name_of(link[1]) not in busy:
                return [Action(link)]
        return [*map(Action, links), *(Action(None, offer.name) for offer in self._offers)]

    def act(self, action: Action) -> None:
        if self._shows_steps:
            self.now += 1e-3
        if action.link is None:
            place = next(i for i, offer in enumerate(self._offers) if offer.name == action.offer)
            offer = self._offers.pop(place)
            self._digests.pop(offer.client, None)
            self._add(self._inputs, (offer.client, ""), offer.name)
            offer.callback()
        else:
            self._deliver(action.link)
        self._settle()

    def state(self) -> bytes:
        """A digest of all that decides about the future and about the judgement.

        Of the past that is, for each node and transaction, what happened in it and in which order; how two
        transactions were interleaved counts only as far as it shows in the state.
        """
        self._read_moments()
        for name, broker in self.brokers.items():
            if name not in self._digests:
                self._digests[name] = _digest(snapshot.of_broker(broker))
        for name, client in self.clients.items():
            if name not in self._digests:
                self._digests[name] = _digest(snapshot.of_client(client))
        links = [(link, tuple(queue)) for link, queue in sorted(self._links.items()) if queue]
        past = (sorted(self._inputs.items()), sorted(self._told.items()), self._ends)
        offers = [offer.name for offer in self._offers]
        return _digest((sorted(self._digests.items()), links, past, offers))

    def run(self, steps_max: int = 1_000_000) -> None:
        """Behind what was chosen time passes again."""
        self.is_holding = False
        super().run(steps_max)

    # What the world does otherwise by time

    def at(self, time: float, callback: Callable[..., None], *arguments: object) -> None:
        if not self.is_holding:
            super().at(time, callback, *arguments)
        elif callback != self._expire:  # lifetimes are long, and here no time passes
            self.offer(f"later {len(self._offers)}", "", lambda: callback(*arguments))

    def transmit(self, source: Hop, target: Hop, message: Input) -> None:
        if not self.is_holding:
            super().transmit(source, target, message)
            return
        link = (source, target)
        number = self._link_counts[link] = self._link_counts.get(link, 0) + 1
        self._links.setdefault(link, deque()).append((number, message))

    def depart(self, client: SimClient, reason: str) -> None:
        if not self.is_holding:
            super().depart(client, reason)
            return
        link = (client.hop, broker_hop(client.home))
        self._links.setdefault(link, deque()).append((0, ClientGone(reason)))

    def _deliver(self, link: Link) -> None:
        source, target = link
        number, message = self._links[link].popleft()
        name = name_of(target)
        self._digests.pop(name, None)
        if is_client(target):
            self._add(self._inputs, (name, getattr(message, "tx", "")), message)
        if self._traces:
            self.passages.append(Passage(self.now, self.now, source, target, number, message))
        self._arrive(source, target, number, message)

    def _settle(self) -> None:
        while self._soon:
            self._soon.popleft()()

    def _read_moments(self) -> None:
        for moment in self.moments[self._moments_read :]:
            tx = moment.fields.get("tx", "")
            self._add(self._told, (moment.node, tx), (moment.name, moment.fields))
            if moment.name in (events.BEGIN, events.ENDED):
                self._ends.append((moment.node, f"{moment.name} {tx}"))
        self._moments_read = len(self.moments)

    @staticmethod
    def _add(table: dict[tuple[str, str], bytes], key: tuple[str, str], what: Any) -> None:
        table[key] = blake2b(table.get(key, b"") + repr(what).encode(), digest_size=16).digest()


def _digest(value: Any) -> bytes:
    return blake2b(repr(value).encode(), digest_size=16).digest()
