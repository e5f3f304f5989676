"""Which S-TX transactions are open at a broker, and whose they are; pure."""

from __future__ import annotations

from broker.hops import client_hop
from broker.site import ProtocolError, Ready, Site
from broker.transactions.dtx import check_name
from broker.transactions.plan import Open
from broker.txmessages import Step, StepCommit, StepEnded, StepPrepare


class Registry:
    def __init__(self, site: Site) -> None:
        self._site = site
        self.open: dict[str, Open] = {}

    def state(self, tx: str, coordinator: str) -> Open:
        """A transaction is open from the first that is heard of it."""
        state = self.open.get(tx)
        if state is None:
            state = self.open[tx] = Open(tx)
        state.coordinator = state.coordinator or coordinator
        return state

    def state_for(self, client: str, tx: str, coordinator: str) -> Open | None:
        """For a message of a client of ours; None: it is a straggler."""
        state = self.open.get(tx)
        if client != coordinator:
            if state is None or client not in state.touched:
                raise ProtocolError(f"{client} does not take part in {tx}")
            return state
        if state is not None and state.is_home and state.coordinator == client:
            return state
        number = self._number(client, tx)
        if state is None:
            guest = self._site.joined_guest(client)
            if number <= guest.plans:
                return None  # it has ended: the client learns it by what is on its way
            guest.plans = number
            state = self.state(tx, client)
            state.is_home = True
            state.deadline = self._site.now + self._site.limits.plan_lifetime_ms / 1e3
        return state

    def has_too_many(self, client: str, message: Step | StepPrepare | StepCommit) -> bool:
        """Whether this would be one transaction more than a coordinator may have open."""
        is_crowded = len(self.open) >= self._site.limits.transactions_max
        if not is_crowded or client != message.coordinator or message.tx in self.open:
            return False
        is_new = self._number(client, message.tx) > self._site.joined_guest(client).plans
        own = sum(state.is_home and state.coordinator == client for state in self.open.values())
        return is_new and own >= self._site.limits.transactions_max

    def refuse(self, client: str, tx: str) -> Ready:
        self._site.guests[client].plans = self._number(client, tx)
        reason = f"{client} has {self._site.limits.transactions_max} transactions open: the limit"
        return Ready([(client_hop(client), StepEnded(tx, committed=False, reason=reason))], [])

    def _number(self, client: str, tx: str) -> int:
        check_name(tx, client, self._site.joined_guest(client).incarnation)
        return int(tx.rpartition("/")[2])
