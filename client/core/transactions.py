"""D-TX and D-TX_NI at a client: what it coordinates, and what it takes part in. No I/O of its own.

A transaction at a client consists of frames (`client.core.frames`): one for the coordinator's own operations,
and one for each `tcm` that it received. Publications are kept until the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from broker.protocol.dtx import (
    Abort,
    Begin,
    Begun,
    Commit,
    Ended,
    Prepare,
    Prepared,
    TxAck,
    TxPublish,
)
from broker.protocol.events import BEGIN, ENDED, RECEIVED, TCM
from broker.protocol.messages import Publish
from broker.protocol.vocabulary import ISOLATED, NO_KEY, Mode
from broker.protocol.wire import TransactionMessage
from client.core.advertised import place_of
from client.core.errors import ClientError, SessionClosed, TransactionAborted
from client.core.frames import Frame, Handler, Note, Part, Tcm, Words
from client.core.outcomes import COMMITTED, Outcome, aborted, unknown
from client.core.port import DelayedCall, Port, fail, resolve

__all__ = ["LIFETIME_S", "Frame", "Handler", "Note", "Part", "Tcm", "Transaction", "Transactions", "Words"]

LIFETIME_S = 30.0
"""A transaction that has not been committed by then is aborted, wherever it stands."""
TIMEOUT_S = 10.0
"""How long a coordinator waits for the answer to its begin, its commit or its abort."""


class Transaction(Frame):
    """A transaction that this client coordinates: `async with session.transaction("d-tx") as tx`.

    It commits at the end of the block, and aborts if the block raises. After it, `outcome` says how it
    ended; if that is not *committed*, the block raises `TransactionAborted` or `OutcomeUnknown`. A block
    that is cancelled does not wait for the answer to its abort. Without an answer to the commit within
    the session's time-out the outcome is unknown, until the answer comes after all.
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
        manager.note(BEGIN, tx=self.tx, mode=self.mode)
        manager.port.send(Begin(self.tx, self.mode, NO_KEY, round(1e3 * self._lifetime_s)))
        timer = self._limit("it could not begin")
        try:
            await self._begun
        except GeneratorExit:
            raise
        except BaseException as error:
            self._cut_short(error)
            raise
        finally:
            timer.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self.outcome is None:
                await self.commit()
            else:
                self.outcome.raise_unless_committed()
        elif isinstance(error, Exception):
            if self.outcome is None:
                await self.abort(str(error) or type(error).__name__)
        elif not isinstance(error, GeneratorExit):
            self._cut_short(error)

    async def commit(self) -> None:
        """Returns when every broker has committed; raises if it was aborted, or if that is not known."""
        try:
            await self._commit()
        except GeneratorExit:
            raise
        except BaseException as error:
            self._cut_short(error)
            raise
        assert self.outcome is not None
        self.outcome.raise_unless_committed()

    async def _commit(self) -> None:
        if self.outcome is not None:
            return
        if self._last is not None:
            await self._last
        if not self._part.closed:
            self._manager.port.send(Prepare(self.tx))
            objection: str = await self._votes
            if objection:
                self._send_abort(objection)
            elif not self._part.closed:
                self._commit_sent = True
                if self.mode in ISOLATED:
                    self._part.committed_at = self._manager.words.advertised.pass_on()
                self._manager.port.send(Commit(self.tx))
        await self._ending()

    async def abort(self, reason: str = "its coordinator aborted it") -> None:
        """Returns when every broker has dropped it, or at the session's time-out: it will not happen."""
        if self.outcome is None:
            self._send_abort(reason)
            await self._ending()

    async def _ending(self) -> None:
        timer = self._limit("the broker has not said how it ended")
        try:
            await self._end
        finally:
            timer.cancel()

    def _limit(self, what: str) -> DelayedCall:
        """The session's time-out; what has not been committed by then is aborted, by us."""
        limit_s = self._manager.timeout_s
        reason = f"{what} within {limit_s:g} s"
        return self._manager.port.call_later(limit_s, lambda: self._give_up(reason))

    def _give_up(self, reason: str) -> None:
        self._send_abort(reason)
        self._settle(unknown(reason) if self._commit_sent else aborted(reason))

    def _cut_short(self, error: BaseException) -> None:
        """Nobody waits for it any more."""
        if self.outcome is None:
            self._give_up(f"it was interrupted: {error or type(error).__name__}")

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
        """Also after a time-out, when what was unknown becomes known."""
        if self.outcome is None or self.outcome.state == "unknown":
            self._settle(outcome)

    def _settle(self, outcome: Outcome) -> None:
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
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`deliver` gets what a committed transaction has published, and the transaction's id."""
        self.client_id = client_id
        self.incarnation = 0
        self.port = port
        self.words = words
        self.draw_id = draw_id
        self.parts: dict[str, Part] = {}
        self.note: Note = note or _no_note
        self.keeps_history = note is not None
        self.deliver = deliver
        self._on_tcm = on_tcm
        self.number = 0
        self.timeout_s = timeout_s

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
            part.is_isolated = message.isolated
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
            transaction: Transaction | None = part.transaction
            if transaction is not None:
                transaction.lost(str(error))
                outcome = transaction.outcome
                if outcome is not None:
                    self.note(ENDED, tx=part.tx, outcome=outcome.state, reason=outcome.reason)

    def _publication(self, message: TxPublish) -> None:
        part = self.parts.get(message.tx)
        if part is None:
            part = self.parts[message.tx] = Part(message.tx)
        if part.closed:
            return
        if self.keeps_history:
            self.note(RECEIVED, tx=message.tx, op=message.op, kind=message.kind)
        if message.kind == "pub":
            part.kept.append(Publish(message.op, message.event, message.payload))
            self.port.send(TxAck(message.tx, message.op))
        else:
            self.port.spawn(self._answer(part, message))

    async def _answer(self, part: Part, message: TxPublish) -> None:
        """Let the program add its operations; then the `tcm` is done."""
        frame = Frame(self, part)
        reason = ""
        self.note(TCM, tx=part.tx, op=message.op, frame=frame.number)
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
        self.note(ENDED, tx=part.tx, outcome=outcome.state, reason=outcome.reason)
        self._settle_advertised(part, committed)
        if committed:
            for publication in part.kept:
                self.deliver(publication, part.tx)
        if part.transaction is not None:
            part.transaction.ended(outcome)

    def _settle_advertised(self, part: Part, committed: bool) -> None:
        advertised, changes = self.words.advertised, part.advertised if committed else []
        changes = sorted(changes, key=place_of)
        if part.committed_at or part.is_isolated:
            changes = advertised.at_commit(part.said, changes, part.committed_at)
        advertised.settle(part.said, changes)


def _no_note(name: str, /, **fields: Any) -> None:
    """Where no history is kept."""
