"""How an S-TX transaction ends at a broker: votes, commit, abort, and who has to hear of it; pure.

A commit takes the transaction's tag off its records, an abort takes the records out. Whoever has decided
remembers the transaction until everybody behind has answered: then nothing of it can come any more.
"""

from __future__ import annotations

from broker.protocol.events import ABORTED, COMMITTED, VOTED
from broker.protocol.hops import Hop, client_hop, is_client
from broker.protocol.stx import StepAbort, StepCommit, StepEnded, StepPrepare, StepPrepared
from broker.protocol.wire import brief
from broker.routing.ready import ProtocolError, Ready
from broker.routing.state import BrokerState
from broker.transactions.stx.execution import Execution


class StxDecisions:
    def __init__(self, state: BrokerState, open_: dict[str, Execution]) -> None:
        self._state = state
        self._routing = state.routing
        self._open = open_

    def ask(self, execution: Execution, message: StepPrepare, source: Hop, ready: Ready) -> None:
        """Vote, and ask those behind us for theirs."""
        execution.origin, execution.voted = source, True
        execution.brokers = set() if execution.bad else set(self._state.others(source))
        self._state.note(ready, VOTED, tx=execution.tx, yes=not execution.bad, reason=execution.bad)
        if execution.brokers:
            ready.sends += self._state.to_others(source, message)
        else:
            ready.sends.append((source, StepPrepared(execution.tx, execution.bad)))

    def prepared(self, source: Hop, message: StepPrepared) -> Ready:
        execution = self._open.get(message.tx)
        if execution is None or execution.status != "active" or source not in execution.brokers:
            return Ready([], [])
        execution.brokers.discard(source)
        execution.bad = execution.bad or message.reason
        if execution.brokers and not message.reason:
            return Ready([], [])
        execution.brokers.clear()
        return Ready([(execution.origin, StepPrepared(message.tx, execution.bad))], [])

    def commit(self, execution: Execution, message: StepCommit, source: Hop, ready: Ready) -> None:
        execution.status = "committed"
        # Without votes, others may still lack what takes the place of what is taken back here.
        self._state.commit(execution.tx, veils=not execution.safe)
        if self._state.keeps_history:
            self._state.note(ready, COMMITTED, tx=execution.tx)
        self._end(execution, source, message, ready)

    def abort_from_client(self, client: str, message: StepAbort) -> Ready:
        execution = self._open.get(message.tx)
        if execution is None or execution.status != "active":
            return Ready([], [])  # too late, or never begun
        if execution.coordinator != client:
            raise ProtocolError(f"{client} does not decide on {message.tx}")
        return self.undo(execution, client_hop(client), message.reason)

    def undo(self, execution: Execution, source: Hop, reason: str) -> Ready:
        """`source` is told when it is done; nobody if it is empty."""
        execution.status, execution.bad, execution.term = "aborted", brief(reason), None
        execution.forget_work()
        self._routing.drop(execution.tx)
        ready = Ready([], [])
        self._state.note(ready, ABORTED, tx=execution.tx, reason=execution.bad)
        if not source and execution.coordinator in self._state.guests:
            execution.touched.add(execution.coordinator)  # the decision is ours, and news to it
        self._end(execution, source, StepAbort(execution.tx, execution.bad), ready)
        return ready

    def _end(self, execution: Execution, source: Hop, message: StepCommit | StepAbort, ready: Ready) -> None:
        execution.origin = source
        execution.brokers = set(self._state.others(source or client_hop(execution.coordinator)))
        present = {client_hop(client) for client in execution.touched if client in self._state.guests}
        execution.clients = present - {source}
        hops = (*sorted(execution.brokers), *sorted(execution.clients))
        ready.sends += [(hop, message) for hop in hops]
        self._bury(execution, ready)

    def ended(self, source: Hop, message: StepEnded) -> Ready:
        execution, ready = self._open.get(message.tx), Ready([], [])
        if execution is not None and execution.status != "active":
            execution.brokers.discard(source)
            execution.clients.discard(source)
            if message.committed and not is_client(source):
                execution.bad = execution.bad or message.reason
                execution.retracts = execution.retracts or message.retracts
            self._bury(execution, ready)
        return ready

    def forget_client(self, execution: Execution, hop: Hop, ready: Ready) -> None:
        """Nobody waits for the answer of a client that is gone."""
        execution.clients.discard(hop)
        execution.origin = "" if execution.origin == hop else execution.origin
        self._bury(execution, ready)

    def _bury(self, execution: Execution, ready: Ready) -> None:
        """When everybody has answered nothing of the transaction can come any more."""
        is_committed = execution.status == "committed"
        retracts = execution.retracts or execution.tx in self._routing.veiled
        if is_committed and execution.is_home and not execution.is_over and not execution.brokers:
            execution.is_over = True
            self._state.retirement.ended(execution.tx)
            if retracts:  # regular events go to too many until all brokers know
                ready += self._state.retirement.tell()
        if execution.brokers or execution.clients:
            return
        if execution.origin:
            ready.sends.append(
                (execution.origin, StepEnded(execution.tx, is_committed, execution.bad, retracts))
            )
        del self._open[execution.tx]
