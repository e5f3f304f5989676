"""Planted faults in what happens behind transactions: who waits for whom, what is hidden, what is compacted."""

from __future__ import annotations

from typing import Any

import pytest

from broker.matching.records import Record
from broker.protocol.filters import subsumes
from broker.routing import prt as prt_module
from broker.routing.compaction import Compaction
from broker.routing.retirement import Retirement
from broker.routing.tables import Routing
from broker.transactions.dtx.context import Context
from broker.transactions.dtx.decisions import DtxDecisions
from broker.transactions.dtx.machine import Dtx
from broker.transactions.dtx.order import Order
from broker.transactions.stx.decisions import StxDecisions
from broker.transactions.stx.steps import Stepping
from tests.mutations.patching import always, replace


def late_is_whoever_has_a_smaller_key(patch: pytest.MonkeyPatch) -> None:
    """D-TX A18 (H17): late is only who interferes."""

    def is_late(_: Any, self: Order, context: Context) -> bool:
        rivals = [c for c in self.contexts.values() if c.state == "yes" and c.key > context.key]
        return bool(rivals) or context.key < self._state.last_key

    replace(patch, Order, "_is_late", is_late)


def the_silent_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    """D-TX A19 (H18): a broker waits for those of which it hears."""

    def must_wait(original: Any, self: Order, context: Context, others: Any) -> bool:
        for other in self.contexts.values():
            other.heard = self._state.now
        answer: bool = original(self, context, others)
        return answer

    replace(patch, Order, "_must_wait", must_wait)


def coordinators_may_take_their_time(patch: pytest.MonkeyPatch) -> None:
    """D-TX A19 (H18): a coordinator that knows the votes has a second to decide."""
    always(patch, Dtx, "_must_decide", lambda: None)


def what_is_taken_back_is_not_hidden(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19): a `usub` counts for others when all brokers have committed."""

    def veil(_: Any, self: Routing, tx: str) -> None:
        self.commit(tx)

    replace(patch, Routing, "veil", veil)


def plans_hide_nothing_behind_their_commit(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19), in fast plans."""

    def commit(original: Any, self: Routing, tag: str, *_: Any, **__: Any) -> Any:
        return original(self, tag)

    replace(patch, Routing, "commit", commit)


def what_is_hidden_is_hidden_from_everybody(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19): isolated transactions see what has been committed before them."""
    always(patch, Routing, "veiled_records", list)


def the_first_answer_means_that_it_is_over(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19): it is over when all brokers have committed."""

    def ended(original: Any, self: DtxDecisions, source: str, message: Any) -> Any:
        tomb = self.tombs.get(message.tx)
        if tomb is not None and tomb.is_home:
            tomb.is_home = False
            self._state.retirement.ended(message.tx)
            ready = original(self, source, message)
            ready += self._state.retirement.tell()
            return ready
        return original(self, source, message)

    replace(patch, DtxDecisions, "ended", ended)


def nobody_is_told_that_it_is_over(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19): the word that all have committed goes round."""
    always(patch, Retirement, "ended", lambda: None)


def the_word_that_it_is_over_stops_halfway(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19): the word that all have committed reaches every broker."""

    def over(original: Any, self: Retirement, source: str, message: Any) -> Any:
        ready = original(self, source, message)
        ready.sends.clear()
        return ready

    replace(patch, Retirement, "_over", over)


def nothing_is_compacted_behind_transactions(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): what transactions write may go when they are over."""
    always(patch, Compaction, "note", lambda: None)


def old_records_go_although_neighbours_know_them(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): a record is covered where every neighbour that knows it knows the newer one."""

    def covers(newer: Record, older: Record) -> bool:
        is_newer = older.stamp < newer.stamp and newer.tag is None is older.tag
        return is_newer and subsumes(newer.filter, older.filter)

    patch.setattr(prt_module, "_covers", covers)


def undecided_records_cover_others(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): what may be undone covers nothing."""

    def covers(newer: Record, older: Record) -> bool:
        is_newer = older.tag is None and older.stamp < newer.stamp and not older.sent & ~newer.sent
        return is_newer and subsumes(newer.filter, older.filter)

    patch.setattr(prt_module, "_covers", covers)


def only_one_neighbour_is_told_to_forget(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): a record that has no effect goes wherever it has gone."""

    def drop_void(original: Any, self: Compaction, record: Record) -> Any:
        return original(self, record)[:1]

    replace(patch, Compaction, "drop_void", drop_void)


def votes_trip_over_what_was_compacted(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): what has left the tables because it had no effect is no conflict."""

    def still_known(_original: Any, _self: Order, _context: Context, decision: Any) -> Any:
        return decision

    replace(patch, Order, "_still_known", still_known)


def plans_are_over_before_their_brokers_say_so(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19), in fast plans: over is what all brokers have committed."""

    def commit(
        original: Any, self: StxDecisions, execution: Any, message: Any, source: str, ready: Any
    ) -> None:
        original(self, execution, message, source, ready)
        if execution.is_home and not execution.is_over:
            execution.is_over = True
            self._state.retirement.ended(execution.tx)
            ready += self._state.retirement.tell()

    replace(patch, StxDecisions, "commit", commit)


def late_steps_of_plans_are_not_hidden(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19), in fast plans: nor does a `usub` count that comes where its plan has committed."""
    always(patch, Stepping, "hide", lambda: None)


def what_is_hidden_is_attracted_for_everybody(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19): a `usub` that is hidden stays so where an advertisement fetches it to."""

    def adopt(original: Any, self: Dtx, record: Record, message: Any) -> Any:
        is_taken = original(self, record, message)
        if message.decided:
            record.tag = None
        return is_taken

    replace(patch, Dtx, "adopt", adopt)


def floors_are_never_raised(patch: pytest.MonkeyPatch) -> None:
    """D-TX A21 (H20): an edge broker remembers the largest key of a record that it has dropped for want of effect."""
    always(patch, Compaction, "raise_floor", lambda: None)
