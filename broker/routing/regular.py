"""Regular adv, uadv, sub and usub (Section 2.2), and records that other brokers send on; pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker.matching.records import Record, RoutingError
from broker.protocol.events import PLACED, PROCESSED
from broker.protocol.filters import FilterError
from broker.protocol.hops import Hop, Sends, client_hop
from broker.protocol.limits import LimitExceeded, check_filter_within
from broker.protocol.messages import Accepted, Forget, Operation, Refused, Request
from broker.protocol.vocabulary import NO_KEY, Stamp
from broker.protocol.wire import brief
from broker.routing.ready import ProtocolError, Ready
from broker.routing.state import BrokerState


class Adopter(Protocol):
    """Whose a record is that was written in a transaction and comes by itself, attracted."""

    def adopt(self, record: Record, message: Operation) -> bool:
        """False: its transaction was aborted here, and it is to be dropped."""

    def adopted(self, message: Operation, ready: Ready) -> None:
        """It stands in the tables now."""


class Regular:
    def __init__(self, state: BrokerState, transactions: Adopter) -> None:
        self._state = state
        self._routing = state.routing
        self._transactions = transactions
        self.from_client: dict[type, Callable[[str, Any], Ready]] = {Request: self._request}
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {
            Operation: self._operation,
            Forget: self._forget,
        }

    def _request(self, client: str, message: Request) -> Ready:
        guest = self._state.joined_guest(client)
        hop = client_hop(client)
        stamp = self._state.next_stamp(guest)
        try:
            check_filter_within(message.filter, self._state.limits)
            sends = self._routing.apply(Record(message.kind, client, stamp, message.filter), hop)
        except (FilterError, LimitExceeded, RoutingError) as error:
            return Ready([(hop, Refused(message.number, brief(str(error))))], [])
        guest.operations += 1
        if message.kind in ("adv", "uadv"):
            guest.space.change(message.kind == "adv", message.filter)
        ready = Ready([*sends, (hop, Accepted(message.number))], [])
        self._state.note(
            ready, PROCESSED, tx="", op=message.number, kind=message.kind, client=client, stamp=stamp, source=hop
        )  # fmt: skip
        self._state.note(ready, PLACED, kind=message.kind, client=client, filter=message.filter)
        return ready

    def _operation(self, source: Hop, message: Operation) -> Ready:
        key, class_, incarnation, number = message.stamp
        claim = self._state.crt.behind(message.client, source, incarnation)
        if claim is None:
            raise ProtocolError(f"an operation of {message.client}, who has not joined behind {source}")
        # The parts that all records of a client share are shared in memory too.
        stamp: Stamp = (NO_KEY if key == NO_KEY else key, class_, claim.incarnation, number)
        record = Record(message.kind, message.client, stamp, message.filter)
        known = self._routing.find(record, source)
        try:
            check_filter_within(message.filter, self._state.limits)
            if known is None or (known.kind, known.filter) != (record.kind, record.filter):
                self._routing.check(record, source)
        except (FilterError, LimitExceeded, RoutingError) as error:
            raise ProtocolError(str(error)) from error
        if message.tx and not self._transactions.adopt(record, message):
            return Ready([], [])
        if known is not None:  # a transaction has brought it here before
            sends: Sends = [
                (hop, self._routing.operation(known)) for hop in self._routing.send_on(known, source)
            ]
        else:
            sends = self._routing.apply(record, source)
        ready = Ready(sends, [])
        if message.tx:
            self._transactions.adopted(message, ready)
        else:
            self._state.note(ready, PLACED, kind=record.kind, client=record.client, filter=record.filter)
        return ready

    def _forget(self, source: Hop, message: Forget) -> Ready:
        if self._state.crt.behind(message.client, source, message.stamp[2]) is None:
            raise ProtocolError(f"a forget for {message.client}, who has not joined behind {source}")
        return Ready(self._routing.forget(message.client, message.stamp), [])
