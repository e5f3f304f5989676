"""Planted faults in how D-TX transactions vote, commit and abort."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.dtx import Prepared
from broker.routing.ready import Ready
from broker.routing.srt import SRT
from broker.routing.tables import Routing
from broker.transactions.dtx import order as order_module
from broker.transactions.dtx.context import Footprint, Logged
from broker.transactions.dtx.decisions import DtxDecisions
from broker.transactions.dtx.machine import Dtx
from broker.transactions.dtx.operations import Operations
from broker.transactions.dtx.order import Order
from broker.transactions.dtx.view import View
from tests.mutations.patching import always, replace


def merge_replaces_the_tables(patch: pytest.MonkeyPatch) -> None:
    """D-TX A6 (H5): a commit adds to what others have committed since, instead of replacing it."""
    seen: dict[tuple[int, str], set[int]] = {}

    def records(routing: Routing) -> list[Any]:
        return [record for _, record in routing.prt if record.tag is None]

    def begin(original: Any, self: Dtx, source: str, message: Any) -> Ready:
        answer: Ready = original(self, source, message)
        seen[id(self.decisions), message.tx] = {id(record) for record in records(self._routing)}
        return answer

    def merge(original: Any, self: DtxDecisions, context: Any) -> Ready:
        answer: Ready = original(self, context)
        own = {(record.client, record.stamp) for record, _ in context.view.own}
        for record in records(self._routing):
            is_own = (record.client, record.stamp) in own
            if id(record) not in seen[id(self), context.tx] and not is_own:
                self._routing.prt.remove(record)
        return answer

    replace(patch, Dtx, "_begin", begin)
    replace(patch, DtxDecisions, "_merge", merge)


def validation_without_own_writes(patch: pytest.MonkeyPatch) -> None:
    """D-TX A7 (H10): the log is replayed as a whole, so that a transaction sees what it wrote."""

    def conflict(_: Any, self: Order, context: Any) -> str:
        for logged in context.log:
            if order_module._again(View(self._state.routing), logged) != logged.decision:
                return "a conflict"
        return ""

    replace(patch, Order, "_conflict", conflict)


def no_validation(patch: pytest.MonkeyPatch) -> None:
    """D-TX A7, A10: a vote replays the log on what is committed by then."""
    always(patch, Order, "_conflict", str)


class Control(dict[str, Any]):
    """The event of a `tcm`, told from that of a publication."""


def _mark_controls(patch: pytest.MonkeyPatch) -> None:
    def route(original: Any, self: Operations, context: Any, origin: str, message: Any, *rest: Any) -> Ready:
        before = len(context.log)
        answer: Ready = original(self, context, origin, message, *rest)
        if message.kind == "tcm" and len(context.log) > before:
            context.log[-1] = context.log[-1]._replace(event=Control(message.event))
        return answer

    replace(patch, Operations, "route", route)


def _not_validated(patch: pytest.MonkeyPatch, *kinds: str) -> None:
    _mark_controls(patch)

    def again(original: Any, view: View, logged: Logged) -> object:
        outcome: object = original(view, logged)
        if logged.record is not None:
            kind = str(logged.record.kind)
        else:
            kind = "tcm" if isinstance(logged.event, Control) else "pub"
        return logged.decision if kind in kinds else outcome

    replace(patch, order_module, "_again", again)


def publications_are_not_validated(patch: pytest.MonkeyPatch) -> None:
    """D-TX A7 (H6): where a publication went is looked at again at the vote."""
    _not_validated(patch, "pub")


def controls_are_not_validated(patch: pytest.MonkeyPatch) -> None:
    """D-TX A10 (H11): a tcm is validated like a publication."""
    _not_validated(patch, "tcm")


def subscriptions_are_not_validated(patch: pytest.MonkeyPatch) -> None:
    """D-TX A10 (H11): where a subscription went is looked at again at the vote."""
    _not_validated(patch, "sub", "usub")


def attractions_are_not_validated(patch: pytest.MonkeyPatch) -> None:
    """D-TX A10 (H11): what an advertisement attracted is looked at again at the vote."""
    _not_validated(patch, "adv", "uadv")


def no_epochs(patch: pytest.MonkeyPatch) -> None:
    """D-TX A8 (H8): a key begins with an epoch above all that the edge broker has seen."""
    patch.setattr(Order, "next_key", lambda self, tx: (1, tx))


def epochs_follow_commits_only(patch: pytest.MonkeyPatch) -> None:
    """D-TX A8: an epoch is also above those of transactions that are being prepared."""
    patch.setattr(Order, "saw", lambda self, key: None)


def nobody_waits_for_the_undecided(patch: pytest.MonkeyPatch) -> None:
    """D-TX A8 (H6, H7): nobody votes while a smaller one that has voted yes is undecided."""
    always(patch, Order, "_must_wait", bool)


def no_late_rule(patch: pytest.MonkeyPatch) -> None:
    """D-TX A9 (H6): a smaller key never votes yes after a larger one did."""
    always(patch, Order, "_is_late", bool)


def late_only_for_the_undecided(patch: pytest.MonkeyPatch) -> None:
    """D-TX A9, option O1: a transaction is late for larger ones that have committed, too."""

    def is_late(original: Any, self: Order, context: Any) -> bool:
        recent, self._recent = self._recent, []
        last, self._state.last_key = self._state.last_key, (0, "")
        try:
            late: bool = original(self, context)
        finally:
            self._recent, self._state.last_key = recent, last
        return late

    replace(patch, Order, "_is_late", is_late)


def interference_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    """D-TX option O1: a smaller key is late where its filters interfere with those of a larger one."""
    always(patch, Footprint, "interferes", bool)


def reads_do_not_interfere(patch: pytest.MonkeyPatch) -> None:
    """D-TX option O1: what one has read and the other writes interferes."""

    def interferes(original: Any, self: Footprint, other: Footprint) -> bool:
        found: bool = original(Footprint([], self.writes), Footprint([], other.writes))
        return found

    replace(patch, Footprint, "interferes", interferes)


def the_forgotten_are_never_met(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.11, option O1: who is older than what the broker remembers is late."""
    patch.setattr(order_module, "RECENT_MAX", 0)

    def committed(original: Any, self: Order, context: Any) -> None:
        original(self, context)
        self._forgotten = (0, "")

    replace(patch, Order, "committed", committed)


def newer_regular_operations_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    """D-TX option O2: a regular operation of the same client that is newer than its place stops it."""
    always(patch, Order, "_has_newer_records", bool)


def newer_regular_advertisements_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    """D-TX option O2: so does a regular `adv` or `uadv`."""

    def has_newer_records(original: Any, self: Order, context: Any) -> bool:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(SRT, "log", lambda *_: ())
            answer: bool = original(self, context)
        return answer

    replace(patch, Order, "_has_newer_records", has_newer_records)


def no_repair_at_commit(patch: pytest.MonkeyPatch) -> None:
    """D-TX A12 (H13): what neighbours lack of a merged transaction is sent with its commit."""

    def merge(original: Any, self: DtxDecisions, context: Any) -> Ready:
        answer: Ready = original(self, context)
        answer.sends.clear()
        return answer

    replace(patch, DtxDecisions, "_merge", merge)


def admission_is_not_validated(patch: pytest.MonkeyPatch) -> None:
    """D-TX A10: what a client publishes must still be advertised at the vote."""
    always(patch, SRT, "admits", lambda: True)


def contexts_stay_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.11: an aborted transaction leaves nothing behind, and nobody waits for it."""

    def end(original: Any, self: DtxDecisions, context: Any, tomb: Any, message: Any) -> Ready:
        answer: Ready = original(self, context, tomb, message)
        if not tomb.committed and not context.is_decided_here:
            self._order.contexts[context.tx] = context
        return answer

    replace(patch, DtxDecisions, "_end", end)


def votes_of_others_do_not_count(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.5: one broker that votes no is enough."""

    def prepared(original: Any, self: Dtx, source: str, message: Prepared) -> Ready:
        answer: Ready = original(self, source, Prepared(message.tx))
        return answer

    replace(patch, Dtx, "_prepared", prepared)


def participants_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.5: the decision goes to the participants, not to brokers alone."""

    def end(original: Any, self: DtxDecisions, context: Any, tomb: Any, message: Any) -> Ready:
        context.participants.clear()
        answer: Ready = original(self, context, tomb, message)
        return answer

    replace(patch, DtxDecisions, "_end", end)


def abort_is_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.5: every broker learns of an abort."""

    def abort(original: Any, self: DtxDecisions, *arguments: Any) -> Ready:
        answer: Ready = original(self, *arguments)
        answer.sends = [pair for pair in answer.sends if type(pair[1]).__name__ != "Abort"]
        return answer

    replace(patch, DtxDecisions, "abort", abort)
