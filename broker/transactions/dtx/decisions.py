"""How a D-TX or D-TX_NI transaction ends at a broker; pure.

A commit merges what the transaction wrote into the tables, an abort forgets it. Either leaves a tomb, so
that what is still on its way is dropped, until everybody has answered: then nothing can come any more.
"""

from __future__ import annotations

from broker.protocol.dtx import Abort, Commit, Ended
from broker.protocol.events import ABORTED, COMMITTED
from broker.protocol.hops import Hop, client_hop, is_client, name_of
from broker.protocol.messages import Forget
from broker.protocol.wire import brief
from broker.routing.ready import Ready
from broker.routing.state import BrokerState
from broker.transactions.dtx.context import Context, Tomb
from broker.transactions.dtx.order import Order


class DtxDecisions:
    def __init__(self, state: BrokerState, order: Order) -> None:
        self._state = state
        self._routing = state.routing
        self._order = order
        self.tombs: dict[str, Tomb] = {}

    def commit(self, context: Context, source: Hop) -> Ready:
        """`source` is told when every broker behind us has committed."""
        ready = self._merge(context) if context.isolated else self._keep(context)
        self._state.note(ready, COMMITTED, tx=context.tx, key=context.key)
        retracts = context.tx in self._routing.veiled
        tomb = Tomb(True, "", source, context.is_decided_here, retracts)
        ready += self._end(context, tomb, Commit(context.tx, context.isolated))
        return ready

    def abort(self, context: Context, source: Hop, reason: str) -> Ready:
        """`source` is told when it is done; nobody if it is empty."""
        if not context.isolated:
            self._routing.drop(context.tx)
        reason = brief(reason)
        ready = Ready([], [])
        self._state.note(ready, ABORTED, tx=context.tx, reason=reason)
        ready += self._end(context, Tomb(False, reason, source), Abort(context.tx, reason))
        return ready

    def _merge(self, context: Context) -> Ready:
        """What the transaction wrote joins the tables; what they did not know at its vote is sent on now."""
        routing, ready = self._routing, Ready([], [])
        merged = []
        for record, hop in context.view.own:
            if self._state.crt.behind(record.client, hop, record.stamp[2]) is None:
                self._state.mark("a transaction commits without a client that has left")
                continue
            known = routing.find(record, hop)
            if known is None:
                if record.kind == "usub":
                    record.tag = context.tx
                routing.store(record, hop)
            merged.append((known or record, hop))
        routing.veil(context.tx)
        for client, stamp, hop in sorted(context.view.sent):
            if not routing.mark_sent(client, stamp, hop) and self._state.crt.has(client, stamp[2]):
                self._state.mark("a commit has brought what was dropped meanwhile")
                ready.sends.append((hop, Forget(client, stamp)))  # it had no effect any more, and was dropped
        self._state.retirement.committed(context.tx, merged)
        self._order.committed(context)
        for record, hop in merged:
            if record.kind in ("adv", "uadv"):
                ready.sends += [
                    (hop, routing.operation(attracted)) for attracted in routing.attract(record, hop)
                ]
                if is_client(hop):
                    self._state.rebuild_space(record.client)
            else:
                ready.sends += [
                    (onward, routing.operation(record)) for onward in routing.send_on(record, hop)
                ]
        return ready

    def _keep(self, context: Context) -> Ready:
        self._state.commit(context.tx)
        return Ready([], [])

    def _end(self, context: Context, tomb: Tomb, message: Commit | Abort) -> Ready:
        """Pass the decision on, to brokers and to the clients that took part."""
        del self._order.contexts[context.tx]
        self.tombs[context.tx] = tomb
        tomb.brokers = set(self._state.others(context.origin))
        present = [client_hop(c) for c in sorted(context.participants) if c in self._state.guests]
        tomb.clients = {hop for hop in present if hop != context.origin}
        if context.is_decided_here and not tomb.origin and name_of(context.origin) in self._state.guests:
            tomb.clients.add(context.origin)  # the decision is ours, and news to the coordinator
        ready = Ready([(hop, message) for hop in (*sorted(tomb.brokers), *sorted(tomb.clients))], [])
        self._bury(context.tx, ready)
        return ready

    def ended(self, source: Hop, message: Ended) -> Ready:
        tomb = self.tombs.get(message.tx)
        ready = Ready([], [])
        if tomb is not None:
            tomb.retracts = tomb.retracts or message.retracts
            tomb.brokers.discard(source)
            tomb.clients.discard(source)
            self._bury(message.tx, ready)
        return ready

    def _bury(self, tx: str, ready: Ready) -> None:
        tomb = self.tombs[tx]
        if not tomb.brokers and tomb.is_home:
            tomb.is_home = False
            self._state.retirement.ended(tx)
            if tomb.retracts:  # regular events go to too many until all brokers know
                ready += self._state.retirement.tell()
        if not tomb.brokers and tomb.origin:
            ready.sends.append((tomb.origin, Ended(tx, tomb.committed, tomb.reason, tomb.retracts)))
            tomb.origin = ""
        if not tomb.brokers and not tomb.clients:
            del self.tombs[tx]

    def client_left(self, hop: Hop) -> Ready:
        """Nobody waits for the answer of a client that is gone."""
        ready = Ready([], [])
        for tx, tomb in tuple(self.tombs.items()):
            if hop in tomb.clients or tomb.origin == hop:
                tomb.clients.discard(hop)
                tomb.origin = "" if tomb.origin == hop else tomb.origin
                self._bury(tx, ready)
        return ready
