"""S-TX at a client: plans, their coordinator, and their participants. No I/O of its own.

A plan is written with the same verbs as any transaction; what a participant is to do stands under the
`tcm` to it. Steps are numbered depth first, which is their order.

    plan = Plan()
    at_d = plan.tcm("D")
    at_d.tcm("A1").subscribe({"process": "p1", "instance": "x1"})
    at_d.unsubscribe({"process": "p1", "instance": "x1"})
    plan.publish({"process": "p1", "instance": "x1", "step": 1})
    await session.execute(plan)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any

from msgspec import Struct, field

from broker.protocol.events import BEGIN, ENDED, ISSUED, RECEIVED
from broker.protocol.filters import Event, Filter, Value
from broker.protocol.messages import Publish
from broker.protocol.stx import (
    Before,
    Planned,
    Step,
    StepAbort,
    StepCommit,
    StepDone,
    StepEnded,
    StepFailed,
    StepKind,
    StepPrepare,
    StepPrepared,
)
from broker.protocol.vocabulary import plan_mode
from broker.protocol.wire import TransactionMessage
from client.core.advertised import Change
from client.core.errors import ClientError
from client.core.outcomes import COMMITTED, Outcome, aborted, unknown
from client.core.port import Future, resolve
from client.core.transactions import Transactions


class PlanError(ClientError, ValueError):
    """A plan that cannot be carried out; the text says why."""


class Item(Struct, frozen=True):
    kind: StepKind
    constraints: Mapping[str, Any] | None = None
    event: Mapping[str, Value] | None = None
    payload: bytes = b""
    target: str = ""
    nested: Plan | None = None


class Plan:
    """What a client does in a transaction, in order."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def advertise(self, constraints: Mapping[str, Any]) -> None:
        self.items.append(Item("adv", constraints))

    def unadvertise(self, constraints: Mapping[str, Any]) -> None:
        self.items.append(Item("uadv", constraints))

    def subscribe(self, constraints: Mapping[str, Any]) -> None:
        self.items.append(Item("sub", constraints))

    def unsubscribe(self, constraints: Mapping[str, Any]) -> None:
        self.items.append(Item("usub", constraints))

    def publish(self, event: Mapping[str, Value], payload: bytes = b"") -> None:
        self.items.append(Item("pub", event=event, payload=payload))

    def tcm(self, target: str) -> Plan:
        """What the client `target` does: fill in the plan that is returned."""
        nested = Plan()
        self.items.append(Item("tcm", target=target, nested=nested))
        return nested


class PlannedTransaction(Plan):
    """A plan that is carried out at the end of the block: `async with session.transaction("s-tx") as plan`.

    After it, `outcome` says how it ended; if that is not *committed*, the block raises `TransactionAborted`
    or `OutcomeUnknown`. Of a block that raises, nothing is sent.
    """

    def __init__(self, execute: Callable[[Plan], Awaitable[Outcome]]) -> None:
        super().__init__()
        self.outcome: Outcome | None = None
        self._execute = execute

    async def __aenter__(self) -> PlannedTransaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.outcome = await self._execute(self)
            self.outcome.raise_unless_committed()


class Running(Struct, eq=False):
    """A plan under way, as far as this client is in it."""

    tx: str
    kept: list[tuple[int, Publish]] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    """Of its changes of tables, by step: where this client has said them among all that it says."""
    said: list[int] = field(default_factory=list)
    advertised: list[Change] = field(default_factory=list)
    closed: bool = False
    coordinated: Coordinated | None = None


class Coordinated(Struct, eq=False):
    """The same at its coordinator."""

    safe: bool
    everything: tuple[Before, ...]
    end: Future
    undone: set[int]
    """Publications of others that have not left their edge broker yet; the commit must not overtake them."""
    commit_sent: bool = False


class Plans:
    """The S-TX part of a client's transactions."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._port = transactions.port
        self._words = transactions.words
        self._client = transactions.client_id
        self._deliver = transactions.deliver
        self.running: dict[str, Running] = {}

    async def execute(self, plan: Plan, safe: bool) -> Outcome:
        listed: list[Before] = []
        steps = self._number(plan, self._client, listed)
        if not steps:
            raise PlanError("an empty plan")
        tx = self._transactions.new_id()
        everything = tuple(listed)
        foreign = {b.step for b in everything if b.kind == "pub" and b.client != self._client}
        state = Coordinated(safe, everything, self._port.future(), set() if safe else foreign)
        running = self.running[tx] = Running(tx, coordinated=state)
        self._transactions.note(BEGIN, tx=tx, mode=plan_mode(safe))
        messages: list[TransactionMessage] = [
            self._issue(running, self._client, safe, planned, everything[: planned.step - 1])
            for planned in steps
        ]
        if safe:
            messages.append(StepPrepare(tx, self._client, everything))
        else:
            messages += self._commit_if_done(running)
        self._port.send(*messages)
        return await self._ending(running, state)

    async def _ending(self, running: Running, state: Coordinated) -> Outcome:
        """How it ends. Past the session's time-out it is aborted; if it may have committed, that is not known."""
        limit_s = self._transactions.timeout_s
        reason = f"the broker has not said how it ended within {limit_s:g} s"
        timer = self._port.call_later(limit_s, lambda: self._give_up(running, state, reason))
        try:
            outcome: Outcome = await state.end
        except GeneratorExit:
            raise
        except BaseException as error:
            self._give_up(running, state, f"it was interrupted: {error or type(error).__name__}")
            raise
        finally:
            timer.cancel()
        return outcome

    def _give_up(self, running: Running, state: Coordinated, reason: str) -> None:
        if running.tx in self.running:
            self._send_abort(running, reason)
            resolve(state.end, unknown(reason) if state.commit_sent else aborted(reason))

    def abort(self, tx: str, reason: str = "its coordinator aborted it") -> None:
        """Effective unless the commit has passed the edge broker; `execute` returns how it ended."""
        running = self.running.get(tx)
        if running is not None and running.coordinated is not None:
            self._send_abort(running, reason)

    def receive(self, message: TransactionMessage) -> None:
        if type(message) is Step:
            self._step(message)
            return
        running = self.running.get(message.tx)
        if type(message) is StepCommit:
            if running is not None:
                self._end(running, COMMITTED)
            self._port.send(StepEnded(message.tx, committed=True))
            return
        if type(message) is StepAbort:
            if running is not None:
                self._end(running, aborted(message.reason))
            self._port.send(StepEnded(message.tx, committed=False))
            return
        if running is None or running.coordinated is None:
            return
        state = running.coordinated
        if isinstance(message, StepDone):
            state.undone.discard(message.step)
            self._port.send(*self._commit_if_done(running))
        elif isinstance(message, StepFailed):
            self._send_abort(running, message.reason)
        elif isinstance(message, StepPrepared):
            if message.reason:
                self._send_abort(running, message.reason)
            elif not running.closed:
                state.commit_sent = True
                self._port.send(StepCommit(message.tx, self._client, ()))
        elif isinstance(message, StepEnded):
            self._end(running, _outcome(message))

    def lost(self, error: ClientError) -> None:
        """The session has ended."""
        for running in tuple(self.running.values()):
            sent = running.coordinated is not None and running.coordinated.commit_sent
            self._end(running, unknown(str(error)) if sent else aborted(str(error)), happened=False)

    def _issue(
        self, running: Running, coordinator: str, safe: bool, planned: Planned, before: tuple[Before, ...]
    ) -> Step:
        """To be sent."""
        if planned.filter is not None:
            self._place(running, planned, planned.filter)
        if self._transactions.keeps_history:
            self._transactions.note(
                ISSUED,
                tx=running.tx,
                op=planned.step,
                kind=planned.kind,
                filter=planned.filter,
                event=planned.event,
            )
        return Step(running.tx, coordinator, safe, planned, before)

    def _place(self, running: Running, planned: Planned, filter_: Filter) -> None:
        """Below the later steps that this client has sent already, as its edge broker stamps it."""
        step, said = planned.step, self._words.advertised.say(in_transaction=True)
        running.said.append(
            said
        )  # an advertisement that it is asked for later may take the place of any change
        later = [other for other in running.places if other > step]
        running.places[step] = running.places[min(later)] if later else said
        if planned.kind in ("adv", "uadv"):
            running.advertised.append(Change((running.places[step], step), planned.kind == "adv", filter_))

    def _step(self, message: Step) -> None:
        planned = message.planned
        running = self.running.get(message.tx)
        if running is None:
            running = self.running[message.tx] = Running(message.tx)
        if running.closed:
            return
        if self._transactions.keeps_history:
            self._transactions.note(RECEIVED, tx=message.tx, op=planned.step, kind=planned.kind)
        if planned.kind == "pub":
            assert planned.event is not None
            running.kept.append((planned.step, Publish(planned.step, planned.event, planned.payload)))
            return
        before, steps = [*message.before, _before_of(planned)], []
        for nested in planned.nested:
            steps.append(self._issue(running, message.coordinator, message.safe, nested, tuple(before)))
            _list(before, nested)
        self._port.send(*steps)

    def _commit_if_done(self, running: Running) -> list[StepCommit]:
        """To be sent, once."""
        state = running.coordinated
        assert state is not None
        if state.undone or state.commit_sent or running.closed or state.safe:
            return []
        state.commit_sent = True
        return [StepCommit(running.tx, self._client, state.everything)]

    def _send_abort(self, running: Running, reason: str) -> None:
        """In the fast mode even after the commit has been sent: the edge broker knows which was first."""
        state = running.coordinated
        assert state is not None
        if not running.closed and not (state.safe and state.commit_sent):
            running.closed = True
            self._port.send(StepAbort(running.tx, reason[:200]))

    def _end(self, running: Running, outcome: Outcome, happened: bool = True) -> None:
        """`happened`: unless it was aborted; a session that is lost knows of nothing that has."""
        del self.running[running.tx]
        self._transactions.note(ENDED, tx=running.tx, outcome=outcome.state, reason=outcome.reason)
        has_happened = happened and outcome.state != "aborted"
        self._words.advertised.settle(running.said, running.advertised if has_happened else ())
        if has_happened:
            for _, publication in sorted(running.kept, key=lambda kept: kept[0]):
                self._deliver(publication, running.tx)
        if running.coordinated is not None:
            resolve(running.coordinated.end, outcome)

    def _number(self, plan: Plan, client: str, listed: list[Before]) -> tuple[Planned, ...]:
        """The steps of a plan; they and all that is nested in them are listed, in order."""
        steps: list[Planned] = []
        for item in plan.items:
            kind, payload = item.kind, item.payload
            filter_ = None if item.constraints is None else self._words.filter(item.constraints)
            event: Event | None = None
            if item.event is not None:
                event, payload = self._words.event(item.event, payload)
            number = len(listed) + 1
            listed.append(Before(number, kind, client, filter_))
            nested = self._number(item.nested, item.target, listed) if item.nested is not None else ()
            if kind == "tcm" and not nested:
                raise PlanError(f"a tcm to {item.target} that asks for nothing")
            steps.append(Planned(number, kind, client, filter_, event, payload, item.target, nested))
        return tuple(steps)


def _before_of(planned: Planned) -> Before:
    return Before(planned.step, planned.kind, planned.client, planned.filter)


def _list(listed: list[Before], planned: Planned) -> None:
    """A step and all that is nested in it, in order."""
    listed.append(_before_of(planned))
    for nested in planned.nested:
        _list(listed, nested)


def _outcome(message: StepEnded) -> Outcome:
    if not message.committed:
        return aborted(message.reason)
    return unknown(message.reason) if message.reason else COMMITTED
