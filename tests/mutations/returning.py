"""Planted faults in what happens when clients come back with their ids."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed

from broker.protocol.hops import Hop
from broker.protocol.stx import Before
from broker.routing.state import BrokerState, Guest
from broker.transactions.stx import machine as machine_module
from broker.transactions.stx import planning as planning_module
from broker.transactions.stx import steps as steps_module
from broker.transactions.stx.execution import Execution
from broker.transactions.stx.machine import Stx
from broker.transactions.stx.steps import Stepping
from tests.mutations.patching import replace


def _by_id(state: BrokerState, _: Execution, client: str) -> Hop | None:
    return state.hop_to(client)


def plans_ask_whoever_has_the_id(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H21): a `tcm` is for the client that was there when the plan was checked."""
    patch.setattr(steps_module, "hop_in", _by_id)
    _joined_at_once(patch)


def plans_ask_who_has_not_joined(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H21): a target that has not joined is gone."""
    _joined_at_once(patch)


def _joined_at_once(patch: pytest.MonkeyPatch) -> None:
    def control(original: Any, self: Stepping, execution: Execution, message: Any, ready: Any) -> Any:
        guest = self._state.guests.get(message.planned.target, Guest(0))
        joined, guest.joined = guest.joined, True
        void = original(self, execution, message, ready)
        guest.joined = joined
        return void

    replace(patch, Stepping, "_control", control)


def steps_of_a_former_life_are_awaited(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H21): nothing comes of a client that is gone, also if another one has its id."""
    patch.setattr(planning_module, "hop_in", _by_id)


def steps_of_a_former_life_are_not_missed(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H21): a broker that lacks a step of a client that is gone votes no, also if it has come back."""
    patch.setattr(machine_module, "hop_in", _by_id)


def who_comes_back_takes_its_earlier_part_on(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H21): what a client owes goes with it."""

    def client_left(original: Any, self: Stx, client: str) -> Any:
        kept = {tx: execution.owed.pop(client, None) for tx, execution in self.open.items()}
        answer = original(self, client)
        for tx, owed in kept.items():
            if owed and tx in self.open:
                self.open[tx].owed[client] = owed
        return answer

    replace(patch, Stx, "client_left", client_left)


def brokers_do_not_tell_whose_plan_it_is(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H21): the commit says whose steps it means, to brokers that no step has passed."""

    def term(original: Any, self: Stx, source: Hop, message: Any) -> Any:
        return original(self, source, changed(message, lives=()))

    replace(patch, Stx, "_term", term)


def a_former_life_counts_as_a_client_of_the_new_ones_broker(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H21): only the edge broker of an advertiser waits for the echo, and that is where it was."""

    def waits(original: Any, state: BrokerState, execution: Execution, planned: Any, before: Before) -> bool:
        if before.step in execution.processed:
            is_next = (
                planned is not None and planned.kind in ("pub", "tcm") and planned.client == before.client
            )
            is_ours = before.kind == "adv" and before.client in state.guests
            return is_ours and is_next and before.step not in execution.echoed
        answer: bool = original(state, execution, planned, before)
        return answer

    replace(patch, machine_module, "waits", waits)
