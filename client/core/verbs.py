"""What a program can ask of a client: the verbs, the same over asyncio and in a simulator.

`client.connection` and the simulator supply a `Port`, and take what is delivered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, overload

from broker.protocol import dtx, stx
from broker.protocol.events import ISSUED
from broker.protocol.filters import Event, Filter, Value
from broker.protocol.vocabulary import (
    D_TX,
    PLANNED,
    PROTOCOLS,
    S_TX_SAFE,
    SAFE,
    Kind,
    Message,
    Mode,
    PlanMode,
    plan_mode,
)
from broker.protocol.wire import TRANSACTION_TYPES, AnyMessage
from client.core.advertised import Advertised
from client.core.errors import ClientError, TimedOut
from client.core.outcomes import Outcome
from client.core.plans import Plan, PlannedTransaction, Plans
from client.core.port import Future, Port, fail, resolve
from client.core.session import Arrived, Delivery, Done, PublicationRefused, Session
from client.core.transactions import LIFETIME_S, Handler, Note, Transaction, Transactions


class SessionWords:
    """The checks of a session, for transactions."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def filter(self, constraints: Mapping[str, Any]) -> Filter:
        return self._session.filter(constraints)

    def event(self, event: Mapping[str, Value], payload: bytes) -> tuple[Event, bytes]:
        return self._session.checked(event, payload)

    def may_publish(self, event: Event) -> bool:
        return self._session.space.contains(event)

    @property
    def advertised(self) -> Advertised:
        return self._session.advertised


class Verbs(ABC):
    def __init__(
        self,
        client_id: str,
        draw_id: Callable[[], int],
        port: Port,
        timeout_s: float,
        on_tcm: Handler | None = None,
        note: Note | None = None,
    ) -> None:
        self.client_id = client_id
        self._session = Session(client_id, draw_id)
        self._port = port
        self._timeout_s = timeout_s
        self._waiting: dict[int, Future] = {}
        words = SessionWords(self._session)
        self.transactions = Transactions(
            client_id, port, words, draw_id, self.delivered, on_tcm, note, timeout_s
        )
        self.plans = Plans(self.transactions)
        self._receivers: dict[type, Callable[[Any], None]] = {
            **dict.fromkeys(dtx.TO_CLIENT, self.transactions.receive),
            **dict.fromkeys(stx.TO_CLIENT, self.plans.receive),
        }
        self.refusals: list[str] = []
        """Publications that the broker did not take, as sentences; empty unless advertisements changed."""
        self.brokers = 0

    async def advertise(self, constraints: Mapping[str, Any]) -> None:
        """Announce what will be published; returns when the edge broker has accepted it."""
        await self._request("adv", constraints)

    async def unadvertise(self, constraints: Mapping[str, Any]) -> None:
        await self._request("uadv", constraints)

    async def subscribe(self, constraints: Mapping[str, Any]) -> None:
        """Ask for matching publications; returns when the edge broker has accepted it."""
        await self._request("sub", constraints)

    async def unsubscribe(self, constraints: Mapping[str, Any]) -> None:
        """Take the filter out of what is subscribed; it may be a part of an earlier subscription."""
        await self._request("usub", constraints)

    @abstractmethod
    async def publish(self, event: Mapping[str, Value], payload: bytes = b"") -> None:
        """Send an event; waits only while the broker is behind."""

    async def settled(self, timeout_s: float | None = None) -> None:
        """Returns when everything issued before it holds at every broker."""
        message = self._session.settle()
        await self._ask(message, message.number, timeout_s)

    @overload
    def transaction(self, protocol: Mode = D_TX, lifetime_s: float = ...) -> Transaction: ...

    @overload
    def transaction(self, protocol: PlanMode, lifetime_s: float = ...) -> PlannedTransaction: ...

    @overload
    def transaction(self, protocol: str, lifetime_s: float = ...) -> Any: ...

    def transaction(self, protocol: str = D_TX, lifetime_s: float = LIFETIME_S) -> Any:
        """To be used with `async with`.

        D-TX takes participants that are not known beforehand. For S-TX the block fills in a plan, which is
        carried out at its end; its lifetime is a limit of the overlay.
        """
        self._check_open()
        if protocol in PLANNED:
            mode = plan_mode(safe=protocol in SAFE)
            return PlannedTransaction(lambda plan: self.execute(plan, mode))
        if protocol not in PROTOCOLS:
            raise ValueError(f"there is no protocol {protocol!r}; known are {', '.join(PROTOCOLS)}")
        return self.transactions.begin(protocol, lifetime_s)  # type: ignore[arg-type]

    async def execute(self, plan: Plan, mode: PlanMode = S_TX_SAFE) -> Outcome:
        """Carry out a plan (S-TX). `s-tx` commits without a vote: faster, and not atomic if a participant is lost."""
        self._check_open()
        return await self.plans.execute(plan, safe=mode in SAFE)

    def note(self, name: str, /, **fields: Any) -> None:
        """A line of the program's own in the history, if one is kept."""
        self.transactions.note(name, **fields)

    # What the shell supplies and tells

    @abstractmethod
    def delivered(self, publication: Delivery, tx: str) -> None:
        """A committed transaction has published this."""

    @abstractmethod
    def joined(self) -> None:
        """The client is known at every broker."""

    def refused(self, reason: str) -> None:
        """A publication was not taken."""
        self.refusals.append(reason)

    @abstractmethod
    def _check_open(self) -> None:
        """Raise if the session has ended."""

    def receive(self, message: AnyMessage) -> None:
        """Everything but regular publications."""
        kind = type(message)
        if kind in TRANSACTION_TYPES:
            if (receive := self._receivers.get(kind)) is not None:
                receive(message)
            return
        outcome = self._session.receive(message)
        if isinstance(outcome, Done):
            answer = self._waiting.get(outcome.number)
            if outcome.error is None:
                resolve(answer)
            else:
                fail(answer, outcome.error)
        elif isinstance(outcome, Arrived):
            self.brokers = outcome.brokers
            self.joined()
        elif isinstance(outcome, PublicationRefused):
            self.refused(outcome.reason)

    def lost(self, error: ClientError) -> None:
        """The session has ended for good: whoever waits is told why."""
        for future in tuple(self._waiting.values()):
            fail(future, error)
        self.transactions.lost(error)
        self.plans.lost(error)

    async def _request(self, kind: Kind, constraints: Mapping[str, Any]) -> None:
        message = self._session.request(kind, constraints)
        self.transactions.note(ISSUED, op=message.number, kind=kind, filter=message.filter)
        await self._ask(message, message.number, None)

    async def _ask(self, message: Message, number: int, timeout_s: float | None) -> None:
        self._check_open()
        limit = self._timeout_s if timeout_s is None else timeout_s
        answer = self._waiting[number] = self._port.future()
        error = TimedOut(f"no answer to {type(message).__name__} {number} within {limit:g} s")
        timer = self._port.call_later(limit, lambda: fail(answer, error))
        self._port.send(message)  # type: ignore[arg-type]
        try:
            await answer
        finally:
            timer.cancel()
            self._waiting.pop(number, None)
