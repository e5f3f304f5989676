"""Planted faults in how operations of D-TX and D-TX_NI pass through brokers."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.dtx import TxAck
from broker.routing.prt import PRT
from broker.routing.ready import ProtocolError, Ready
from broker.transactions.dtx.context import OpenOperation
from broker.transactions.dtx.decisions import DtxDecisions
from broker.transactions.dtx.machine import Dtx
from broker.transactions.dtx.operations import Operations
from broker.transactions.dtx.view import View
from tests.mutations.patching import replace


def leaf_never_acknowledges(patch: pytest.MonkeyPatch) -> None:
    """D-TX A1 (H1): an operation that goes no further is acknowledged at once."""

    def expect(
        original: Any, self: Operations, context: Any, op: int, entry: OpenOperation, ready: Ready
    ) -> None:
        if entry.pending:
            original(self, context, op, entry, ready)

    replace(patch, Operations, "_expect", expect)


def first_acknowledgement_is_enough(patch: pytest.MonkeyPatch) -> None:
    """D-TX A1 (H1): an acknowledgement waits for everybody that the operation was sent to."""

    def ack(original: Any, self: Operations, context: Any, source: str, message: Any) -> Ready:
        entry = context.entries.get(message.op)
        if entry is not None and source in entry.pending:
            entry.pending &= {source}
        answer: Ready = original(self, context, source, message)
        return answer

    replace(patch, Operations, "ack", ack)


def acknowledged_on_arrival(patch: pytest.MonkeyPatch) -> None:
    """D-TX A1 (H1): an operation is acknowledged when it is done, not when it has come."""

    def expect(
        original: Any, self: Operations, context: Any, op: int, entry: OpenOperation, ready: Ready
    ) -> None:
        entry.pending.clear()
        original(self, context, op, entry, ready)

    replace(patch, Operations, "_expect", expect)


def triggered_records_share_the_entry(patch: pytest.MonkeyPatch) -> None:
    """D-TX A3 (H2): what an advertisement attracts has no entry under the number of another operation."""

    def operate(original: Any, self: Operations, context: Any, origin: str, op: int, *rest: Any) -> Ready:
        record, triggered = rest[0], bool(rest[1:] and rest[1])
        if triggered:
            context.entries.pop(op, None)
        answer: Ready = original(self, context, origin, op, record, False)
        return answer

    replace(patch, Operations, "operate", operate)


def attracts_only_what_was_never_sent(patch: pytest.MonkeyPatch) -> None:
    """D-TX A5 (H4): an advertisement attracts whatever its neighbour lacks, also what others have."""

    def attracted(original: Any, self: PRT, by: Any, hop: str, bit: int) -> Any:
        return [record for record in original(self, by, hop, bit) if not record.sent]

    def attracted_by_view(original: Any, self: View, advertisement: Any, origin: str) -> Any:
        before = set(self.sent)
        found = original(self, advertisement, origin)
        others = {(client, stamp) for client, stamp, _ in before}
        kept = []
        for client, stamp in found:
            known = self._routing.prt.index.find(client, stamp)
            if (client, stamp) not in others and (known is None or not known.sent):
                kept.append((client, stamp))
            else:
                self.sent.discard((client, stamp, origin))
        return tuple(kept)

    replace(patch, PRT, "attracted", attracted)
    replace(patch, View, "_attracted", attracted_by_view)


def attracts_no_unsubscriptions(patch: pytest.MonkeyPatch) -> None:
    """D-TX A5, S-TX A14 (H9): what was taken back follows an advertisement like what was asked for."""

    def attracted(original: Any, *arguments: Any) -> Any:
        return [record for record in original(*arguments) if record.positive]

    def subscriptions(original: Any, self: View) -> Any:
        return [pair for pair in original(self) if pair[1].positive]

    replace(patch, PRT, "attracted", attracted)
    replace(patch, View, "_subscriptions", subscriptions)


def contexts_are_created_late(patch: pytest.MonkeyPatch) -> None:
    """D-TX A13 (H14): a broker has a context as soon as it has heard of the transaction."""

    later: dict[tuple[int, str], Any] = {}

    def begin(original: Any, self: Dtx, source: str, message: Any) -> Ready:
        answer: Ready = original(self, source, message)
        if self.contexts[message.tx].awaiting:
            later[id(self), message.tx] = self.contexts.pop(message.tx)
        return answer

    def begun(original: Any, self: Dtx, source: str, message: Any) -> Ready:
        context = later.get((id(self), message.tx))
        if context is None:
            answer: Ready = original(self, source, message)
            return answer
        context.awaiting.discard(source)
        if context.awaiting:
            return Ready([], [])
        self.contexts[message.tx] = later.pop((id(self), message.tx))
        return Ready([(context.origin, message)], [])

    replace(patch, Dtx, "_begin", begin)
    replace(patch, Dtx, "_begun", begun)


def no_tombs(patch: pytest.MonkeyPatch) -> None:
    """D-TX A14 (H15): what comes after the end is dropped as long as something can come."""

    def open_(_: Any, self: Dtx, tx: str) -> Any:
        context = self.contexts.get(tx)
        if context is None:
            raise ProtocolError(f"there is no transaction {tx}")
        return context

    replace(patch, Dtx, "_open", open_)


def tombs_do_not_wait_for_clients(patch: pytest.MonkeyPatch) -> None:
    """D-TX A14 (H15): a tomb stays until the participants have answered too."""

    def bury(original: Any, self: DtxDecisions, tx: str, ready: Ready) -> None:
        self.tombs[tx].clients.clear()
        original(self, tx, ready)

    replace(patch, DtxDecisions, "_bury", bury)


def edge_does_not_act_for_a_lost_coordinator(patch: pytest.MonkeyPatch) -> None:
    """D-TX A15 (H15): the edge broker aborts for a coordinator that is gone."""

    def client_left(original: Any, self: Dtx, client: str) -> Ready:
        kept = {tx: c for tx, c in self.contexts.items() if c.origin == f"client:{client}"}
        for tx in kept:
            del self.contexts[tx]
        answer: Ready = original(self, client)
        self.contexts.update(kept)
        return answer

    replace(patch, Dtx, "client_left", client_left)


def edge_waits_for_a_lost_participant(patch: pytest.MonkeyPatch) -> None:
    """D-TX A15 (H15): nobody waits for the acknowledgement of a client that is gone."""

    def client_left(original: Any, self: Dtx, client: str) -> Ready:
        kept = [context for context in self.contexts.values() if context.origin != f"client:{client}"]
        entries = [dict(context.entries) for context in kept]
        for context in kept:
            context.entries.clear()
        answer: Ready = original(self, client)
        for context, old in zip(kept, entries, strict=True):
            context.entries.update(old)
        return answer

    replace(patch, Dtx, "client_left", client_left)


def lost_participants_are_overlooked(patch: pytest.MonkeyPatch) -> None:
    """D-TX A15 (H15): a transaction that has lost a participant does not commit."""

    def client_left(original: Any, self: Dtx, client: str) -> Ready:
        before = {tx: context.bad for tx, context in self.contexts.items()}
        answer: Ready = original(self, client)
        for tx, context in self.contexts.items():
            context.bad = before[tx]
        answer.sends = [
            (hop, TxAck(m.tx, m.op, "", m.reached) if isinstance(m, TxAck) else m) for hop, m in answer.sends
        ]
        return answer

    replace(patch, Dtx, "client_left", client_left)


def records_of_the_lost_stay_in_sight(patch: pytest.MonkeyPatch) -> None:
    """D-TX A15: what a client that is gone has written in a transaction is not attracted any more."""
    patch.setattr(View, "forget", lambda self, client: any(r.client == client for r, _ in self.own))


def failures_of_participants_get_lost(patch: pytest.MonkeyPatch) -> None:
    """D-TX H16: an acknowledgement tells whether what it led to went well."""

    def ack(original: Any, self: Operations, context: Any, source: str, message: Any) -> Ready:
        answer: Ready = original(
            self, context, source, type(message)(message.tx, message.op, "", message.reached)
        )
        return answer

    replace(patch, Operations, "ack", ack)


def lifetimes_never_end(patch: pytest.MonkeyPatch) -> None:
    """D-TX 2.7: a transaction whose coordinator forgets it is aborted at the end of its lifetime."""
    patch.setattr(Dtx, "expire", lambda self, now: Ready([], []))
