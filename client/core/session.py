"""The client without I/O: what it has advertised, what it waits for, what has arrived.

Methods that start something return the message to send; `receive` takes a message and returns what
became of it. `client.connection` is the asyncio shell around it; a simulator can be another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from broker.protocol.filters import Event, Filter, FilterError, Value, make_filter
from broker.protocol.limits import LimitExceeded, Limits, check_filter_within, check_publication
from broker.protocol.messages import Accepted, Joined, Publish, Refused, Request, Settle, Settled
from broker.protocol.vocabulary import Kind
from broker.protocol.wire import MESSAGE_BYTES_MAX, AnyMessage, WireError, encode
from client.core.advertised import Advertised, Change
from client.core.errors import ClientError, InvalidFilter, NotAdvertised, RefusedByBroker, TooLarge

Delivery = Publish
"""What a subscriber gets: `event`, `payload`, and an opaque `id`."""


class Done(Struct, frozen=True):
    """The request or settle with this number has come back; `error` tells if it was refused."""

    number: int
    error: ClientError | None = None


class Arrived(Struct, frozen=True):
    """The client is known at every broker."""

    brokers: int


class PublicationRefused(Struct, frozen=True):
    id: int
    reason: str


Incoming = Done | Arrived | PublicationRefused | Publish


class Session:
    def __init__(self, client_id: str, draw_id: Callable[[], int], limits: Limits | None = None) -> None:
        """`draw_id` gives publications their opaque ids: 64 random bits each."""
        self.client_id = client_id
        self.limits = limits or Limits()
        self._draw_id = draw_id
        self._number = 0
        self.advertised = Advertised()
        self.space = self.advertised.space
        self._open: dict[int, tuple[Kind, Filter, int] | None] = {}

    def request(self, kind: Kind, constraints: Mapping[str, Any]) -> Request:
        filter_ = self.filter(constraints)
        self._number += 1
        request = Request(self._number, kind, filter_)
        if len(encode(request)) > MESSAGE_BYTES_MAX:
            raise TooLarge(f"a filter of {len(encode(request))} bytes; the limit is {MESSAGE_BYTES_MAX}")
        place = self.advertised.say() if kind in ("adv", "uadv") else 0
        self._open[self._number] = (kind, filter_, place)
        return request

    def publish(self, event: Mapping[str, Value], payload: bytes = b"") -> Publish:
        event, payload = self.checked(event, payload)
        if not self.space.contains(event):
            raise NotAdvertised(f"{event} is outside what {self.client_id} advertises; advertise it first")
        return Publish(self._draw_id(), event, payload)

    def checked(self, event: Mapping[str, Value], payload: bytes) -> tuple[Event, bytes]:
        """What is to be published, in the form that the wire takes."""
        if type(event) is not dict:
            event = dict(event)
        if not isinstance(payload, bytes):
            payload = _as_bytes(payload)
        try:
            check_publication(event, payload, self.limits)
        except FilterError as error:
            raise InvalidFilter(str(error)) from None
        except LimitExceeded as error:
            raise TooLarge(str(error)) from None
        return event, payload

    def settle(self) -> Settle:
        self._number += 1
        self._open[self._number] = None
        return Settle(self.client_id, self._number)

    def receive(self, message: AnyMessage) -> Incoming | None:
        """What a message means to us; None if it answers what was never asked."""
        if isinstance(message, Publish):
            return message
        if isinstance(message, Accepted):
            return self._accepted(message.number)
        if isinstance(message, Refused):
            return self._refused(message)
        if isinstance(message, Settled):
            return self._done(message.number)
        if isinstance(message, Joined):
            return Arrived(message.overlay)
        raise WireError(f"{type(message).__name__} is not for clients")

    def _accepted(self, number: int) -> Done | None:
        operation = self._open.get(number)
        if operation is not None and operation[2]:
            kind, filter_, place = operation
            self.advertised.settle((place,), (Change((place, 0), kind == "adv", filter_),))
        return self._done(number)

    def _refused(self, message: Refused) -> Incoming | None:
        if message.number in self._open:
            operation = self._open[message.number]
            if operation is not None:
                self.advertised.settle((operation[2],))
            return self._done(message.number, RefusedByBroker(message.reason))
        return PublicationRefused(message.number, message.reason)

    def _done(self, number: int, error: ClientError | None = None) -> Done | None:
        if number not in self._open:
            return None
        del self._open[number]
        return Done(number, error)

    def filter(self, constraints: Mapping[str, Any]) -> Filter:
        try:
            filter_ = make_filter(constraints)
            check_filter_within(filter_, self.limits)
        except FilterError as error:
            raise InvalidFilter(str(error)) from None
        except LimitExceeded as error:
            raise TooLarge(str(error)) from None
        return filter_


def _as_bytes(payload: object) -> bytes:
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise InvalidFilter(f"a payload is bytes, not {type(payload).__name__}; encode it first")
