"""The broker as a pure state machine: a message goes in, what must be done comes out.

`handle(now, source, message) -> Ready`. The caller owns sockets, clock and disk: it makes `records`
durable, then lets the `sends` leave in order, then notes the `events`. The same core runs in
`broker.server` and under simulation. Publications have a short cut: `refused` and
`Routing.wanted_by_each` answer whether and where to, and their bytes travel as they came.

`ProtocolError` means that the source broke the protocol and must be cut off; the state is untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from msgspec import Struct

from broker.filters import FilterError, Overlap
from broker.hops import Hop, Sends, broker_hop, client_hop, is_client, name_of
from broker.limits import (
    LimitExceeded,
    Limits,
    are_good,
    check_client_id,
    check_filter_within,
    check_publication,
)
from broker.membership import Claim, OverlayMap, Wave, Waves
from broker.records import Record, RoutingError
from broker.routing import Routing, operation
from broker.settling import Settling
from broker.site import Event, Guest, ProtocolError, Ready, Site
from broker.transactions.dtx import Dtx
from broker.transactions.stx import Stx
from broker.wire import (
    NO_KEY,
    Accepted,
    Announce,
    AnyMessage,
    Forget,
    Join,
    JoinAnswer,
    Joined,
    Leave,
    Operation,
    Publish,
    Refused,
    Request,
    Stamp,
    brief,
)

__all__ = ["Broker", "ClientArrived", "ClientGone", "Event", "ProtocolError", "Ready"]


class ClientArrived(Struct, frozen=True):
    """A client has connected; it is answered by `Joined`, or refused by the event `client-refused`."""

    incarnation: int


class ClientGone(Struct, frozen=True):
    """A client has said goodbye or stayed away too long: everything of it goes."""

    reason: str


class ClientAway(Struct, frozen=True):
    """A client's connection is lost; it may come back."""


class ClientBack(Struct, frozen=True):
    """It has come back."""


Input = AnyMessage | ClientArrived | ClientGone | ClientAway | ClientBack


class Broker:
    def __init__(
        self,
        broker: str,
        neighbours: Sequence[str],
        incarnation: int,
        overlap: Overlap = "all",
        limits: Limits | None = None,
    ) -> None:
        self.id = broker
        self.incarnation = incarnation
        self.limits = limits or Limits()
        self.neighbours = tuple(broker_hop(n) for n in neighbours)
        self.routing = Routing(self.neighbours, overlap, self.limits.records_max)
        self.site = Site(broker, self.neighbours, self.routing, self.limits)
        self.crt = self.site.crt
        self.guests = self.site.guests
        self.overlay = OverlayMap(broker, incarnation)
        self.joins = Waves()
        self.settling = Settling(self.site)
        self.dtx = Dtx(self.site)
        self.stx = Stx(self.site)
        self._unfinished = self.routing.unfinished = (self.dtx.contexts, self.dtx.tombs, self.stx.open)
        self._from_client: dict[type, Callable[[str, Any], Ready]] = {
            ClientArrived: self._client_arrived,
            ClientGone: self._client_gone,
            ClientAway: self._client_away,
            ClientBack: self._client_back,
            Publish: self._publish,
            Request: self._request,
            **self.settling.from_client,
            **self.dtx.from_client,
            **self.stx.from_client,
        }
        self._from_broker: dict[type, Callable[[Hop, Any], Ready]] = {
            Publish: self._forward,
            Operation: self._operation,
            Forget: self._forget,
            Join: self._join,
            JoinAnswer: self._join_answer,
            Leave: self._leave,
            Announce: self._announce,
            **self.settling.from_broker,
            **self.dtx.from_broker,
            **self.stx.from_broker,
        }

    def start(self) -> Ready:
        """Make ourselves known; the first thing that every neighbour gets from us."""
        return Ready(self.site.to_others("", Announce(self.id, self.incarnation, "")), [])

    def handle(self, now: float, source: Hop, message: Input) -> Ready:
        self.site.now = now
        srt = self.routing.srt
        changes = srt.changes
        if source in self.neighbours:
            handler, name = self._from_broker.get(type(message)), source
        elif is_client(source):
            handler, name = self._from_client.get(type(message)), name_of(source)
        else:
            raise ProtocolError(f"{source} is no neighbour and no client of {self.id}")
        if handler is None:
            raise ProtocolError(f"a {source.partition(':')[0]} does not send {type(message).__name__}")
        ready = handler(name, message)
        if srt.changes != changes and self.stx.open:
            ready += self.stx.pump_all()  # somebody may have waited for that
        return ready

    def expire(self, now: float) -> Ready:
        """End the transactions whose lifetime is over; to be called now and then while some are open."""
        self.site.now = now
        ready = self.dtx.expire(now)
        ready += self.stx.expire(now)
        ready += self.stx.pump_all()
        return ready

    @property
    def has_open_transactions(self) -> bool:
        return any(self._unfinished)

    def route(self, source: Hop, message: Publish) -> Collection[Hop]:
        """Where a publication from a neighbour goes next: the short cut for forwarding its bytes."""
        return self.routing.next_hops(message.event, source)

    def admit(self, client: str, message: Publish) -> str:
        """Why a publication of our own client is refused; empty if it is not."""
        event = message.event
        space = self.site.joined_guest(client).space
        try:
            check_publication(event, message.payload, self.limits)
        except (FilterError, LimitExceeded) as error:
            return brief(str(error))
        return "" if space.contains(event) else brief(f"{event} is outside what {client} advertises")

    def refused(self, client: str, messages: Sequence[Publish]) -> dict[int, str]:
        """`admit` for many publications: the reasons, by the places of those that are refused."""
        contains = self.site.joined_guest(client).space.contains
        events, payloads = [message.event for message in messages], [message.payload for message in messages]
        if are_good(events, payloads, self.limits) and all(map(contains, events)):
            return {}
        reasons = {place: self.admit(client, message) for place, message in enumerate(messages)}
        return {place: reason for place, reason in reasons.items() if reason}

    # Publications

    def _forward(self, source: Hop, message: Publish) -> Ready:
        return Ready([(hop, message) for hop in self.route(source, message)], [])

    def _publish(self, client: str, message: Publish) -> Ready:
        reason = self.admit(client, message)
        if reason:
            return Ready([(client_hop(client), Refused(message.id, reason))], [])
        return self._forward(client_hop(client), message)

    # Advertisements and subscriptions

    def _request(self, client: str, message: Request) -> Ready:
        guest = self.site.joined_guest(client)
        hop = client_hop(client)
        stamp = self.site.next_stamp(guest)
        try:
            check_filter_within(message.filter, self.limits)
            sends = self.routing.apply(Record(message.kind, client, stamp, message.filter), hop)
        except (FilterError, LimitExceeded, RoutingError) as error:
            return Ready([(hop, Refused(message.number, brief(str(error))))], [])
        guest.operations += 1
        if message.kind in ("adv", "uadv"):
            guest.space.change(message.kind == "adv", message.filter)
        ready = Ready([*sends, (hop, Accepted(message.number))], [])
        self.site.note(
            ready,
            "processed",
            tx="",
            op=message.number,
            kind=message.kind,
            client=client,
            stamp=stamp,
            source=hop,
        )
        self.site.note(ready, "placed", kind=message.kind, client=client, filter=message.filter)
        return ready

    def _operation(self, source: Hop, message: Operation) -> Ready:
        key, class_, incarnation, number = message.stamp
        claim = self.crt.behind(message.client, source, incarnation)
        if claim is None:
            raise ProtocolError(f"an operation of {message.client}, who has not joined behind {source}")
        # The parts that all records of a client share are shared in memory too.
        stamp: Stamp = (NO_KEY if key == NO_KEY else key, class_, claim.incarnation, number)
        record = Record(message.kind, message.client, stamp, message.filter)
        known = self.routing.find(record, source)
        try:
            check_filter_within(message.filter, self.limits)
            if known is None or (known.kind, known.filter) != (record.kind, record.filter):
                self.routing.check(record, source)
        except (FilterError, LimitExceeded, RoutingError) as error:
            raise ProtocolError(str(error)) from error
        if message.tx and not self._adopt(record, message):
            return Ready([], [])
        if known is not None:  # a transaction has brought it here before
            sends: Sends = [(hop, operation(known)) for hop in self.routing.send_on(known, source)]
        else:
            sends = self.routing.apply(record, source)
        ready = Ready(sends, [])
        if not message.tx:
            self.site.note(ready, "placed", kind=record.kind, client=record.client, filter=record.filter)
        if message.step:
            self.stx.look_again(message.tx, ready)
        return ready

    def _adopt(self, record: Record, message: Operation) -> bool:
        """It was written in a transaction and comes by itself, attracted; False: that was aborted here."""
        if message.step:
            return self.stx.adopt(record, message)
        return self.dtx.adopt(record, message)

    def _forget(self, source: Hop, message: Forget) -> Ready:
        if self.crt.behind(message.client, source, message.stamp[2]) is None:
            raise ProtocolError(f"a forget for {message.client}, who has not joined behind {source}")
        return Ready(self.routing.forget(message.client, message.stamp), [])

    # Clients that join and leave

    def _client_arrived(self, client: str, message: ClientArrived) -> Ready:
        try:
            check_client_id(client, self.limits)
        except LimitExceeded as error:
            return Ready([], [_refusal(client, "refused", str(error))])
        holder = next(iter(self.crt.claims(client)), "")
        if holder:
            return Ready([], [_in_use(client, holder)])
        self.guests[client] = Guest(message.incarnation)
        self.crt.add(client, Claim(self.id, client_hop(client), message.incarnation))
        join = Join(client, message.incarnation, self.id)
        wave = self.joins.start(_join_key(join), client_hop(client), self.neighbours)
        if wave is not None:
            return self._join_ends(join, wave)
        return Ready(self.site.to_others("", join), [])

    def _client_gone(self, client: str, message: ClientGone) -> Ready:
        guest = self.guests.pop(client, None)
        if guest is None:
            return Ready([], [])
        leave = Leave(client, guest.incarnation, self.id)
        self.joins.forget((client, guest.incarnation, self.id))
        ready = Ready(self.site.to_others("", leave), [])
        ready += self._remove(leave)
        ready.events.append(Event("client-gone", {"client": client, "reason": message.reason}))
        return ready

    def _client_away(self, client: str, message: ClientAway) -> Ready:
        guest = self.guests.get(client)
        if guest is None:
            return Ready([], [])
        guest.away = True
        return self.dtx.client_away(client)

    def _client_back(self, client: str, message: ClientBack) -> Ready:
        guest = self.guests.get(client)
        if guest is not None:
            guest.away = False
        return Ready([], [])

    def _join(self, source: Hop, message: Join) -> Ready:
        self._check_direction(source, message.home)
        if message.home in self.crt.claims(message.client):
            raise ProtocolError(f"a join of {message.client} at {message.home}, where it is already")
        try:
            check_client_id(message.client, self.limits)
        except LimitExceeded as error:
            raise ProtocolError(str(error)) from error
        guest = self.guests.get(message.client)
        if guest is not None and (guest.joined or message.home > self.id):
            return Ready([(source, _join_answer(message, self.id))], [])
        if guest is not None:
            guest.yielded_to = message.home
        self.crt.add(message.client, Claim(message.home, source, message.incarnation))
        onward = [hop for hop in self.neighbours if hop != source]
        wave = self.joins.start(_join_key(message), source, onward)
        if wave is not None:
            return self._join_ends(message, wave)
        return Ready(self.site.to_others(source, message), [])

    def _join_answer(self, source: Hop, message: JoinAnswer) -> Ready:
        wave = self.joins.answer(_join_key(message), source, message.holder)
        if wave is None:
            return Ready([], [])  # the client went while its join was under way
        return self._join_ends(message, wave)

    def _join_ends(self, join: Join | JoinAnswer, wave: Wave) -> Ready:
        """Every broker behind us has answered: pass it on, or let our client in."""
        if join.home != self.id:
            return Ready([(wave.origin, _join_answer(join, wave.objection))], [])
        guest = self.guests[join.client]
        holder = wave.objection or guest.yielded_to
        if not holder:
            guest.joined = True
            event = Event("client-joined", {"client": join.client, "incarnation": join.incarnation})
            return Ready([(wave.origin, Joined(len(self.overlay.known) + 1))], [event])
        del self.guests[join.client]
        leave = Leave(join.client, join.incarnation, self.id)
        ready = Ready(self.site.to_others("", leave), [_in_use(join.client, holder)])
        ready += self._remove(leave)
        return ready

    def _leave(self, source: Hop, message: Leave) -> Ready:
        self._check_direction(source, message.home)
        self.joins.forget((message.client, message.incarnation, message.home))
        ready = Ready(self.site.to_others(source, message), [])
        ready += self._remove(message)
        return ready

    def _remove(self, leave: Leave) -> Ready:
        claim = self.crt.remove(leave)
        if claim is None:
            return Ready([], [])
        self.routing.remove_client(leave.client, claim.incarnation, claim.hop)
        ready = self.dtx.client_left(leave.client)
        ready += self.stx.client_left(leave.client)
        return ready

    # Brokers

    def _announce(self, source: Hop, message: Announce) -> Ready:
        fault = self.overlay.hear(message, source)
        if fault is None:
            onward = Announce(message.broker, message.incarnation, message.next or self.id)
            return Ready(
                self.site.to_others(source, onward), [Event("broker-known", {"broker": message.broker})]
            )
        return Ready([], [Event("fatal", {"reason": fault, "exit_code": 2})] if fault else [])

    # Helpers

    def _check_direction(self, source: Hop, home: str) -> None:
        """In a tree, what broker `home` says about its clients comes by one link only."""
        known = self.overlay.known.get(home)
        if known is None or known.hop != source:
            raise ProtocolError(f"news of a client of {home}, which does not lie behind {source}")


def _join_key(join: Join | JoinAnswer) -> tuple[str, int, str]:
    return (join.client, join.incarnation, join.home)


def _join_answer(join: Join | JoinAnswer, holder: str) -> JoinAnswer:
    return JoinAnswer(join.client, join.incarnation, join.home, holder)


def _in_use(client: str, holder: str) -> Event:
    return _refusal(client, "in-use", f"The client id {client} is in use at broker {holder}.")


def _refusal(client: str, code: str, reason: str) -> Event:
    return Event("client-refused", {"client": client, "code": code, "reason": reason})
