"""Planted faults in what is over and what has time: last answers, what is forgotten, clocks and lifetimes."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.dtx import Begin, Begun, Commit, Prepared, TxAck
from broker.protocol.filters import overlaps
from broker.protocol.stx import Before, Planned, StepEcho, StepEnded, StepPrepared
from broker.routing import prt as prt_module
from broker.routing.compaction import Compaction
from broker.routing.ready import Ready
from broker.routing.retirement import Retirement
from broker.routing.srt import SRT
from broker.routing.state import BrokerState
from broker.routing.tables import Routing
from broker.transactions.dtx.context import Context
from broker.transactions.dtx.decisions import DtxDecisions
from broker.transactions.dtx.machine import Dtx
from broker.transactions.dtx.operations import Operations
from broker.transactions.dtx.order import Order
from broker.transactions.stx import machine as stx_module
from broker.transactions.stx.decisions import StxDecisions
from broker.transactions.stx.steps import Stepping
from tests.mutations.patching import always, replace

# The last answer


def begin_ends_with_the_first_answer(patch: pytest.MonkeyPatch) -> None:
    """D-TX A13 (H14): the first operation is sent when every broker has a context, the last child's included."""

    def begun(original: Any, self: Dtx, source: str, message: Begun) -> Ready:
        context = self.contexts.get(message.tx)
        if context is not None:
            context.awaiting &= {source}
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, Dtx, "_begun", begun)


def votes_end_with_the_first_answer(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.5: a yes is answered when all brokers behind have answered."""

    def prepared(original: Any, self: Dtx, source: str, message: Prepared) -> Ready:
        context = self.contexts.get(message.tx)
        if context is not None:
            context.awaiting &= {source}
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, Dtx, "_prepared", prepared)


def votes_on_plans_end_with_the_first_answer(patch: pytest.MonkeyPatch) -> None:
    """S-TX safe (H12): a yes is answered when all brokers behind have answered."""

    def prepared(original: Any, self: StxDecisions, source: str, message: StepPrepared) -> Ready:
        execution = self._open.get(message.tx)
        if execution is not None and execution.status == "active":
            execution.brokers &= {source}
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, StxDecisions, "prepared", prepared)


def echoes_end_with_the_first_answer(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H4): an advertisement is echoed when all brokers behind have it."""

    def echo(original: Any, self: Stepping, source: str, message: StepEcho) -> Ready:
        execution = self._open.get(message.tx)
        if execution is not None and message.step in execution.echoes:
            execution.echoes[message.step].awaiting &= {source}
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, Stepping, "echo", echo)


def ends_are_answered_with_the_first_answer(patch: pytest.MonkeyPatch) -> None:
    """D-TX A14: a tomb stays until everybody that was told has answered."""

    def ended(original: Any, self: DtxDecisions, source: str, message: Any) -> Ready:
        tomb = self.tombs.get(message.tx)
        if tomb is not None and source in tomb.brokers:
            tomb.brokers &= {source}
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, DtxDecisions, "ended", ended)


def ends_of_plans_are_answered_with_the_first_answer(patch: pytest.MonkeyPatch) -> None:
    """S-TX: a plan that has ended is remembered until everybody that was told has answered."""

    def ended(original: Any, self: StxDecisions, source: str, message: StepEnded) -> Ready:
        execution = self._open.get(message.tx)
        if execution is not None and source in execution.brokers:
            execution.brokers &= {source}
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, StxDecisions, "ended", ended)


def commits_go_before_repairs(patch: pytest.MonkeyPatch) -> None:
    """D-TX A12 (H13): what neighbours lack is sent before the commit is forwarded."""

    def commit(original: Any, self: DtxDecisions, context: Context, source: str) -> Ready:
        answer: Ready = original(self, context, source)
        answer.sends.sort(key=lambda pair: type(pair[1]) is not Commit)
        return answer

    replace(patch, DtxDecisions, "commit", commit)


# What is forgotten


def nobody_is_told_to_forget(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): compaction does not drop what a neighbour still has."""

    def drop_void(original: Any, self: Compaction, record: Any) -> Any:
        original(self, record)
        return []

    replace(patch, Compaction, "drop_void", drop_void)


def forgetting_stops_at_the_next_broker(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): a record that has no effect goes wherever it has gone, broker by broker."""

    def forget(original: Any, self: Routing, client: str, stamp: Any) -> Any:
        record = self.prt.index.find(client, stamp)
        return original(self, client, stamp) if record is None or not record.sent else []

    replace(patch, Routing, "forget", forget)


def candidates_are_looked_at_once(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): what had to wait is looked at when all that was open then has ended."""

    def note(original: Any, self: Compaction, *what: Any, **named: Any) -> None:
        original(self, *what, **named)
        self._open = -1

    def sweep(original: Any, self: Compaction) -> Any:
        if self._open == -1:
            self._open = 0
            self._old, self._young = self._young, []
            self._blockers = {"never"}
        return [] if "never" in self._blockers else original(self)

    replace(patch, Compaction, "note", note)
    replace(patch, Compaction, "sweep", sweep)


def floors_outlive_their_clients(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): what is remembered of a client goes with it."""
    always(patch, Compaction, "forget_client", lambda: None)


def what_is_over_here_is_told_nobody(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19): the word that all have committed reaches the neighbours of the home, all of them."""

    def tell(original: Any, self: Retirement) -> Ready:
        ready: Ready = original(self)
        del ready.sends[1:]
        return ready

    replace(patch, Retirement, "tell", tell)


# Clocks and lifetimes


def lifetimes_are_told_as_times(patch: pytest.MonkeyPatch) -> None:
    """DESIGN 7: a broker adds a lifetime to its own clock; clocks of hosts are never compared."""
    ends: dict[str, float] = {}

    def begin(original: Any, self: Dtx, source: str, message: Begin) -> Ready:
        answer: Ready = original(self, source, message)
        context = self.contexts.get(message.tx)
        if context is not None:
            context.deadline = ends.setdefault(message.tx, context.deadline)
        return answer

    replace(patch, Dtx, "_begin", begin)


def lifetimes_end_at_every_broker(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.5: past the lifetime the coordinator's edge broker aborts; the others have only their vote."""

    def expire(original: Any, self: Dtx, now: float) -> Ready:
        answer: Ready = original(self, now)
        for context in tuple(self.contexts.values()):
            if context.deadline <= now and not context.is_decided_here:
                answer += self.decisions.abort(context, "", "its lifetime is over")
        return answer

    replace(patch, Dtx, "expire", expire)


def plans_that_are_late_abort_after_their_commit(patch: pytest.MonkeyPatch) -> None:
    """S-TX: a lifetime ends before the commit point, or not at all."""

    def expire(original: Any, self: Any, now: float) -> Ready:
        answer: Ready = original(self, now)
        for execution in tuple(self.open.values()):
            if execution.is_home and execution.status == "committed" and execution.deadline <= now:
                answer += self._decisions.undo(execution, "", "its lifetime is over")
        return answer

    replace(patch, stx_module.Stx, "expire", expire)


# One predicate


def what_attracts_is_not_what_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Section 2 (S-H16): forwarding and waiting use one predicate, whatever the overlay's overlap is."""
    patch.setattr(prt_module, "overlaps", lambda one, other, _="all": overlaps(one, other, "all"))


def subscriptions_of_others_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.4 in S-TX: a broker processes a subscription that is due before what comes after it."""

    def waits(
        original: Any, state: BrokerState, execution: Any, planned: Planned | None, before: Before
    ) -> bool:
        is_subscription = planned is not None and planned.kind in ("sub", "usub")
        if is_subscription and before.kind in ("sub", "usub") and before.client not in state.guests:
            return False
        answer: bool = original(state, execution, planned, before)
        return answer

    replace(patch, stx_module, "waits", waits)


def what_the_gone_took_back_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H23): a `usub` goes when the last that it takes back has gone."""
    always(patch, Compaction, "look_behind", bool)


def advertisements_are_not_tidied(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): advertisements without effect go, too, when what was open has ended."""
    always(patch, SRT, "tidy", bool)


def those_about_to_vote_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """D-TX A8 (H7): of two that could vote at once, and interfere, the larger waits for the smaller."""

    def must_wait(original: Any, self: Order, context: Context, others: list[Context]) -> bool:
        for other in others:
            other.state = "no"  # nobody waits for that
        answer: bool = original(self, context, [])
        for other in others:
            other.state = "preparing"
        return answer

    replace(patch, Order, "_must_wait", must_wait)


def refusals_are_no_objection(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.3: an operation that an edge broker refuses spoils its transaction."""

    def refuse(original: Any, self: Operations, context: Context, hop: str, op: int, reason: str) -> Ready:
        bad = context.bad
        original(self, context, hop, op, reason)
        context.bad = bad
        return Ready([(hop, TxAck(context.tx, op))], [])

    replace(patch, Operations, "refuse", refuse)
