"""Operations of D-TX and D-TX_NI transactions on their way through a broker; pure.

An operation is routed by what its transaction sees, passed on, and acknowledged to where it came from
when everybody behind has acknowledged it. What an advertisement attracts is passed on and not waited for:
links are FIFO, so it arrives before the acknowledgement of the advertisement.
"""

from __future__ import annotations

from broker.matching.records import Record
from broker.protocol.dtx import TxAck, TxPublish, TxRecord
from broker.protocol.events import PROCESSED
from broker.protocol.hops import Hop, is_client, name_of
from broker.protocol.wire import brief
from broker.routing.ready import ProtocolError, Ready
from broker.routing.state import BrokerState
from broker.transactions.dtx.context import Context, Logged, OpenOperation
from broker.transactions.dtx.view import Decision


class Operations:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._routing = state.routing

    def operate(
        self, context: Context, origin: Hop, op: int, record: Record, triggered: bool = False
    ) -> Ready:
        tx = context.tx
        if not triggered:
            self._check_new(context, op)
        ready = Ready([], [])
        if self._state.keeps_history:
            self._state.note(
                ready, PROCESSED, tx=tx, op=op, kind=record.kind, client=record.client, stamp=record.stamp,
                source=origin, triggered=triggered,
            )  # fmt: skip
        if context.isolated:
            decision = context.view.record(record, origin)
            assert decision is not None
            onward, attracted = decision
            context.note(Logged(origin, decision, record))
            for client, stamp in attracted:
                old = context.view.find(client, stamp)
                ready.sends.append((origin, _tx_record(tx, op, old, triggered=True)))
        else:
            onward = self._place(context, origin, record, ready)
        ready.sends += [(hop, _tx_record(tx, op, record, triggered)) for hop in onward]
        if not triggered:
            self._expect(context, op, OpenOperation(origin, set(onward)), ready)
        return ready

    def _place(self, context: Context, origin: Hop, record: Record, ready: Ready) -> tuple[Hop, ...]:
        """Without isolation: into the tables, under the transaction's tag."""
        known = self._routing.find(record, origin)
        if known is not None:  # an advertisement of somebody else has brought it here before
            return tuple(self._routing.send_on(known, origin))
        record.tag = context.tx
        placement = self._routing.place(record, origin)
        ready.sends += [(origin, self._routing.operation(attracted)) for attracted in placement.attracted]
        return tuple(placement.onward)

    def route(self, context: Context, origin: Hop, message: TxPublish, client: str = "") -> Ready:
        self._check_new(context, message.op)
        decision = self._decide(context, origin, message, client)
        if decision is None:
            reason = f"{message.event} is outside what {client} advertises"
            return self.refuse(context, origin, message.op, reason)
        if context.isolated:
            context.note(Logged(origin, decision, event=message.event, client=client))
        hops, _ = decision
        ready = Ready([(hop, message) for hop in hops], [])
        if self._state.keeps_history:
            self._state.note(
                ready, PROCESSED, tx=message.tx, op=message.op, kind=message.kind, source=origin, to=hops
            )
        entry = OpenOperation(origin, set(hops), message.kind == "tcm")
        for hop in filter(is_client, hops):
            self._hand_over(context, entry, hop)
        self._expect(context, message.op, entry, ready)
        return ready

    def _hand_over(self, context: Context, entry: OpenOperation, hop: Hop) -> None:
        """A publication is for a client of ours."""
        client = name_of(hop)
        guest = self._state.guests.get(client)
        if guest is None:  # it has left, and so have its subscriptions, but for those of this transaction
            entry.pending.discard(hop)
            self._state.mark("a publication is for a client that has left")
            context.bad = context.bad or f"participant {client} is gone"
            return
        entry.reached += 1
        context.participants.add(client)
        if entry.is_tcm:
            context.asked.add(client)
        elif guest.away:
            entry.pending.discard(hop)  # it is stored for the client, and that is as good

    def _decide(self, context: Context, origin: Hop, message: TxPublish, client: str) -> Decision:
        if context.isolated:
            return context.view.publication(message.event, client, origin)
        if client and not self._routing.srt.admits(client, origin, message.event, tag=context.tx):
            return None
        hops = self._routing.hops_of_step(message.event, context.tx, 0)
        return tuple(sorted(hop for hop in hops if hop != origin)), ()

    @staticmethod
    def _check_new(context: Context, op: int) -> None:
        if op in context.entries:
            raise ProtocolError(f"a second operation {op} in {context.tx}")

    def _expect(self, context: Context, op: int, entry: OpenOperation, ready: Ready) -> None:
        context.entries[op] = entry
        self.settle(context, op, ready)

    def ack(self, context: Context, source: Hop, message: TxAck) -> Ready:
        entry = context.entries.get(message.op)
        if entry is None or source not in entry.pending:
            return Ready([], [])
        context.bad = context.bad or message.reason
        entry.pending.discard(source)
        if not is_client(source):
            entry.reached += message.reached
        ready = Ready([], [])
        self.settle(context, message.op, ready)
        return ready

    def settle(self, context: Context, op: int, ready: Ready) -> None:
        entry = context.entries[op]
        if not entry.pending:
            del context.entries[op]
            ready.sends.append((entry.origin, TxAck(context.tx, op, context.bad, entry.reached)))

    def refuse(self, context: Context, hop: Hop, op: int, reason: str) -> Ready:
        context.bad = context.bad or brief(reason)
        return Ready([(hop, TxAck(context.tx, op, context.bad))], [])


def _tx_record(tx: str, op: int, record: Record, triggered: bool) -> TxRecord:
    return TxRecord(tx, op, record.kind, record.client, record.stamp, record.filter, triggered)
