"""Clients that join and leave, and brokers that make themselves known; pure.

A join floods, and its answers are gathered on the way back, so that a client is let in when every broker
knows it. Of two claims that race the smaller broker id wins; an established client always keeps its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from broker.protocol.events import BROKER_KNOWN, CLIENT_GONE, CLIENT_JOINED, CLIENT_REFUSED, FATAL
from broker.protocol.hops import Hop, client_hop
from broker.protocol.limits import LimitExceeded, check_client_id
from broker.protocol.messages import Announce, GoodbyeCode, Join, JoinAnswer, Joined, Leave
from broker.routing.membership import OverlayMap, Presence, Wave, Waves
from broker.routing.ready import Notice, ProtocolError, Ready
from broker.routing.state import BrokerState, Guest


class ClientArrived(Struct, frozen=True):
    """A client has connected; it is answered by `Joined`, or refused by the notice `client-refused`."""

    incarnation: int


class ClientGone(Struct, frozen=True):
    """A client has said goodbye or stayed away too long: everything of it goes."""

    reason: str
    code: GoodbyeCode = "leaving"


class ClientAway(Struct, frozen=True):
    """A client's connection is lost; it may come back."""


class ClientBack(Struct, frozen=True):
    """It has come back."""


ClientInput = ClientArrived | ClientGone | ClientAway | ClientBack


class Concerned(Protocol):
    """Who has to know when clients go."""

    def client_left(self, client: str) -> Ready: ...
    def client_away(self, client: str) -> Ready: ...


class Joining:
    def __init__(self, state: BrokerState, incarnation: int, transactions: Concerned) -> None:
        self._state = state
        self._transactions = transactions
        self._incarnation = incarnation
        self.overlay = OverlayMap(state.id, incarnation)
        self.waves = Waves()
        self.from_client: dict[type, Callable[[str, Any], Ready]] = {
            ClientArrived: self._client_arrived,
            ClientGone: self._client_gone,
            ClientAway: self._client_away,
            ClientBack: self._client_back,
        }
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {
            Join: self._join,
            JoinAnswer: self._join_answer,
            Leave: self._leave,
            Announce: self._announce,
        }

    def start(self) -> Ready:
        """Make ourselves known; the first thing that every neighbour gets from us."""
        return Ready(self._state.to_others("", Announce(self._state.id, self._incarnation, "")), [])

    # Clients of ours

    def _client_arrived(self, client: str, message: ClientArrived) -> Ready:
        state = self._state
        try:
            check_client_id(client, state.limits)
        except LimitExceeded as error:
            return Ready([], [_refusal(client, "refused", str(error))])
        holder = next(iter(state.crt.claims(client)), "")
        if holder:
            return Ready([], [_in_use(client, holder)])
        state.guests[client] = Guest(message.incarnation)
        state.crt.add(client, Presence(state.id, client_hop(client), message.incarnation))
        join = Join(client, message.incarnation, state.id)
        wave = self.waves.start(_key(join), client_hop(client), state.neighbours)
        if wave is not None:
            return self._join_ends(join, wave)
        return Ready(state.to_others("", join), [])

    def _client_gone(self, client: str, message: ClientGone) -> Ready:
        guest = self._state.guests.pop(client, None)
        if guest is None:
            return Ready([], [])
        leave = Leave(client, guest.incarnation, self._state.id)
        self.waves.forget((client, guest.incarnation, self._state.id))
        ready = Ready(self._state.to_others("", leave), [])
        ready += self._remove(leave)
        ready.notices.append(Notice(CLIENT_GONE, {"client": client, "reason": message.reason}))
        return ready

    def _client_away(self, client: str, message: ClientAway) -> Ready:
        guest = self._state.guests.get(client)
        if guest is None:
            return Ready([], [])
        guest.away = True
        return self._transactions.client_away(client)

    def _client_back(self, client: str, message: ClientBack) -> Ready:
        guest = self._state.guests.get(client)
        if guest is not None:
            guest.away = False
        return Ready([], [])

    # Clients of others

    def _join(self, source: Hop, message: Join) -> Ready:
        state = self._state
        self._check_direction(source, message.home)
        if message.home in state.crt.claims(message.client):
            raise ProtocolError(f"a join of {message.client} at {message.home}, where it is already")
        try:
            check_client_id(message.client, state.limits)
        except LimitExceeded as error:
            raise ProtocolError(str(error)) from error
        guest = state.guests.get(message.client)
        if guest is not None and (guest.joined or message.home > state.id):
            return Ready([(source, _answer(message, state.id))], [])
        if guest is not None:
            guest.yielded_to = message.home
            state.mark("two clients want one id")
        state.crt.add(message.client, Presence(message.home, source, message.incarnation))
        wave = self.waves.start(_key(message), source, state.others(source))
        if wave is not None:
            return self._join_ends(message, wave)
        return Ready(state.to_others(source, message), [])

    def _join_answer(self, source: Hop, message: JoinAnswer) -> Ready:
        wave = self.waves.answer(_key(message), source, message.holder)
        if wave is None:
            return Ready([], [])  # the client went while its join was under way
        return self._join_ends(message, wave)

    def _join_ends(self, join: Join | JoinAnswer, wave: Wave) -> Ready:
        """Every broker behind us has answered: pass it on, or let our client in."""
        if join.home != self._state.id:
            return Ready([(wave.origin, _answer(join, wave.objection))], [])
        guest = self._state.guests[join.client]
        holder = wave.objection or guest.yielded_to
        if not holder:
            guest.joined = True
            notice = Notice(CLIENT_JOINED, {"client": join.client, "incarnation": join.incarnation})
            return Ready([(wave.origin, Joined(len(self.overlay.known) + 1))], [notice])
        del self._state.guests[join.client]
        leave = Leave(join.client, join.incarnation, self._state.id)
        ready = Ready(self._state.to_others("", leave), [_in_use(join.client, holder)])
        ready += self._remove(leave)
        return ready

    def _leave(self, source: Hop, message: Leave) -> Ready:
        self._check_direction(source, message.home)
        self.waves.forget((message.client, message.incarnation, message.home))
        ready = Ready(self._state.to_others(source, message), [])
        ready += self._remove(message)
        return ready

    def _remove(self, leave: Leave) -> Ready:
        claim = self._state.crt.remove(leave)
        if claim is None:
            return Ready([], [])
        self._state.routing.remove_client(leave.client, claim.incarnation, claim.hop)
        return self._transactions.client_left(leave.client)

    def _check_direction(self, source: Hop, home: str) -> None:
        """In a tree, what broker `home` says about its clients comes by one link only."""
        known = self.overlay.known.get(home)
        if known is None or known.hop != source:
            raise ProtocolError(f"news of a client of {home}, which does not lie behind {source}")

    # Brokers

    def _announce(self, source: Hop, message: Announce) -> Ready:
        fault = self.overlay.hear(message, source)
        if fault is None:
            onward = Announce(message.broker, message.incarnation, message.next or self._state.id)
            notice = Notice(BROKER_KNOWN, {"broker": message.broker})
            return Ready(self._state.to_others(source, onward), [notice])
        return Ready([], [Notice(FATAL, {"reason": fault, "exit_code": 2})] if fault else [])


def _key(join: Join | JoinAnswer) -> tuple[str, int, str]:
    return (join.client, join.incarnation, join.home)


def _answer(join: Join | JoinAnswer, holder: str) -> JoinAnswer:
    return JoinAnswer(join.client, join.incarnation, join.home, holder)


def _in_use(client: str, holder: str) -> Notice:
    return _refusal(client, "in-use", f"The client id {client} is in use at broker {holder}.")


def _refusal(client: str, code: str, reason: str) -> Notice:
    return Notice(CLIENT_REFUSED, {"client": client, "code": code, "reason": reason})
