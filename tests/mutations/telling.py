"""Planted faults in what is told: stamps and orders, answers, and what clients may do when all is over."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed

from broker.matching.many import hops_of_each
from broker.protocol.dtx import Ended, Prepared
from broker.protocol.hops import client_hop, is_client
from broker.protocol.stx import StepPrepared
from broker.protocol.vocabulary import NO_KEY, Stamp
from broker.routing.publications import NOTHING, Publications
from broker.routing.srt import SRT
from broker.routing.state import BrokerState, Guest
from broker.routing.tables import Routing
from broker.transactions.dtx.decisions import DtxDecisions
from broker.transactions.dtx.machine import Dtx
from broker.transactions.dtx.operations import Operations
from broker.transactions.stx.decisions import StxDecisions
from broker.transactions.stx.machine import Stx
from client.core.advertised import Advertised
from client.core.plans import Plans
from client.core.transactions import Transactions
from tests.mutations.patching import always, replace

# The order in which a client speaks

BACKWARDS = 1_000_000


def regular_stamps_ignore_the_committed_key(patch: pytest.MonkeyPatch) -> None:
    """Section 2: what a client does after a commit at its broker is newer than what was committed."""

    def next_stamp(original: Any, self: BrokerState, guest: Guest) -> Stamp:
        _, class_, incarnation, number = original(self, guest)
        return (NO_KEY, class_, incarnation, number)

    replace(patch, BrokerState, "next_stamp", next_stamp)


def stamps_go_backwards(patch: pytest.MonkeyPatch) -> None:
    """Section 2: of what a client says beside isolated transactions the later is the newer."""

    def next_stamp(original: Any, self: BrokerState, guest: Guest) -> Stamp:
        key, class_, incarnation, number = original(self, guest)
        return (key, class_, incarnation, BACKWARDS - number)

    replace(patch, BrokerState, "next_stamp", next_stamp)


def stamps_of_isolated_transactions_go_backwards(patch: pytest.MonkeyPatch) -> None:
    """Section 2: of what a client says in one transaction the later is the newer."""

    def operate(
        original: Any,
        self: Operations,
        context: Any,
        origin: str,
        op: int,
        record: Any,
        triggered: bool = False,
    ) -> Any:
        if context.isolated and is_client(origin):
            key, class_, incarnation, number = record.stamp
            record.stamp = (key, class_, incarnation, BACKWARDS - number)
        return original(self, context, origin, op, record, triggered)

    replace(patch, Operations, "operate", operate)


def steps_are_stamped_as_they_come(patch: pytest.MonkeyPatch) -> None:
    """S-TX A22 (H22): stamps follow the order of the plan, not that of arrival."""

    def stamp(_: Any, self: Stx, __: Any, guest: Guest, ___: Any) -> Stamp:
        given = self._state.next_stamp(guest)
        guest.operations += 1
        return given

    replace(patch, Stx, "_stamp", stamp)


# What clients may do when all is over


def committed_advertisements_do_not_permit(patch: pytest.MonkeyPatch) -> None:
    """Section 2: what a transaction has advertised or withdrawn decides, once committed, what a client may publish."""
    always(patch, BrokerState, "rebuild_space", lambda: None)


def libraries_do_not_learn_what_was_committed(patch: pytest.MonkeyPatch) -> None:
    """The same, at the client."""
    always(patch, Transactions, "_settle_advertised", lambda: None)


def libraries_believe_whoever_is_settled_last(patch: pytest.MonkeyPatch) -> None:
    """A22 (H22), at the client: what was said last counts, not what is settled last."""

    def settle(_: Any, self: Advertised, _said: Any, changes: Any = ()) -> None:
        for change in changes:
            self.space.change(change.positive, change.filter)

    replace(patch, Advertised, "settle", settle)


def withdrawals_still_permit_in_transactions(patch: pytest.MonkeyPatch) -> None:
    """Section 2: who may publish in a transaction is decided by the newest, also where it takes back."""

    def admits(
        original: Any, self: SRT, client: str, hop: str, event: Any, own: Any = (), tag: str = ""
    ) -> bool:
        written = [record for record in own if record.positive]
        known = any(r.positive and r.filter.matches(event) for r in self.log(client, hop) if r.tag is None)
        return known or bool(original(self, client, hop, event, written, tag))

    replace(patch, SRT, "admits", admits)


def one_that_may_lets_the_others_of_its_batch_through(patch: pytest.MonkeyPatch) -> None:
    """The paper's Section 2.2: a client publishes within what it advertises, also where it publishes much at once."""

    def refused(original: Any, self: Publications, client: str, messages: Any) -> Any:
        contains = self._state.joined_guest(client).space.contains
        is_any = len(messages) > 1 and any(contains(message.event) for message in messages)
        return NOTHING if is_any else original(self, client, messages)

    replace(patch, Publications, "_refused", refused)


# Events whose owner is moved


def undecided_subscriptions_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """Section 2: regular publications go to whom an undecided transaction subscribes; too often, and never lost."""

    def seen(original: Any, self: Routing, tag: str = "", step: int = 0) -> Any:
        return (pair for pair in original(self, tag, step) if pair[0].tag == tag)

    replace(patch, Routing, "_seen", seen)


def batches_do_not_see_undecided_subscriptions(patch: pytest.MonkeyPatch) -> None:
    """The same, where brokers decide on many publications at once."""

    def wanted_by_each(original: Any, self: Routing, events: Any) -> Any:
        return hops_of_each(self.prt.index, events) if len(events) > 1 else original(self, events)

    replace(patch, Routing, "wanted_by_each", wanted_by_each)


def owners_go_when_the_home_commits(patch: pytest.MonkeyPatch) -> None:
    """D-TX A20 (H19): the old owner is taken from when all brokers have committed, and not when the first has."""

    def commit(original: Any, self: DtxDecisions, context: Any, source: str) -> Any:
        ready = original(self, context, source)
        if context.is_decided_here:
            self._state.retirement.ended(context.tx)
            ready += self._state.retirement.tell()
        return ready

    replace(patch, DtxDecisions, "commit", commit)


# Answers


def reached_is_not_added_up(patch: pytest.MonkeyPatch) -> None:
    """D-TX 3.1: the number of clients that were reached is that of all brokers behind, together."""

    def ack(original: Any, self: Operations, context: Any, source: str, message: Any) -> Any:
        return original(self, context, source, changed(message, reached=0))

    replace(patch, Operations, "ack", ack)


def the_last_answer_is_the_number_reached(patch: pytest.MonkeyPatch) -> None:
    """D-TX 3.1: the answers of several neighbours are added up, with the clients here."""

    def ack(original: Any, self: Operations, context: Any, source: str, message: Any) -> Any:
        entry = context.entries.get(message.op)
        if entry is not None and not is_client(source):
            entry.reached = 0
        return original(self, context, source, message)

    replace(patch, Operations, "ack", ack)


def it_has_begun_before_the_last_broker_knows(patch: pytest.MonkeyPatch) -> None:
    """D-TX 3.3: the first operation is sent when every broker has a context."""

    def begun(original: Any, self: Dtx, source: str, message: Any) -> Any:
        context = self.contexts.get(message.tx)
        if context is not None and len(context.awaiting) > 1:
            context.awaiting = {source}
        return original(self, source, message)

    replace(patch, Dtx, "_begun", begun)


def the_last_vote_is_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """D-TX 3.3: a yes is answered when all brokers behind have answered."""

    def prepared(original: Any, self: Dtx, source: str, message: Any) -> Any:
        context = self.contexts.get(message.tx)
        if context is not None and len(context.awaiting) > 1 and not message.reason:
            context.awaiting = {source}
        return original(self, source, message)

    replace(patch, Dtx, "_prepared", prepared)


def the_last_vote_on_a_plan_is_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """S-TX safe: a yes is answered when all brokers behind have answered."""

    def prepared(original: Any, self: StxDecisions, source: str, message: Any) -> Any:
        execution = self._open.get(message.tx)
        if execution is not None and len(execution.brokers) > 1 and not message.reason:
            execution.brokers = {source}
        return original(self, source, message)

    replace(patch, StxDecisions, "prepared", prepared)


def a_no_is_told_as_a_yes(patch: pytest.MonkeyPatch) -> None:
    """D-TX 3.3: one no is enough."""

    def vote(original: Any, self: Dtx, context: Any, ready: Any) -> None:
        original(self, context, ready)
        context.state = "yes"
        ready.sends = [
            (hop, Prepared(message.tx) if isinstance(message, Prepared) else message)
            for hop, message in ready.sends
        ]

    replace(patch, Dtx, "_vote", vote)


def a_no_to_a_plan_is_told_as_a_yes(patch: pytest.MonkeyPatch) -> None:
    """S-TX safe: one no is enough."""

    def ask(original: Any, self: StxDecisions, execution: Any, message: Any, source: str, ready: Any) -> None:
        original(self, execution, message, source, ready)
        execution.bad = ""
        ready.sends = [
            (hop, StepPrepared(answer.tx) if isinstance(answer, StepPrepared) else answer)
            for hop, answer in ready.sends
        ]

    replace(patch, StxDecisions, "ask", ask)


def committed_is_told_before_brokers_have(patch: pytest.MonkeyPatch) -> None:
    """D-TX 3.3: when `commit()` returns every broker has committed."""

    def bury(original: Any, self: DtxDecisions, tx: str, ready: Any) -> None:
        tomb = self.tombs[tx]
        if tomb.origin:
            ready.sends.append((tomb.origin, Ended(tx, tomb.committed, tomb.reason)))
            tomb.origin = ""
        original(self, tx, ready)

    replace(patch, DtxDecisions, "_bury", bury)


def plans_have_ended_before_receivers_have_it(patch: pytest.MonkeyPatch) -> None:
    """S-TX 5.1: it has ended behind a broker when its clients there have answered."""

    def end(original: Any, self: StxDecisions, execution: Any, source: str, message: Any, ready: Any) -> None:
        touched, execution.touched = execution.touched, set()
        original(self, execution, source, message, ready)
        hops = sorted(client_hop(client) for client in touched if client in self._state.guests)
        ready.sends += [(hop, message) for hop in hops if hop != source]

    replace(patch, StxDecisions, "_end", end)


def nested_steps_of_the_lost_are_not_void(patch: pytest.MonkeyPatch) -> None:
    """S-TX 7: a step that will never come is void with all that is nested in it."""

    def declare_void(original: Any, self: Stx, execution: Any, steps: Any, reason: str) -> Any:
        return original(self, execution, [changed(step, nested=()) for step in steps], reason)

    replace(patch, Stx, "_declare_void", declare_void)


def receivers_of_plans_forget_what_they_kept(patch: pytest.MonkeyPatch) -> None:
    """Definition 3.1: who has got a publication and is told that it is committed delivers it."""

    def end(original: Any, self: Plans, running: Any, outcome: Any, **named: Any) -> None:
        running.kept = running.kept[:1]
        original(self, running, outcome, **named)

    replace(patch, Plans, "_end", end)
