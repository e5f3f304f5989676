"""D-TX and D-TX_NI at a client: what it coordinates, and what it takes part in. No I/O of its own.

A transaction at a client consists of *frames*: one for the coordinator's own operations, and one for
each `tcm` that it received. Operations of a frame follow one another, each when the one before is
acknowledged; frames do not wait for each other. Publications are kept until the commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Protocol

from msgspec import Struct, field

from broker.filters import Event, Filter, Value
from broker.txmessages import (
    Abort,
    Begin,
    Begun,
    Commit,
    Ended,
    Mode,
    Prepare,
    Prepared,
    PublicationKind,
    TransactionMessage,
    TxAck,
    TxPublish,
    TxRequest,
)
from broker.wire import NO_KEY, Kind, Publish
from client.errors import ClientError, NotAdvertised, SessionClosed, TransactionAborted
from client.outcome import COMMITTED, Outcome, aborted, unknown
from client.port import Future, Port, fail, resolve

LIFETIME_S = 30.0
"""A transaction that has not been committed by then is aborted, wherever it stands."""


class Note(Protocol):
    """Takes a line of the history."""

    def __call__(self, name: str, /, **fields: Any) -> None: ...


Handler = Callable[["Tcm", "Frame"], Awaitable[None]]


class Tcm(Struct, frozen=True):
    """A transaction control message, as its receiver's handler gets it."""

    tx: str
    event: Event
    payload: bytes


class Words:
    """What a client may say, checked at the caller: filled in by the session."""

    def filter(self, constraints: Mapping[str, Any]) -> Filter:
        raise NotImplementedError

    def event(self, event: Mapping[str, Value], payload: bytes) -> tuple[Event, bytes]:
        raise NotImplementedError

    def may_publish(self, event: Event) -> bool:
        raise NotImplementedError

    def advertised(self, positive: bool, filter_: Filter) -> None:
        raise NotImplementedError


class Part(Struct, eq=False):
    """One transaction, as far as this client is in it."""

    tx: str
    acks: dict[int, Future] = field(default_factory=dict)
    kept: list[Publish] = field(default_factory=list)
    """Publications that await the commit."""
    advertised: list[tuple[bool, Filter]] = field(default_factory=list)
    frames: int = 0
    closed: bool = False
    """Nothing of it may be sent any more."""
    transaction: Transaction | None = None
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
        await self._operate(lambda op: TxRequest(self.tx, op, kind, filter_), kind=kind, filter=filter_)
        if kind in ("adv", "uadv"):
            self._part.advertised.append((kind == "adv", filter_))

    async def _publication(self, kind: PublicationKind, event: Mapping[str, Value], payload: bytes) -> int:
        checked, data = self._manager.words.event(event, payload)
        self._check_advertised(checked)
        return await self._operate(
            lambda op: TxPublish(self.tx, op, kind, checked, data), kind=kind, event=checked
        )

    def _check_advertised(self, event: Event) -> None:
        for positive, filter_ in reversed(self._part.advertised):
            if filter_.matches(event):
                if positive:
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
            if before is not None:
                await before
            self._check_open()
            op = manager.draw_id()
            answer = self._part.acks[op] = manager.port.future()
            manager.note("issued", tx=self.tx, op=op, frame=self._number, **what)
            manager.port.send(message(op))
            ack: TxAck = await answer
            if ack.reason:
                raise TransactionAborted(ack.reason)
            return ack.reached
        finally:
            resolve(mine)

    def _check_open(self) -> None:
        if self._part.closed:
            raise TransactionAborted(f"transaction {self.tx} has ended")


class Transaction(Frame):
    """A transaction that this client coordinates: `async with session.transaction("d-tx") as tx`.

    It commits at the end of the block, and aborts if the block raises. After it, `outcome` says how it
    ended; if that is not *committed*, the block raises `TransactionAborted` or `OutcomeUnknown`.
    """

    def __init__(self, manager: Transactions, part: Part, mode: Mode, lifetime_s: float) -> None:
        super().__init__(manager, part)
        self.mode = mode
        self.outcome: Outcome | None = None
        self._lifetime_s = lifetime_s
        self._begun = manager.port.future()
        self._votes = manager.port.future()
        self._end = manager.port.future()
        self._commit_sent = False

    async def __aenter__(self) -> Transaction:
        manager = self._manager
        manager.parts[self.tx] = self._part
        self._part.transaction = self
        manager.note("begin", tx=self.tx, mode=self.mode)
        manager.port.send(Begin(self.tx, self.mode, NO_KEY, round(1e3 * self._lifetime_s)))
        await self._begun
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.outcome is None:
                await self.commit()
            elif self.outcome.state != "committed":
                self.outcome.raise_unless_committed()
            return
        if self.outcome is None and isinstance(error, Exception):
            await self.abort(str(error) or type(error).__name__)

    async def commit(self) -> None:
        """Returns when every broker has committed; raises if it was aborted, or if that is not known."""
        if self.outcome is None:
            if self._last is not None:
                await self._last
            if not self._part.closed:
                self._manager.port.send(Prepare(self.tx))
                objection: str = await self._votes
                if objection:
                    self._send_abort(objection)
                elif not self._part.closed:
                    self._commit_sent = True
                    self._manager.port.send(Commit(self.tx))
            await self._end
        assert self.outcome is not None
        self.outcome.raise_unless_committed()

    async def abort(self, reason: str = "its coordinator aborted it") -> None:
        """Returns when every broker has dropped it."""
        if self.outcome is None:
            self._send_abort(reason)
            await self._end

    def _send_abort(self, reason: str) -> None:
        if not self._part.closed and not self._commit_sent:
            self._manager.close(self._part, reason)
            self._manager.port.send(Abort(self.tx, reason[:200]))

    # What the manager tells

    def begun(self) -> None:
        resolve(self._begun)

    def voted(self, objection: str) -> None:
        resolve(self._votes, objection)

    def ended(self, outcome: Outcome) -> None:
        self.outcome = outcome
        fail(self._begun, TransactionAborted(outcome.reason))
        resolve(self._votes, outcome.reason or "it has ended")
        resolve(self._end)

    def lost(self, reason: str) -> None:
        """The session has ended: if no commit was sent, the broker aborts for us."""
        self.ended(unknown(reason) if self._commit_sent else aborted(reason))


class Transactions:
    """All transactions of one client."""

    def __init__(
        self,
        client_id: str,
        port: Port,
        words: Words,
        draw_id: Callable[[], int],
        deliver: Callable[[Publish, str], None],
        on_tcm: Handler | None = None,
        note: Note | None = None,
    ) -> None:
        """`deliver` gets what a committed transaction has published, and the transaction's id."""
        self.client_id = client_id
        self.incarnation = 0
        self.port = port
        self.words = words
        self.draw_id = draw_id
        self.parts: dict[str, Part] = {}
        self.note: Note = note or _no_note
        self.deliver = deliver
        self._on_tcm = on_tcm
        self.number = 0

    def new_id(self) -> str:
        self.number += 1
        return f"{self.client_id}/{self.incarnation}/{self.number}"

    def begin(self, mode: Mode, lifetime_s: float = LIFETIME_S) -> Transaction:
        return Transaction(self, Part(self.new_id()), mode, lifetime_s)

    def receive(self, message: TransactionMessage) -> None:
        if isinstance(message, TxPublish):
            self._publication(message)
            return
        part = self.parts.get(message.tx)
        if part is None:
            if isinstance(message, (Commit, Abort)):
                self.port.send(Ended(message.tx, isinstance(message, Commit)))
            return
        transaction = part.transaction
        if isinstance(message, TxAck):
            resolve(part.acks.pop(message.op, None), message)
        elif isinstance(message, Commit):
            self._end(part, COMMITTED)
            self.port.send(Ended(part.tx, committed=True))
        elif isinstance(message, Abort):
            self._end(part, aborted(message.reason))
            self.port.send(Ended(part.tx, committed=False))
        elif transaction is not None:
            if isinstance(message, Begun):
                transaction.begun()
            elif isinstance(message, Prepared):
                transaction.voted(message.reason)
            elif isinstance(message, Ended):
                self._end(part, COMMITTED if message.committed else aborted(message.reason))

    def close(self, part: Part, reason: str) -> None:
        """Send nothing more of it; whoever waits for an operation learns why."""
        part.closed = True
        for future in tuple(part.acks.values()):
            fail(future, TransactionAborted(reason))
        part.acks.clear()

    def lost(self, error: ClientError) -> None:
        """The session has ended."""
        for part in tuple(self.parts.values()):
            self.close(part, str(error))
            del self.parts[part.tx]
            if part.transaction is not None:
                part.transaction.lost(str(error))

    def _publication(self, message: TxPublish) -> None:
        part = self.parts.get(message.tx)
        if part is None:
            part = self.parts[message.tx] = Part(message.tx)
        if part.closed:
            return
        self.note("received", tx=message.tx, op=message.op, kind=message.kind)
        if message.kind == "pub":
            part.kept.append(Publish(message.op, message.event, message.payload))
            self.port.send(TxAck(message.tx, message.op))
        else:
            self.port.spawn(self._answer(part, message))

    async def _answer(self, part: Part, message: TxPublish) -> None:
        """Let the program add its operations; then the `tcm` is done."""
        frame = Frame(self, part)
        reason = ""
        self.note("tcm", tx=part.tx, op=message.op, frame=frame.number)
        if self._on_tcm is not None:
            try:
                await self._on_tcm(Tcm(message.tx, message.event, message.payload), frame)
            except SessionClosed:
                return
            except Exception as error:  # noqa: BLE001 whatever it is, the transaction cannot commit
                reason = f"{self.client_id}: {error or type(error).__name__}"[:200]
        if not part.closed:
            self.port.send(TxAck(message.tx, message.op, reason))

    def _end(self, part: Part, outcome: Outcome) -> None:
        self.close(part, outcome.reason)
        del self.parts[part.tx]
        committed = outcome.state == "committed"
        self.note("ended", tx=part.tx, outcome=outcome.state, reason=outcome.reason)
        if committed:
            for positive, filter_ in part.advertised:
                self.words.advertised(positive, filter_)
            for publication in part.kept:
                self.deliver(publication, part.tx)
        if part.transaction is not None:
            part.transaction.ended(outcome)


def _no_note(name: str, /, **fields: Any) -> None:
    """Where no history is kept."""
