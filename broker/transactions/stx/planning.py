"""Whether a plan can be carried out, and which of its steps a broker must wait for; pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.matching.boxes import contains
from broker.protocol.hops import Hop
from broker.protocol.stx import Before, Planned
from broker.routing.state import BrokerState
from broker.transactions.stx.execution import Execution


def fault_in(state: BrokerState, planned: Planned, before: list[Before]) -> str:
    """What is wrong with a step, or with what is nested in it, in order; empty: nothing.

    `before` grows by the advertisements that were seen.
    """
    kind, hops = planned.kind, state.crt.hops
    hop = hops.get(planned.client)
    if hop is None:
        return f"there is no client {planned.client}"
    if kind == "tcm" and planned.target not in hops:
        return f"there is no client {planned.target}"
    if kind == "pub" and not _may_publish(state, planned, hop, before):
        return f"{planned.event} is outside what {planned.client} advertises"
    if kind == "adv":
        before.append(Before(planned.step, kind, planned.client, planned.filter))
    for nested in planned.nested:
        fault = fault_in(state, nested, before)
        if fault:
            return fault
    return ""


def _may_publish(state: BrokerState, planned: Planned, hop: Hop, before: Iterable[Before]) -> bool:
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
    if before.step in execution.processed:
        return (
            before.kind == "adv"
            and planned is not None
            and before.client in state.guests
            and planned.kind in ("pub", "tcm")
            and planned.client == before.client
            and before.step not in execution.echoed
        )
    client, kind = before.client, before.kind
    hop = state.crt.hops.get(client)
    if hop is None:
        return False  # it is gone, and what it has sent has come
    if client in state.guests or kind in ("adv", "uadv"):
        return True
    if kind in ("sub", "usub"):
        assert before.filter is not None
        return state.routing.srt.wants_beyond(hop, before.filter)
    return False
