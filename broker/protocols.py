"""All transaction protocols of a broker as one: the next one is a folder and a line here; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from broker.matching.records import Record
from broker.protocol.hops import Hop
from broker.protocol.messages import Operation
from broker.routing.ready import Ready
from broker.routing.state import BrokerState
from broker.transactions.dtx.machine import Dtx
from broker.transactions.machine import Machine
from broker.transactions.stx.machine import Stx


class Protocols:
    def __init__(self, state: BrokerState) -> None:
        self.dtx = Dtx(state)
        self.stx = Stx(state)
        self._machines: tuple[Machine, ...] = (self.dtx, self.stx)
        self.unfinished = tuple(open_ for machine in self._machines for open_ in machine.unfinished)
        self.from_client: dict[type, Callable[[str, Any], Ready]] = {}
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {}
        for machine in self._machines:
            self.from_client |= machine.from_client
            self.from_broker |= machine.from_broker

    def __bool__(self) -> bool:
        """Whether anything is open here."""
        return any(self.unfinished)

    def __iter__(self) -> Iterator[str]:
        """The ids of what is open, also of what has ended here and not everywhere."""
        return chain(*self.unfinished)

    def describe(self) -> dict[str, list[dict[str, Any]]]:
        return {kind: rows for machine in self._machines for kind, rows in machine.describe().items()}

    def client_left(self, client: str) -> Ready:
        return _all(machine.client_left(client) for machine in self._machines)

    def client_away(self, client: str) -> Ready:
        return _all(machine.client_away(client) for machine in self._machines)

    def expire(self, now: float) -> Ready:
        ready = _all(machine.expire(now) for machine in self._machines)
        ready += self.advertised()
        return ready

    def advertised(self) -> Ready:
        return _all(machine.advertised() for machine in self._machines)

    def adopt(self, record: Record, message: Operation) -> bool:
        return self._owner(message).adopt(record, message)

    def adopted(self, message: Operation, ready: Ready) -> None:
        self._owner(message).adopted(message, ready)

    def _owner(self, message: Operation) -> Machine:
        return next(machine for machine in self._machines if machine.owns(message))


def _all(answers: Iterator[Ready]) -> Ready:
    ready = Ready([], [])
    for answer in answers:
        ready += answer
    return ready
