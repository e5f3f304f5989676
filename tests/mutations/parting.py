"""Planted faults in what happens when clients go, and when two of them want one id."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.hops import Hop
from broker.routing.ready import Ready
from broker.routing.tables import Routing
from broker.transactions.dtx.machine import Dtx
from broker.transactions.stx.machine import Stx
from tests.mutations.patching import replace


def voids_stop_on_their_way_to_the_coordinator(patch: pytest.MonkeyPatch) -> None:
    """S-TX (H12): a broker that has committed passes on that steps will not come, towards its coordinator as well."""

    def void(original: Any, self: Stx, source: Hop, message: Any) -> Ready:
        execution = self.open.get(message.tx)
        if execution is None or execution.status != "committed":
            answer: Ready = original(self, source, message)
            return answer
        origin, execution.origin = execution.origin, ""
        answer = original(self, source, message)
        execution.origin = origin
        return answer

    replace(patch, Stx, "_void", void)


def who_was_asked_may_go(patch: pytest.MonkeyPatch) -> None:
    """D-TX, section 7: a participant that was asked and is gone before the vote spoils the transaction."""

    def client_left(original: Any, self: Dtx, client: str) -> Ready:
        for context in self.contexts.values():
            context.asked.discard(client)
        answer: Ready = original(self, client)
        return answer

    replace(patch, Dtx, "client_left", client_left)


def who_has_sent_its_steps_may_go(patch: pytest.MonkeyPatch) -> None:
    """S-TX safe, section 7: a participant that is gone before the vote spoils the plan, also if it owes nothing."""

    def client_left(original: Any, self: Stx, client: str) -> Ready:
        for execution in self.open.values():
            is_participant = execution.status == "active" and execution.coordinator != client
            if is_participant and not execution.owed.get(client):
                execution.owed.pop(client, None)
        answer: Ready = original(self, client)
        return answer

    replace(patch, Stx, "client_left", client_left)


def who_is_refused_takes_the_records_of_the_accepted_one(patch: pytest.MonkeyPatch) -> None:
    """Joining: a claim that was refused has no records."""

    def remove_client(original: Any, self: Routing, client: str, incarnation: int, origin: Hop) -> None:
        original(self, client, *self._lives.get(client, (incarnation, origin)))

    replace(patch, Routing, "remove_client", remove_client)
