"""Planted faults in what is told: stamps and orders, answers, and what clients may do when all is over."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.hops import is_client
from broker.protocol.vocabulary import NO_KEY, Stamp
from broker.routing.state import BrokerState, Guest
from broker.transactions.dtx.operations import Operations
from broker.transactions.stx.machine import Stx
from tests.mutations.patching import replace

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
