"""Planted faults in the client library."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.dtx import Abort, Commit, Prepare, TxAck
from broker.protocol.messages import Publish
from broker.protocol.stx import StepAbort, StepPrepared
from client.core.outcomes import COMMITTED, Outcome, aborted
from client.core.plans import Plans, Running
from client.core.port import Future
from client.core.transactions import Frame, Part, Transaction, Transactions
from tests.mutations.patching import replace


def frames_share_one_queue(patch: pytest.MonkeyPatch) -> None:
    """D-TX A4 (H3): frames do not wait for each other."""

    def read(self: Frame) -> Future | None:
        lasts: dict[str, Future] = self._manager.__dict__.setdefault("lasts", {})
        return lasts.get(self._part.tx)

    def write(self: Frame, future: Future | None) -> None:
        if future is not None:
            self._manager.__dict__.setdefault("lasts", {})[self._part.tx] = future

    patch.setattr(Frame, "_last", property(read, write), raising=False)


def operations_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.4, Thread: an operation is sent when the one before it is acknowledged."""

    async def operate(self: Frame, message: Any, **what: Any) -> int:
        manager = self._manager
        self._check_open()
        op = manager.draw_id()
        manager.note("issued", tx=self.tx, op=op, frame=self.number, **what)
        manager.port.send(message(op))
        return 1

    patch.setattr(Frame, "_operate", operate)


def controls_are_acknowledged_before_the_reaction(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.4, Trigger*: a tcm is acknowledged when its reaction is done."""

    async def answer(original: Any, self: Transactions, part: Part, message: Any) -> None:
        self.port.send(TxAck(message.tx, message.op))
        await original(self, part, message)

    replace(patch, Transactions, "_answer", answer)


def coordinator_delivers_at_its_own_decision(patch: pytest.MonkeyPatch) -> None:
    """D-TX A16 (H15): the coordinator delivers when its broker has committed, not when it has decided."""

    async def commit(self: Transaction) -> None:
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
                self._manager._end(self._part, COMMITTED)
        await self._end

    patch.setattr(Transaction, "commit", commit)


def coordinator_goes_on_after_its_abort(patch: pytest.MonkeyPatch) -> None:
    """D-TX A17 (H15): after an abort the coordinator sends nothing more, from none of its frames."""

    def send_abort(self: Transaction, reason: str) -> None:
        if self.__dict__.get("has_aborted") or self._commit_sent:
            return
        self.__dict__["has_aborted"] = True
        self._manager.port.send(Abort(self.tx, reason))

    patch.setattr(Transaction, "_send_abort", send_abort)


def aborted_publications_are_delivered(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.1: nothing of an aborted transaction is delivered."""

    def end(original: Any, self: Transactions, part: Part, outcome: Outcome) -> None:
        kept = list(part.kept)
        original(self, part, outcome)
        if outcome.state == "aborted":
            for publication in kept:
                self.deliver(publication, part.tx)

    replace(patch, Transactions, "_end", end)


def publications_are_delivered_at_once(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.1: a publication is kept until its transaction commits."""

    def publication(original: Any, self: Transactions, message: Any) -> None:
        original(self, message)
        part = self.parts[message.tx]
        for kept in part.kept:
            self.deliver(kept, part.tx)
        part.kept.clear()

    replace(patch, Transactions, "_publication", publication)


def publications_are_delivered_twice(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.1: each publication is delivered once."""

    def end(original: Any, self: Transactions, part: Part, outcome: Outcome) -> None:
        part.kept += part.kept[-1:]
        original(self, part, outcome)

    replace(patch, Transactions, "_end", end)


def publications_of_plans_are_delivered_twice(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.1: each publication is delivered once."""

    def end(original: Any, self: Plans, running: Running, outcome: Outcome, **named: Any) -> None:
        running.kept += running.kept[-1:]
        original(self, running, outcome, **named)

    replace(patch, Plans, "_end", end)


def kept_publications_get_lost(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.1: all effects or none: what was kept is delivered at the commit."""

    def end(original: Any, self: Transactions, part: Part, outcome: Outcome) -> None:
        part.kept = part.kept[:1]
        original(self, part, outcome)

    replace(patch, Transactions, "_end", end)


def decisions_are_not_answered(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.5: a participant answers the decision, so that its broker can forget the transaction."""

    def end(original: Any, self: Transactions, message: Any) -> None:
        if isinstance(message, Commit) and message.tx in self.parts:
            self._end(self.parts[message.tx], COMMITTED)
        else:
            original(self, message)

    replace(patch, Transactions, "receive", end)


def objections_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.6: a coordinator commits only what every broker has voted for."""

    def voted(original: Any, self: Transaction, _: str) -> None:
        original(self, "")

    replace(patch, Transaction, "voted", voted)


def objections_to_plans_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    """S-TX safe (H12): a coordinator commits only a plan that every broker has voted for."""

    def receive(original: Any, self: Plans, message: Any) -> None:
        original(self, StepPrepared(message.tx) if isinstance(message, StepPrepared) else message)

    replace(patch, Plans, "receive", receive)


def publications_of_others_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """S-TX A6 (H2): the commit is sent when the publications of others have left their edge brokers."""

    def commit_if_done(original: Any, self: Plans, running: Running) -> Any:
        if running.coordinated is not None:
            running.coordinated.undone.clear()
        return original(self, running)

    replace(patch, Plans, "_commit_if_done", commit_if_done)


def publications_of_plans_are_not_sorted(patch: pytest.MonkeyPatch) -> None:
    """S-TX A11: publications are delivered in the order of the plan."""

    def end(original: Any, self: Plans, running: Running, outcome: Outcome, **named: Any) -> None:
        running.kept = [(0, publication) for _, publication in running.kept]
        original(self, running, outcome, **named)

    replace(patch, Plans, "_end", end)


def planner_speaks_while_it_aborts(patch: pytest.MonkeyPatch) -> None:
    """S-TX A17: after an abort the coordinator issues no more steps."""

    def send_abort(_: Any, self: Plans, running: Running, reason: str) -> None:
        state = running.coordinated
        assert state is not None
        if not (state.safe and state.commit_sent):
            self._port.send(StepAbort(running.tx, reason[:200]))

    replace(patch, Plans, "_send_abort", send_abort)


def plans_are_given_up_too_soon(patch: pytest.MonkeyPatch) -> None:
    """S-TX: a fast plan is aborted only if its edge broker has not committed it."""

    def send_abort(original: Any, self: Plans, running: Running, reason: str) -> None:
        original(self, running, reason)
        if running.tx in self.running:
            self._end(running, aborted(reason))

    replace(patch, Plans, "_send_abort", send_abort)


def participants_of_plans_deliver_at_once(patch: pytest.MonkeyPatch) -> None:
    """S-TX 2.6 (H6): the receiver of a publication keeps it until the commit."""

    def step(original: Any, self: Plans, message: Any) -> None:
        original(self, message)
        if message.planned.kind == "pub":
            running = self.running[message.tx]
            for _, publication in running.kept:
                self._deliver(publication, running.tx)
            running.kept.clear()

    replace(patch, Plans, "_step", step)


def publications_are_regular(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.1: what a committed transaction published reaches the program as its publication."""

    def deliver(original: Any, self: Transactions, part: Part, outcome: Outcome) -> None:
        kept, part.kept = part.kept, []
        original(self, part, outcome)
        for publication in kept if outcome.state == "committed" else ():
            self.deliver(Publish(publication.id, publication.event, publication.payload), "")

    replace(patch, Transactions, "_end", deliver)
