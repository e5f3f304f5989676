"""Whether a plan can be carried out, and which of its steps a broker must wait for; pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.matching.boxes import contains
from broker.protocol.hops import Hop, is_client
from broker.protocol.stx import Before, Planned
from broker.routing.state import BrokerState
from broker.transactions.stx.execution import Execution


def fault_in(state: BrokerState, execution: Execution, planned: Planned, before: list[Before]) -> str:
    """What is wrong with a step, or with what is nested in it, in order; empty: nothing.

    `before` grows by the advertisements that were seen, the plan's lives by the clients that it asks.
    """
    kind, lives = planned.kind, execution.lives
    claim = state.crt.first(planned.target) if kind == "tcm" else None
    if claim is not None:
        lives.setdefault(planned.target, claim.incarnation)
    elif kind == "tcm":
        return f"there is no client {planned.target}"
    for client in (planned.client, planned.target) if kind == "tcm" else (planned.client,):
        if hop_in(state, execution, client) is None:
            return f"participant {client} is gone"
    if kind == "pub" and not _may_publish(state, execution, planned, before):
        return f"{planned.event} is outside what {planned.client} advertises"
    if kind == "adv":
        before.append(Before(planned.step, kind, planned.client, planned.filter))
    for nested in planned.nested:
        fault = fault_in(state, execution, nested, before)
        if fault:
            return fault
    return ""


def hop_in(state: BrokerState, execution: Execution, client: str) -> Hop | None:
    """Where a client of a plan lies; None: it is gone, though another one may have come back with its id."""
    return state.crt.hop_of(client, execution.lives.get(client, 0))


def _may_publish(
    state: BrokerState, execution: Execution, planned: Planned, before: Iterable[Before]
) -> bool:
    hop = hop_in(state, execution, planned.client)
    assert hop is not None
    assert planned.event is not None
    own = (b.filter for b in before if b.kind == "adv" and b.client == planned.client)
    if any(filter_ is not None and contains(filter_, planned.event) for filter_ in own):
        return True
    return state.routing.srt.admits(planned.client, hop, planned.event)


def waits(state: BrokerState, execution: Execution, planned: Planned | None, before: Before) -> bool:
    """Whether a step (None: the question for votes, or the commit) has to wait for an earlier one.

    It has to if the earlier one will still reach this broker: by the same test by which the neighbour
    on its way decides whether to send it here. And a publication of a client of ours waits until its
    advertisement has gone round, because only then all that it attracts is here.
    """
    client, kind, hop = before.client, before.kind, hop_in(state, execution, before.client)
    is_ours = hop is not None and is_client(hop)
    if before.step in execution.processed:
        return (
            kind == "adv"
            and planned is not None
            and is_ours
            and planned.kind in ("pub", "tcm")
            and planned.client == client
            and before.step not in execution.echoed
        )
    if hop is None:
        return False  # it is gone, and what it has sent has come
    if is_ours or kind in ("adv", "uadv"):
        return True
    if kind in ("sub", "usub"):
        assert before.filter is not None
        return state.routing.srt.wants_beyond(hop, before.filter)
    return False
