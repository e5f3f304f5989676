"""Planted faults in S-TX at brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace as changed

from broker.matching.records import Record
from broker.protocol.hops import Hop, client_hop, is_client
from broker.protocol.messages import Operation
from broker.protocol.stx import Step
from broker.routing.ready import Ready
from broker.routing.srt import SRT
from broker.routing.tables import Routing
from broker.transactions.stx import machine as stx_module
from broker.transactions.stx import planning
from broker.transactions.stx.decisions import StxDecisions
from broker.transactions.stx.execution import Execution
from broker.transactions.stx.machine import Stx
from broker.transactions.stx.steps import Stepping
from tests.mutations.patching import always, replace

TABLES = ("adv", "uadv", "sub", "usub")


def hop_test_is_inverted(patch: pytest.MonkeyPatch) -> None:
    """S-TX A1 (H1): a subscription is due where an advertisement lies elsewhere than its client."""
    patch.setattr(SRT, "wants_beyond", SRT.wants)


def steps_of_own_clients_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """S-TX A2 (H3): everything that a client of the broker will send is due there."""

    def waits(original: Any, state: Any, execution: Execution, planned: Any, before: Any) -> bool:
        answer: bool = original(state, execution, planned, before)
        is_ours = before.client in state.guests and before.step not in execution.processed
        if is_ours and before.kind in ("sub", "usub"):
            return bool(state.routing.srt.wants_beyond(client_hop(before.client), before.filter))
        return answer and not (is_ours and before.kind in ("pub", "tcm"))

    replace(patch, stx_module, "waits", waits)


def advertisements_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """S-TX A3: advertisements flood, so they are due everywhere."""

    def waits(original: Any, state: Any, execution: Execution, planned: Any, before: Any) -> bool:
        answer: bool = original(state, execution, planned, before)
        is_coming = before.step not in execution.processed and before.client not in state.guests
        return answer and not (is_coming and before.kind in ("adv", "uadv"))

    replace(patch, stx_module, "waits", waits)


def what_waits_is_looked_at_once(patch: pytest.MonkeyPatch) -> None:
    """S-TX A4 (H5): what waits is looked at again whenever a table changes."""
    always(patch, Stx, "advertised", lambda: Ready([], []))
    always(patch, Stx, "_look_again", lambda: None)


def advertisements_have_no_echo(patch: pytest.MonkeyPatch) -> None:
    """S-TX A5 (H4): a publication waits until its advertisement has gone round."""

    def waits(original: Any, state: Any, execution: Execution, planned: Any, before: Any) -> bool:
        answer: bool = original(state, execution, planned, before)
        return answer and before.step not in execution.processed

    replace(patch, stx_module, "waits", waits)


def echoes_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """S-TX A5 (H4): an echo comes back from all brokers, not from the nearest."""

    def record(
        original: Any, self: Stepping, execution: Execution, message: Any, source: str, ready: Ready
    ) -> None:
        original(self, execution, message, source, ready)
        echo = execution.echoes.get(message.planned.step)
        if echo is not None:
            echo.awaiting.clear()
            self._settle_echo(execution, message.planned.step, ready)

    replace(patch, Stepping, "_record", record)


def news_overtakes_publications(patch: pytest.MonkeyPatch) -> None:
    """S-TX A7: the news that a publication has left does not overtake it."""

    def done(_: Any, self: Stepping, __: str, message: Any) -> Ready:
        return Ready([(self._way(message), message)], [])

    replace(patch, Stepping, "done", done)


def controls_reach_everybody(patch: pytest.MonkeyPatch) -> None:
    """S-TX A10 (H13): a tcm is for its target alone."""

    def control(original: Any, self: Stepping, execution: Execution, message: Any, ready: Ready) -> Any:
        void = original(self, execution, message, ready)
        if self._state.hop_to(message.planned.target) == client_hop(message.planned.target):
            for client in self._state.guests:
                if client != message.planned.target:
                    execution.touched.add(client)
                    ready.sends.append((client_hop(client), message))
        return void

    replace(patch, Stepping, "_control", control)


def aborts_compensate(patch: pytest.MonkeyPatch) -> None:
    """S-TX A12 (H10): an abort takes records out by their tag, instead of issuing the opposite."""
    opposite: dict[str, Any] = {"adv": "uadv", "uadv": "adv", "sub": "usub", "usub": "sub"}

    def undo(original: Any, self: StxDecisions, execution: Execution, source: str, reason: str) -> Ready:
        ours = [
            (record, client_hop(record.client))
            for _, record in (*self._routing.srt, *self._routing.prt)
            if record.tag == execution.tx and record.client in self._state.guests
        ]
        self._routing.commit(execution.tx)
        answer: Ready = original(self, execution, source, reason)
        for record, hop in ours:
            guest = self._state.guests[record.client]
            stamp = self._state.next_stamp(guest)
            guest.operations += 1
            inverse = Record(opposite[record.kind], record.client, stamp, record.filter)
            answer.sends += self._routing.apply(inverse, hop)
        return answer

    replace(patch, StxDecisions, "undo", undo)


def aborts_wait_for_the_missing(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H11): an abort never waits for steps."""

    def undo(original: Any, self: StxDecisions, execution: Execution, source: str, reason: str) -> Ready:
        if any(execution.owed.values()) or execution.buffer:
            return Ready([], [])
        answer: Ready = original(self, execution, source, reason)
        return answer

    replace(patch, StxDecisions, "undo", undo)


def attracted_steps_are_not_recognised(patch: pytest.MonkeyPatch) -> None:
    """S-TX A16 (H15): a step that was attracted has come, like one that was sent."""

    def adopt(original: Any, self: Stx, record: Record, message: Operation) -> bool:
        had = message.tx in self.open and message.step in self.open[message.tx].processed
        answer: bool = original(self, record, message)
        if not had and message.tx in self.open:
            self.open[message.tx].processed.discard(message.step)
        return answer

    replace(patch, Stx, "adopt", adopt)


def committed_brokers_drop_steps(patch: pytest.MonkeyPatch) -> None:
    """S-TX A18 (H15): a step that crosses a broker that has committed goes on."""

    def step(original: Any, self: Stx, source: str, message: Any) -> Ready:
        execution = self.open.get(message.tx)
        if execution is not None and execution.status == "committed":
            return Ready([], [])
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, Stx, "_step", step)


def advertisements_wait(patch: pytest.MonkeyPatch) -> None:
    """S-TX A19 (H14): advertisements are never held back."""

    def is_ready(_: Any, self: Stx, execution: Execution, message: Step) -> bool:
        return not any(
            planning.waits(self._state, execution, message.planned, before) for before in message.before
        )

    replace(patch, Stx, "_is_ready", is_ready)


def missing_steps_are_not_declared(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H12): steps of a participant that is gone are declared void."""
    always(patch, Stx, "_declare_void", lambda: Ready([], []))


def void_steps_do_not_spoil_a_vote(patch: pytest.MonkeyPatch) -> None:
    """S-TX safe (H12): a broker that knows of a missing step votes no."""

    def ask(
        original: Any, self: StxDecisions, execution: Execution, message: Any, source: str, ready: Ready
    ) -> None:
        execution.bad = ""
        original(self, execution, message, source, ready)

    def void(original: Any, self: Stx, source: str, message: Any) -> Ready:
        answer: Ready = original(self, source, message)
        answer.sends = [pair for pair in answer.sends if type(pair[1]).__name__ != "StepFailed"]
        return answer

    replace(patch, StxDecisions, "ask", ask)
    replace(patch, Stx, "_void", void)


def edge_does_not_abort_for_a_lost_planner(patch: pytest.MonkeyPatch) -> None:
    """S-TX 5.3: the edge broker aborts for a coordinator that is gone before the commit."""

    def client_left(original: Any, self: Stx, client: str) -> Ready:
        for execution in self.open.values():
            if execution.coordinator == client and execution.status == "active":
                execution.is_home = False
        answer: Ready = original(self, client)
        return answer

    replace(patch, Stx, "client_left", client_left)


def commits_do_not_miss_the_lost(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H12): a commit is not executed while somebody is gone whose steps have not all been seen."""
    always(patch, Stx, "_missing", str)


def decided_steps_open_a_transaction(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H15): a step that comes from a committed broker to one that has ended is told from a new one."""

    def step(original: Any, self: Stx, source: str, message: Any) -> Ready:
        answer: Ready = original(self, source, changed(message, decided=False))
        return answer

    replace(patch, Stx, "_step", step)


def voids_stop_where_it_has_committed(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H12): that steps will not come is passed on by a broker that has committed, too."""

    def void(original: Any, self: Stx, source: str, message: Any) -> Ready:
        execution = self.open.get(message.tx)
        if execution is not None and execution.status == "committed":
            return Ready([], [])
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, Stx, "_void", void)


def voids_stop_where_it_has_ended(patch: pytest.MonkeyPatch) -> None:
    """S-TX (S-H23): that steps will not come is passed on by a broker that has forgotten the plan, too."""

    def void(original: Any, self: Stx, source: str, message: Any) -> Ready:
        if message.decided and message.tx not in self.open:
            return Ready([], [])
        answer: Ready = original(self, source, message)
        return answer

    replace(patch, Stx, "_void", void)


def subscriptions_stop_on_their_way(patch: pytest.MonkeyPatch) -> None:
    """S-TX 2.8: a subscription goes wherever it is awaited: both are decided by one test."""

    def send_on(original: Any, self: Routing, record: Record, origin: str) -> list[str]:
        onward: list[str] = original(self, record, origin)
        return onward if is_client(origin) else onward[:-1]

    replace(patch, Routing, "send_on", send_on)


def stamps_repeat(patch: pytest.MonkeyPatch) -> None:
    """S-TX A8: each operation of a client has a stamp of its own, in and beside transactions."""

    def from_client(original: Any, self: Stx, client: str, message: Any) -> Ready:
        guest = self._state.guests[client]
        before = guest.operations
        answer: Ready = original(self, client, message)
        guest.operations = before
        return answer

    replace(patch, Stx, "_step_from_client", from_client)


def commits_wait_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H2, H3): a commit waits like a step that comes last."""

    def term(original: Any, self: Stx, source: str, message: Any) -> Ready:
        answer: Ready = original(self, source, changed(message, before=()))
        return answer

    replace(patch, Stx, "_term", term)


def late_subscriptions_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """S-H21: a subscription that comes where its transaction has ended counts all the same."""

    def too_late(original: Callable[..., Ready], stx: Stx, source: Hop, message: Step) -> Ready:
        if message.planned.kind == "tcm":
            return original(stx, source, message)
        return Ready([], [])

    replace(patch, Stx, "_too_late", too_late)


def the_end_overtakes_what_waits(patch: pytest.MonkeyPatch) -> None:
    """S-H22: the commit waits for steps that wait here, also for those that began after the vote."""

    def pump(original: Callable[..., None], stx: Stx, execution: Execution, ready: Ready) -> None:
        original(stx, execution, ready)
        waiting, execution.buffer = execution.buffer, {}
        original(stx, execution, ready)
        if execution.status == "active":
            execution.buffer = waiting

    replace(patch, Stx, "_pump", pump)
