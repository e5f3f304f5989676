"""What belongs to a D-TX or D-TX_NI transaction at one client: frames, and the operations in them.

A *frame* holds the coordinator's own operations, or those in answer to one `tcm`. Operations of a frame
follow one another, each when the one before is acknowledged; frames do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from broker.protocol.dtx import PublicationKind, TxAck, TxPublish, TxRequest
from broker.protocol.events import ACKNOWLEDGED, ISSUED
from broker.protocol.filters import Event, Filter, Value
from broker.protocol.messages import Publish
from broker.protocol.vocabulary import Kind
from broker.protocol.wire import TransactionMessage
from client.core.advertised import Advertised, Change
from client.core.errors import NotAdvertised, TransactionAborted
from client.core.port import Future, resolve

if TYPE_CHECKING:
    from client.core.transactions import Transactions


class Note(Protocol):
    """Takes a line of the history."""

    def __call__(self, name: str, /, **fields: Any) -> None: ...


Handler = Callable[["Tcm", "Frame"], Awaitable[None]]


class Tcm(Struct, frozen=True):
    """A transaction control message, as its receiver's handler gets it."""

    tx: str
    event: Event
    payload: bytes


class Words(Protocol):
    """What a client may say, checked at the caller: the session's."""

    def filter(self, constraints: Mapping[str, Any]) -> Filter: ...

    def event(self, event: Mapping[str, Value], payload: bytes) -> tuple[Event, bytes]: ...

    def may_publish(self, event: Event) -> bool: ...

    @property
    def advertised(self) -> Advertised: ...


class Part(Struct, eq=False):
    """One transaction, as far as this client is in it."""

    tx: str
    acks: dict[int, Future] = field(default_factory=dict)
    kept: list[Publish] = field(default_factory=list)
    """Publications that await the commit."""
    said: list[int] = field(default_factory=list)
    """Places of advertisements that it has sent."""
    advertised: list[Change] = field(default_factory=list)
    """Those of them that have been acknowledged."""
    committed_at: int = 0
    """At its coordinator, if it is isolated: the place of its commit among what this client says."""
    is_isolated: bool = False
    """At a participant, which learns it by the commit."""
    frames: int = 0
    closed: bool = False
    """Nothing of it may be sent any more."""
    transaction: Any = None
    """Where this client is the coordinator."""


class Frame:
    """Operations that follow one another: of the coordinator, or in answer to one `tcm`."""

    def __init__(self, manager: Transactions, part: Part) -> None:
        self._manager = manager
        self._part = part
        self._last: Future | None = None
        part.frames += 1
        self._number = part.frames

    @property
    def tx(self) -> str:
        return self._part.tx

    @property
    def number(self) -> int:
        """Among the frames of the transaction at this client."""
        return self._number

    async def advertise(self, constraints: Mapping[str, Any]) -> None:
        await self._change("adv", constraints)

    async def unadvertise(self, constraints: Mapping[str, Any]) -> None:
        await self._change("uadv", constraints)

    async def subscribe(self, constraints: Mapping[str, Any]) -> None:
        await self._change("sub", constraints)

    async def unsubscribe(self, constraints: Mapping[str, Any]) -> None:
        await self._change("usub", constraints)

    async def publish(self, event: Mapping[str, Value], payload: bytes = b"") -> int:
        """Delivered at the commit; returns how many clients it will reach."""
        return await self._publication("pub", event, payload)

    async def tcm(self, event: Mapping[str, Value], payload: bytes = b"") -> int:
        """Ask the clients that the event reaches to add their operations; returns how many there were."""
        return await self._publication("tcm", event, payload)

    async def _change(self, kind: Kind, constraints: Mapping[str, Any]) -> None:
        filter_ = self._manager.words.filter(constraints)
        places: list[int] = []

        def request(op: int) -> TxRequest:
            if kind in ("adv", "uadv"):
                places.append(self._manager.words.advertised.say(in_transaction=True))
                self._part.said += places
            return TxRequest(self.tx, op, kind, filter_)

        await self._operate(request, kind=kind, filter=filter_)
        self._part.advertised += [Change((place, 0), kind == "adv", filter_) for place in places]

    async def _publication(self, kind: PublicationKind, event: Mapping[str, Value], payload: bytes) -> int:
        checked, data = self._manager.words.event(event, payload)
        self._check_advertised(checked)
        return await self._operate(
            lambda op: TxPublish(self.tx, op, kind, checked, data), kind=kind, event=checked
        )

    def _check_advertised(self, event: Event) -> None:
        for change in reversed(self._part.advertised):
            if change.filter.matches(event):
                if change.positive:
                    return
                break
        else:
            if self._manager.words.may_publish(event):
                return
        raise NotAdvertised(
            f"{event} is outside what {self._manager.client_id} advertises; advertise it first"
        )

    async def _operate(self, message: Callable[[int], TransactionMessage], **what: Any) -> int:
        """Send an operation when those before it are done; returns how many clients it has reached."""
        manager, before = self._manager, self._last
        mine = self._last = manager.port.future()
        try:
            if before is not None and not before.done():
                await before
            self._check_open()
            op = manager.draw_id()
            answer = self._part.acks[op] = manager.port.future()
            if manager.keeps_history:
                manager.note(ISSUED, tx=self.tx, op=op, frame=self._number, **what)
            manager.port.send(message(op))
            ack: TxAck = await answer
            if ack.reason:
                raise TransactionAborted(ack.reason)
            if manager.keeps_history and "event" in what:
                manager.note(ACKNOWLEDGED, tx=self.tx, op=op, reached=ack.reached)
            return ack.reached
        finally:
            resolve(mine)

    def _check_open(self) -> None:
        if self._part.closed:
            raise TransactionAborted(f"transaction {self.tx} has ended")
