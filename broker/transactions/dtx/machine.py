"""D-TX and D-TX_NI at a broker (Section 4, corrected): contexts, operations, votes, decisions; pure.

Every broker has a context of the transaction before its first operation. An operation is routed by what
its context sees, logged, passed on, and acknowledged when everybody behind has acknowledged it. At the
vote the log is replayed on what is committed by then: another outcome is a conflict. Transactions commit
in the order of their keys; one that comes too late for its place votes no. D-TX_NI keeps the rounds and
drops the isolation: its records stand in the tables at once, under its tag.

The rules that order votes are in `broker.transactions.dtx.order`; docs/protocols.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.matching.records import Record, RoutingError
from broker.protocol.dtx import (
    Abort,
    Begin,
    Begun,
    Commit,
    Ended,
    Prepare,
    Prepared,
    TxAck,
    TxPublish,
    TxRecord,
    TxRequest,
)
from broker.protocol.events import BEGUN, VOTED
from broker.protocol.filters import FilterError
from broker.protocol.hops import Hop, client_hop, for_client
from broker.protocol.limits import LimitExceeded, check_filter_within, check_publication
from broker.protocol.messages import Operation
from broker.protocol.vocabulary import ISOLATED, NO_KEY
from broker.routing.ready import ProtocolError, Ready
from broker.routing.state import BrokerState
from broker.transactions.dtx.context import Context
from broker.transactions.dtx.decisions import DtxDecisions
from broker.transactions.dtx.operations import Operations
from broker.transactions.dtx.order import Order
from broker.transactions.dtx.view import View
from broker.transactions.machine import Machine
from broker.transactions.names import check_name

DECISION_S = 1.0
"""A coordinator that has been told the votes, and does not decide for so long, has abandoned its transaction: all
whom it keeps in doubt wait for it."""
TOO_LATE = "an operation came after the votes were asked for"


class Dtx(Machine):
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._routing = state.routing
        self.order = Order(state)
        self.contexts = self.order.contexts
        self._operations = Operations(state)
        self.decisions = DtxDecisions(state, self.order)
        self.tombs = self.decisions.tombs
        self.unfinished = (self.contexts, self.tombs)
        self.from_client: dict[type, Callable[[str, Any], Ready]] = {
            Begin: self._begin_for_client,
            TxRequest: self._request,
            TxPublish: self._publish,
            TxAck: for_client(self._ack),
            Prepare: for_client(self._prepare),
            Commit: self._commit_for_client,
            Abort: self._abort_for_client,
            Ended: for_client(self.decisions.ended),
        }
        self.from_broker: dict[type, Callable[[Hop, Any], Ready]] = {
            Begin: self._begin,
            Begun: self._begun,
            TxRecord: self._record,
            TxPublish: self._forward,
            TxAck: self._ack,
            Prepare: self._prepare,
            Prepared: self._prepared,
            Commit: self._commit,
            Abort: self._abort,
            Ended: self.decisions.ended,
        }

    # Beginning

    def _begin_for_client(self, client: str, message: Begin) -> Ready:
        guest = self._state.joined_guest(client)
        check_name(message.tx, client, guest.incarnation)
        if message.tx in self.contexts or message.tx in self.tombs:
            raise ProtocolError(f"transaction {message.tx} has begun already")
        if message.lifetime_ms <= 0:
            raise ProtocolError(f"a lifetime of {message.lifetime_ms} ms")
        hop, reason = client_hop(client), self._too_much(client, message)
        if reason:
            return Ready([(hop, Ended(message.tx, committed=False, reason=reason))], [])
        key = self.order.next_key(message.tx) if message.mode in ISOLATED else NO_KEY
        return self._begin(hop, Begin(message.tx, message.mode, key, message.lifetime_ms))

    def _too_much(self, client: str, message: Begin) -> str:
        """Why a transaction is beyond a limit; empty: it is not."""
        limits, hop = self._state.limits, client_hop(client)
        if message.lifetime_ms > limits.lifetime_ms_max:
            return f"a lifetime of {message.lifetime_ms} ms; the limit is {limits.lifetime_ms_max} (lifetime_ms_max)"
        if sum(context.origin == hop for context in self.contexts.values()) >= limits.transactions_max:
            return f"{client} has {limits.transactions_max} transactions open: the limit"
        return ""

    def _begin(self, source: Hop, message: Begin) -> Ready:
        if message.tx in self.contexts or message.tx in self.tombs:
            raise ProtocolError(f"a second begin of {message.tx}")
        deadline = self._state.now + message.lifetime_ms / 1e3
        context = Context(
            message.tx, message.mode, message.key, source, deadline, self._state.now, View(self._routing)
        )
        self.contexts[message.tx] = context
        context.awaiting = set(self._state.others(source))
        ready = Ready([(hop, message) for hop in self._state.others(source)], [])
        self._state.note(ready, BEGUN, tx=message.tx, mode=message.mode, key=message.key)
        if not context.awaiting:
            ready.sends.append((source, Begun(message.tx)))
        return ready

    def _begun(self, source: Hop, message: Begun) -> Ready:
        context = self._open(message.tx)
        if context is None or source not in context.awaiting:
            return Ready([], [])
        context.awaiting.discard(source)
        return Ready([] if context.awaiting else [(context.origin, message)], [])

    # Operations

    def _request(self, client: str, message: TxRequest) -> Ready:
        """An operation of a client of ours: here it gets its stamp."""
        context = self._context_for(client, message.tx)
        if context is None:
            return Ready([], [])
        if context.state != "active":
            return self._operations.refuse(context, client_hop(client), message.op, TOO_LATE)
        guest, hop = self._state.joined_guest(client), client_hop(client)
        if context.isolated:
            stamp = (context.key, 0, guest.incarnation, context.operations + 1)
        else:
            stamp = self._state.next_stamp(guest)
        try:
            check_filter_within(message.filter, self._state.limits)
            record = Record(message.kind, client, stamp, message.filter)
            ready = self._operations.operate(context, hop, message.op, record)
        except (FilterError, LimitExceeded, RoutingError) as error:
            return self._operations.refuse(context, hop, message.op, str(error))
        context.operations += 1
        if not context.isolated:
            guest.operations += 1
        return ready

    def _publish(self, client: str, message: TxPublish) -> Ready:
        context = self._context_for(client, message.tx)
        if context is None:
            return Ready([], [])
        if context.state != "active":
            return self._operations.refuse(context, client_hop(client), message.op, TOO_LATE)
        try:
            check_publication(message.event, message.payload, self._state.limits)
        except (FilterError, LimitExceeded) as error:
            return self._operations.refuse(context, client_hop(client), message.op, str(error))
        return self._operations.route(context, client_hop(client), message, client)

    def _record(self, source: Hop, message: TxRecord) -> Ready:
        context = self._open(message.tx)
        if context is None:
            return Ready([], [])
        if self._state.crt.behind(message.client, source, message.stamp[2]) is None:
            raise ProtocolError(f"an operation of {message.client}, who has not joined behind {source}")
        record = Record(message.kind, message.client, message.stamp, message.filter)
        try:
            check_filter_within(message.filter, self._state.limits)
            return self._operations.operate(context, source, message.op, record, message.triggered)
        except (FilterError, LimitExceeded, RoutingError) as error:
            raise ProtocolError(str(error)) from error

    def _forward(self, source: Hop, message: TxPublish) -> Ready:
        context = self._open(message.tx)
        return Ready([], []) if context is None else self._operations.route(context, source, message)

    def _ack(self, source: Hop, message: TxAck) -> Ready:
        context = self._open(message.tx)
        return Ready([], []) if context is None else self._operations.ack(context, source, message)

    # Votes

    def _prepare(self, source: Hop, message: Prepare) -> Ready:
        context = self._open(message.tx)
        if context is None:
            return Ready([], [])
        if context.origin != source or context.state != "active":
            raise ProtocolError(f"{source} may not ask for votes on {message.tx}, or not twice")
        if context.is_decided_here and context.awaiting:
            raise ProtocolError(f"votes on {message.tx} before it has begun")
        if context.is_decided_here and context.entries:
            context.bad = context.bad or "votes were asked for while operations were under way"
        context.state = "preparing"
        self.order.saw(context.key)
        return self._pump()

    def _pump(self) -> Ready:
        """Vote on whatever need not wait for another transaction."""
        ready = Ready([], [])
        for context in self.order.votable():
            self._vote(context, ready)
        return ready

    def _vote(self, context: Context, ready: Ready) -> None:
        reason = context.bad or self.order.objection(context)
        context.state = "no" if reason else "yes"
        self._state.note(ready, VOTED, tx=context.tx, yes=not reason, reason=reason)
        context.awaiting = set() if reason else set(self._state.others(context.origin))
        if context.awaiting:
            ready.sends += self._state.to_others(context.origin, Prepare(context.tx))
        else:
            self._must_decide(context)
            ready.sends.append((context.origin, Prepared(context.tx, reason)))

    def _prepared(self, source: Hop, message: Prepared) -> Ready:
        context = self._open(message.tx)
        if context is None or source not in context.awaiting:
            return Ready([], [])
        context.awaiting.discard(source)
        if message.reason:  # one no is enough
            context.awaiting.clear()
        elif context.awaiting:
            return Ready([], [])
        self._must_decide(context)
        return Ready([(context.origin, message)], [])

    def _must_decide(self, context: Context) -> None:
        """Its coordinator is told the votes."""
        if context.is_decided_here:
            context.deadline = min(context.deadline, self._state.now + DECISION_S)

    # Decisions

    def _commit_for_client(self, client: str, message: Commit) -> Ready:
        context = self._open(message.tx)
        if context is None:
            return Ready([], [])  # it has been aborted for it
        if context.state != "yes" or context.awaiting:
            raise ProtocolError(f"{message.tx} cannot commit before all brokers have voted for it")
        return self._commit(client_hop(client), message)

    def _commit(self, source: Hop, message: Commit) -> Ready:
        context = self._open(message.tx)
        if context is None:
            return Ready([], [])
        self._check_origin(context, source)
        ready = self.decisions.commit(context, source)
        ready += self._pump()
        return ready

    def _abort_for_client(self, client: str, message: Abort) -> Ready:
        if message.tx in self.contexts or message.tx in self.tombs:
            return self._abort(client_hop(client), message)
        check_name(message.tx, client, self._state.joined_guest(client).incarnation)
        self._state.mark("a begin was given up when it had been refused")
        return Ready([], [])

    def _abort(self, source: Hop, message: Abort) -> Ready:
        context = self._open(message.tx)
        if context is None:
            return Ready([], [])
        self._check_origin(context, source)
        return self._undo(context, source, message.reason)

    def _undo(self, context: Context, source: Hop, reason: str) -> Ready:
        """`source` is told when it is done; nobody if it is empty."""
        ready = self.decisions.abort(context, source, reason)
        ready += self._pump()
        return ready

    # Clients that go, and time that passes

    def client_left(self, client: str) -> Ready:
        hop, ready = client_hop(client), Ready([], [])
        for context in tuple(self.contexts.values()):
            if context.origin == hop:
                if context.state == "yes":
                    self._state.mark("a coordinator is gone with the votes under way")
                ready += self._undo(context, "", f"its coordinator {client} is gone")
                continue
            if context.view.forget(client) or client in context.asked:
                context.bad = context.bad or f"participant {client} is gone"
            for op, entry in tuple(context.entries.items()):
                if hop in entry.pending:
                    entry.pending.discard(hop)
                    if entry.is_tcm:
                        context.bad = context.bad or f"participant {client} is gone"
                    self._operations.settle(context, op, ready)
        ready += self.decisions.client_left(hop)
        return ready

    def client_away(self, client: str) -> Ready:
        """Its connection is lost: what was published to it is stored, and so counts as received."""
        hop, ready = client_hop(client), Ready([], [])
        for context in self.contexts.values():
            for op, entry in tuple(context.entries.items()):
                if hop in entry.pending and not entry.is_tcm:
                    entry.pending.discard(hop)
                    self._operations.settle(context, op, ready)
        return ready

    def expire(self, now: float) -> Ready:
        """Nothing stays open for ever: past its lifetime a transaction aborts, or is not voted for."""
        ready = Ready([], [])
        for context in tuple(self.contexts.values()):
            if context.deadline > now:
                continue
            if context.is_decided_here:
                is_told = context.state in ("yes", "no") and not context.awaiting
                reason = (
                    "its coordinator knew the votes and did not decide" if is_told else "its lifetime is over"
                )
                if is_told:
                    self._state.mark("a coordinator knew the votes and did not decide")
                ready += self._undo(context, "", reason)
            elif context.state in ("active", "preparing"):
                context.bad = context.bad or "its lifetime is over"
        ready += self._pump()
        return ready

    def owns(self, message: Operation) -> bool:
        """Those without a step; only D-TX_NI has records in the tables before they are decided."""
        return not message.step

    def adopt(self, record: Record, message: Operation) -> bool:
        if message.decided:  # a `usub` of an isolated one, hidden where it comes from
            self._state.mark("a hidden usub is attracted")
            if message.tx in self.contexts or message.tx in self._routing.veiled:
                record.tag = message.tx
            return True
        tomb = self.tombs.get(message.tx)
        if tomb is None:
            if message.tx not in self.contexts:
                raise ProtocolError(f"there is no transaction {message.tx}")
            record.tag = message.tx
        return tomb is None or tomb.committed

    # Helpers

    def _open(self, tx: str) -> Context | None:
        """The context, or None if it has ended here and stragglers are to be dropped."""
        context = self.contexts.get(tx)
        if context is not None:
            context.heard = self._state.now
        elif tx not in self.tombs:
            raise ProtocolError(f"there is no transaction {tx}")
        return context

    def _context_for(self, client: str, tx: str) -> Context | None:
        """For an operation of a client of ours."""
        context = self._open(tx)
        if context is None:
            return None
        is_owner = context.origin == client_hop(client)
        if client not in context.asked and not is_owner:
            raise ProtocolError(f"{client} does not take part in {tx}")
        if is_owner and (context.awaiting or context.state != "active"):
            raise ProtocolError(f"an operation in {tx} before it has begun, or after votes were asked for")
        return context

    @staticmethod
    def _check_origin(context: Context, source: Hop) -> None:
        if context.origin != source:
            raise ProtocolError(f"{source} does not decide on {context.tx}")

    def describe(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "transactions": [context.describe() for context in self.contexts.values()],
            "decided": [tomb.describe(tx) for tx, tomb in self.tombs.items()],
        }
