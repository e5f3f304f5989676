"""D-TX beside others: other modes, a silent coordinator, regular events, and very many transactions.

The names are those of the holes in docs/protocols.md, section 3.5.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import pytest

from broker.core import Broker
from broker.protocol.vocabulary import PROTOCOLS, Protocol
from client.core.errors import ClientError
from labctl.simulate.programs.programs import Op
from tests.support.scripted import CROSSING_S, Script, Started, adv, ask, line, pub, sub, uadv, usub

LINE = line("b1", "b2", "b3")
DYNAMIC = ("d-tx", "d-tx-optimistic", "d-tx-ni")
BOUND_S = 2.0
"""What a silent transaction may cost another one."""


def on(space: str, op: Op) -> Op:
    """The same on a space of its own."""
    return Op(op.kind, space, op.values)


def committed(script: Script, started: list[Started]) -> int:
    return sum(script.outcome(one) == "committed" for one in started)


@pytest.mark.parametrize("other", ["d-tx", "d-tx-optimistic", "d-tx-ni", "s-tx", "s-tx-safe"])
def test_h17_d_tx_commits_beside_any_other_protocol_on_another_space(other: Protocol) -> None:
    script = Script(LINE, {"c1": "b1", "c2": "b1", "c3": "b3", "c4": "b3"})
    for client, space in (("c1", "d"), ("c3", "e")):
        script.regular(client, on(space, adv(0)))
    plain, beside = [], []
    for number in range(20):
        start = 20.0 + 7.3 * number
        plain.append(script.transaction("c1", "d-tx", ask("c2", on("d", sub(0))), on("d", pub(0)), at=start))
        beside.append(
            script.transaction("c3", other, ask("c4", on("e", sub(0))), on("e", pub(0)), at=start + 3)
        )
    script.run()
    assert script.faults() == []
    assert (committed(script, plain), committed(script, beside)) == (20, 20)


def test_h17_what_interferes_with_a_later_one_that_has_voted_is_still_late() -> None:
    script = Script((), {"c0": "b0", "c1": "b0"}, [("c0", adv(0, 1)), ("c1", adv(0, 1))])
    script.slow({"c0>b0": 5}, at=2)
    first = script.transaction("c0", "d-tx", pub(0), sub(1))
    second = script.transaction("c1", "d-tx-optimistic", pub(1), sub(0))
    script.run()
    assert script.faults() == []
    assert (script.outcome(first), script.outcome(second)) == ("aborted", "committed")
    assert "too late" in script.reason(first)


def beside_a_silent_one(*body: Op, silent_at: float) -> tuple[Script, Started, list[Started]]:
    """From a moment on nothing comes of the first transaction; others follow, on the same space."""
    script = Script(LINE, {"c0": "b1", "c1": "b2", "c2": "b3"}, [("c0", adv(0, 1)), ("c2", adv(0))])
    script.slow({"c0>b1": 1e6}, at=silent_at)
    silent = script.transaction("c0", "d-tx", *body)
    others = [
        script.transaction(client, "d-tx", ask("c1", sub(1)), at=30 + 100 * place)
        for place, client in enumerate(("c2", "c1", "c2", "c1"))
    ]
    script.run()
    return script, silent, others


@pytest.mark.parametrize(
    ("body", "silent_at"),
    [((), 0.5), ((pub(0),), 0.5), ((ask("c1", pub(0)),), 7.5), ((sub(1),), 7.5)],
    ids=["after begin", "before an operation", "after a request", "after a change"],
)
def test_h18_nobody_waits_long_for_a_transaction_that_is_silent(
    body: tuple[Op, ...], silent_at: float
) -> None:
    script, _, others = beside_a_silent_one(*body, silent_at=silent_at)
    assert committed(script, others) == len(others)
    assert max(one.ended - one.began for one in others) * CROSSING_S < BOUND_S


def test_h18_a_coordinator_that_knows_the_votes_and_is_silent_is_aborted_for() -> None:
    """It has subscribed to what the others publish: nobody can say how it goes on before it is decided."""
    script = Script(LINE, {"c0": "b1", "c1": "b2", "c2": "b3"}, [("c2", adv(0))])
    script.slow({"c0>b1": 1e5}, at=13)  # it has asked for the votes
    silent = script.transaction("c0", "d-tx", sub(0))
    others = [script.transaction("c2", "d-tx", pub(0), at=40 + 50 * place) for place in range(3)]
    script.run()
    assert script.faults() == []
    assert script.outcome(silent) == "aborted"
    assert "did not decide" in script.reason(silent)
    assert committed(script, others) == 3
    assert max(one.ended - one.began for one in others) * CROSSING_S < BOUND_S


def test_a_lifetime_that_no_broker_gives_is_refused_with_the_limit() -> None:
    script = Script((), {"c0": "b0"})
    client = script.world.clients["c0"]
    transaction = client.transactions.begin("d-tx", lifetime_s=3600)

    async def attempt() -> None:
        async with transaction:
            pass

    client.spawn(_swallowed(attempt()))
    script.run()
    told = script.history.transactions[transaction.tx]
    assert (told.outcome, told.reason) == (
        "aborted",
        "a lifetime of 3600000 ms; the limit is 60000 (lifetime_ms_max)",
    )
    assert script.residue() == []


def test_a_begin_that_is_given_up_while_it_is_being_refused_costs_nobody_its_session() -> None:
    """The abort and the refusal cross; the broker has nothing of it any more, and never had."""
    script = Script((), {"c0": "b0"})
    client = script.world.clients["c0"]
    client.wait_at_most(1.5 * CROSSING_S)
    transaction = client.transactions.begin("d-tx", lifetime_s=3600)
    script.world.spawn(_swallowed(transaction.__aenter__()))
    script.run()
    assert script.faults() == []
    assert transaction.outcome is not None
    assert "it could not begin within" in transaction.outcome.reason


async def _swallowed(work: Coroutine[Any, Any, object]) -> None:
    with suppress(ClientError):
        await work


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_h19_an_event_that_crosses_a_commit_reaches_the_old_or_the_new_owner(protocol: Protocol) -> None:
    """The publisher's broker learns of the commit last: until then it knows nothing of the new owner."""
    homes = {"C": "b2", "D": "b2", "A": "b3", "E": "b1"}
    script = Script((("b0", "b1"), ("b0", "b2"), ("b0", "b3")), homes, [("E", adv(0)), ("D", sub(0))])
    move = script.transaction("C", protocol, ask("A", sub(0)), ask("D", usub(0)))
    script.slow({"b0>b1": 40}, at=30 if protocol in DYNAMIC else 8)
    for time in range(1, 160):
        script.regular("E", pub(0), at=time)
    script.run()
    assert script.outcome(move) == "committed"
    assert script.faults() == []
    events = {op.op for op in script.history.regular["E"]}
    reached = {d.op for d in script.history.deliveries if d.client in ("A", "D")}
    assert events <= reached
    assert script.reaches("E", 0) == {"A"}


@pytest.mark.parametrize("at", range(9, 17))
def test_what_is_advertised_beside_a_transaction_may_be_published(at: float) -> None:
    """Its broker has voted, and a later transaction has committed: what the client says then is the newer one."""
    script = Script((), {"c1": "b0", "c2": "b0"}, [("c1", adv(0))])
    script.slow({"b0>c1": 12}, at=4.5)  # the votes
    started = script.transaction("c1", "d-tx", uadv(0))
    script.transaction("c2", "d-tx-optimistic", on("e", sub(1)), at=1)
    script.regular("c1", adv(0), at=at)
    script.run()
    assert script.outcome(started) == "committed"
    assert script.world.clients["c1"]._session.space.contains({"s": "d", "x": 0})
    assert script.faults() == []


def sizes(broker: Broker) -> tuple[int, int]:
    return len(broker.routing.srt), len(broker.routing.prt)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_h20_tables_do_not_grow_with_transactions_that_undo_each_other(protocol: Protocol) -> None:
    script = Script(LINE, {"E": "b1", "D": "b2", "A": "b3"}, [("E", adv(0, 1)), ("D", sub(0, 1))])
    before = {name: sizes(broker) for name, broker in script.world.brokers.items()}
    there = ask("D", ask("A", sub(0)), usub(0)), pub(0)
    back = ask("A", ask("D", sub(0)), usub(0)), pub(0)
    for pair in range(40):
        script.transaction("E", protocol, *there, at=400.0 * pair)
        script.transaction("E", protocol, *back, at=400.0 * pair + 200)
    script.run()
    assert script.faults() == []
    assert {name: sizes(broker) for name, broker in script.world.brokers.items()} == before
    assert [script.got("A"), script.got("D")] == [[0] * 40, [0] * 40]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_h20_tables_shrink_although_transactions_never_pause(protocol: Protocol) -> None:
    """There is always one open: another client's, whose reach is long."""
    homes = {"E": "b1", "D": "b2", "A": "b3", "F": "b1", "G": "b3"}
    script = Script(LINE, homes, [("E", adv(0, 1)), ("D", sub(0, 1))])
    before = {name: sizes(broker) for name, broker in script.world.brokers.items()}
    script.slow({"G>b3": 300})
    largest = 0
    for pair in range(30):
        script.transaction("E", protocol, ask("D", ask("A", sub(0)), usub(0)), at=600.0 * pair)
        script.transaction("E", protocol, ask("A", ask("D", sub(0)), usub(0)), at=600.0 * pair + 300)
        for part in range(3):
            script.transaction("F", protocol, ask("G", Op("adv", "e", (part,))), at=600.0 * pair + 200 * part)

    def look() -> None:
        nonlocal largest
        open_ = [bool(broker.transactions) for broker in script.world.brokers.values()]
        largest = (
            max(largest, *(len(b.routing.prt) for b in script.world.brokers.values()))
            if all(open_)
            else largest
        )

    for time in range(6000, 18000, 50):
        script.world.at(script.start + time * CROSSING_S, look)
    script.run()
    assert script.faults() == []
    assert largest > 0
    assert largest <= max(prt for _, prt in before.values()) + 16
    after = {name: prt for name, (_, prt) in ((n, sizes(b)) for n, b in script.world.brokers.items())}
    assert after == {name: prt for name, (_, prt) in before.items()}
