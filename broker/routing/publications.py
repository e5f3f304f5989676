"""Where regular publications go, and which are refused: one decision for many at once; pure.

The server forwards the bytes of publications by it, the simulator the messages: both run this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from broker.matching.batch import BATCH_MIN, are_good
from broker.protocol.filters import FilterError
from broker.protocol.hops import Hop, for_client, is_client, name_of
from broker.protocol.limits import LimitExceeded, check_publication
from broker.protocol.messages import Publish, Refused
from broker.protocol.wire import brief
from broker.routing.ready import Ready
from broker.routing.state import BrokerState

NOTHING: Mapping[int, str] = {}


class Decision(NamedTuple):
    """About several publications of one source, by their places."""

    hops: list[Collection[Hop]]
    """Where each goes; the source may be among them, and gets none of them back."""
    refused: Mapping[int, str]
    """Why some go nowhere: the reasons, by place."""


class Publications:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._routing = state.routing
        self.from_client: dict[type, Callable[[str, Any], Ready]] = {Publish: for_client(self._spread_one)}
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {Publish: self._spread_one}

    def decide_one(self, source: Hop, message: Publish) -> tuple[Collection[Hop], str]:
        """About a publication that has come alone: where it goes, and why nowhere. The hot path at low load."""
        if is_client(source):
            client = name_of(source)
            reason = self._objection(client, self._state.joined_guest(client).space.contains, message)
            if reason:
                return (), reason
        return self._routing.wanted_by(message.event), ""

    def decide(self, source: Hop, messages: Sequence[Publish]) -> Decision:
        """The hot path. A client's own publications must be within what it advertises, and the limits."""
        if len(messages) == 1:
            hops_of_one, reason = self.decide_one(source, messages[0])
            return Decision([hops_of_one], {0: reason} if reason else NOTHING)
        refused = self._refused(name_of(source), messages) if is_client(source) else NOTHING
        hops = self._routing.wanted_by_each([message.event for message in messages])
        for place in refused:
            hops[place] = ()
        return Decision(hops, refused)

    def spread(self, source: Hop, messages: Sequence[Publish]) -> Ready:
        """The same, carried out with messages."""
        decision, ready = self.decide(source, messages), Ready([], [])
        for place, reason in decision.refused.items():
            ready.sends.append((source, Refused(messages[place].id, reason)))
        for message, hops in zip(messages, decision.hops, strict=True):
            ready.sends += [(hop, message) for hop in hops if hop != source]
        return ready

    def _spread_one(self, source: Hop, message: Publish) -> Ready:
        return self.spread(source, (message,))

    def _refused(self, client: str, messages: Sequence[Publish]) -> Mapping[int, str]:
        contains = self._state.joined_guest(client).space.contains
        if len(messages) >= BATCH_MIN:
            events, payloads = [m.event for m in messages], [m.payload for m in messages]
            if are_good(events, payloads, self._state.limits) and all(map(contains, events)):
                return NOTHING
        reasons = map(partial(self._objection, client, contains), messages)
        return {place: reason for place, reason in enumerate(reasons) if reason} or NOTHING

    def _objection(self, client: str, contains: Callable[[Any], bool], message: Publish) -> str:
        """Why a publication of our own client is refused; empty if it is not."""
        try:
            check_publication(message.event, message.payload, self._state.limits)
        except (FilterError, LimitExceeded) as error:
            return brief(str(error))
        return (
            "" if contains(message.event) else brief(f"{message.event} is outside what {client} advertises")
        )
