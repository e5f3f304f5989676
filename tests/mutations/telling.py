"""Planted faults in what is told: stamps and orders, answers, and what clients may do when all is over."""

from __future__ import annotations

from typing import Any

import pytest

from broker.matching.many import hops_of_each
from broker.protocol.hops import is_client
from broker.protocol.vocabulary import NO_KEY, Stamp
from broker.routing.publications import NOTHING, Publications
from broker.routing.srt import SRT
from broker.routing.state import BrokerState, Guest
from broker.routing.tables import Routing
from broker.transactions.dtx.decisions import Decisions
from broker.transactions.dtx.operations import Operations
from broker.transactions.stx.machine import Stx
from client.core.advertised import Advertised
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

    def commit(original: Any, self: Decisions, context: Any, source: str) -> Any:
        ready = original(self, context, source)
        if context.is_decided_here:
            self._state.retirement.ended(context.tx)
            ready += self._state.retirement.tell()
        return ready

    replace(patch, Decisions, "commit", commit)
