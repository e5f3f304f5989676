"""Which S-TX transactions are open at a broker, and whose they are; pure."""

from __future__ import annotations

from broker.protocol.hops import client_hop
from broker.protocol.stx import Step, StepCommit, StepEnded, StepPrepare
from broker.routing.ready import ProtocolError, Ready
from broker.routing.state import BrokerState
from broker.transactions.names import check_name
from broker.transactions.stx.execution import Execution


class Registry:
    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self.open: dict[str, Execution] = {}

    def execution(self, tx: str, coordinator: str) -> Execution:
        """A transaction is open from the first that is heard of it."""
        execution = self.open.get(tx)
        if execution is None:
            execution = self.open[tx] = Execution(tx)
        execution.coordinator = execution.coordinator or coordinator
        return execution

    def execution_for(self, client: str, tx: str, coordinator: str) -> Execution | None:
        """For a message of a client of ours; None: it is a straggler."""
        execution = self.open.get(tx)
        if client != coordinator:
            if execution is None or client not in execution.touched:
                raise ProtocolError(f"{client} does not take part in {tx}")
            return execution
        if execution is not None and execution.is_home and execution.coordinator == client:
            return execution
        number = self._number(client, tx)
        if execution is None:
            guest = self._state.joined_guest(client)
            if number <= guest.plans:
                return None  # it has ended: the client learns it by what is on its way
            guest.plans = number
            execution = self.execution(tx, client)
            execution.is_home = True
            execution.lives[client] = guest.incarnation
            execution.deadline = self._state.now + self._state.limits.plan_lifetime_ms / 1e3
        return execution

    def has_too_many(self, client: str, message: Step | StepPrepare | StepCommit) -> bool:
        """Whether this would be one transaction more than a coordinator may have open."""
        is_crowded = len(self.open) >= self._state.limits.transactions_max
        if not is_crowded or client != message.coordinator or message.tx in self.open:
            return False
        is_new = self._number(client, message.tx) > self._state.joined_guest(client).plans
        own = sum(execution.is_home and execution.coordinator == client for execution in self.open.values())
        return is_new and own >= self._state.limits.transactions_max

    def refuse(self, client: str, tx: str) -> Ready:
        self._state.guests[client].plans = self._number(client, tx)
        reason = f"{client} has {self._state.limits.transactions_max} transactions open: the limit"
        return Ready([(client_hop(client), StepEnded(tx, committed=False, reason=reason))], [])

    def _number(self, client: str, tx: str) -> int:
        check_name(tx, client, self._state.joined_guest(client).incarnation)
        return int(tx.rpartition("/")[2])
