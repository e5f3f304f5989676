"""Transactions as a program sees them: blocks, outcomes, handlers, time-outs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.protocol.dtx import Abort, Begun, Commit, Ended, Prepared, TxAck
from broker.protocol.filters import Event, Filter, Value, make_filter
from broker.protocol.stx import StepAbort, StepCommit, StepEnded
from broker.protocol.wire import AnyMessage
from client import Frame, Outcome, OutcomeUnknown, Plan, PlanError, Tcm, TransactionAborted
from client.core.advertised import Advertised
from client.core.plans import PlannedTransaction, Plans
from client.core.transactions import Transactions
from labctl.simulate.clients import SimClient
from labctl.simulate.tasks import SimFuture, Task
from labctl.simulate.world import World

DATA = {"space": "data"}


def a_pair(on_tcm: Callable[[SimClient, Tcm, Frame], Coroutine[Any, Any, None]]) -> tuple[World, SimClient]:
    """E may ask A anything and publish; A is subscribed to what it is asked, and to what is published."""
    world = World([("b1", "b2")], seed=1)
    engine, agent = world.connect("E", "b1"), world.connect("A", "b2", on_tcm)

    async def introduce() -> None:
        await engine.advertise(DATA)
        await engine.advertise({"space": "control"})
        await agent.subscribe({"space": "control"})
        await engine.settled()

    world.run()
    world.complete(introduce())
    return world, engine


async def joins(_client: SimClient, _tcm: Tcm, frame: Frame) -> None:
    await frame.subscribe(DATA)


def events(world: World) -> list[Event]:
    return [delivery.event for delivery, _ in world.clients["A"].deliveries]


@pytest.mark.parametrize("protocol", ["d-tx", "d-tx-optimistic", "d-tx-ni"])
def test_what_a_handler_does_is_part_of_the_transaction(protocol: str) -> None:
    world, engine = a_pair(joins)

    async def work() -> Outcome | None:
        async with engine.transaction(protocol) as tx:
            assert await tx.tcm({"space": "control"}, b"go on") == 1
            assert await tx.publish({**DATA, "n": 1}) == 1
            assert events(world) == [], "nothing is delivered before the commit"
        outcome: Outcome | None = tx.outcome
        return outcome

    assert world.complete(work()) == Outcome("committed")
    assert events(world) == [{**DATA, "n": 1}]


@pytest.mark.parametrize("protocol", ["s-tx", "s-tx-safe"])
def test_a_plan_is_carried_out_at_the_end_of_its_block(protocol: str) -> None:
    world, engine = a_pair(joins)

    async def work() -> Outcome | None:
        async with engine.transaction(protocol) as plan:
            assert isinstance(plan, PlannedTransaction)
            plan.tcm("A").subscribe(DATA)
            plan.publish({**DATA, "n": 1})
            assert events(world) == []
        return plan.outcome

    assert world.complete(work()) == Outcome("committed")
    assert events(world) == [{**DATA, "n": 1}]


@pytest.mark.parametrize("protocol", ["d-tx", "d-tx-ni", "s-tx", "s-tx-safe"])
def test_a_block_that_raises_does_nothing(protocol: str) -> None:
    world, engine = a_pair(joins)

    async def work() -> None:
        async with engine.transaction(protocol) as tx:
            answer = tx.publish({**DATA, "n": 1})
            if answer is not None:
                await answer
            raise LookupError("no such agent")

    with pytest.raises(LookupError):
        world.complete(work())
    assert events(world) == []
    assert not any(broker.has_open_transactions for broker in world.brokers.values())


def test_a_handler_that_raises_aborts_with_its_reason() -> None:
    async def refuses(_client: SimClient, _tcm: Tcm, _frame: Frame) -> None:
        raise LookupError("I am full")

    world, engine = a_pair(refuses)

    async def work() -> None:
        async with engine.transaction("d-tx") as tx:
            await tx.tcm({"space": "control"})

    with pytest.raises(TransactionAborted, match="A: I am full"):
        world.complete(work())


def test_an_abort_in_the_block_is_raised_at_its_end() -> None:
    world, engine = a_pair(joins)

    async def work() -> None:
        async with engine.transaction("d-tx") as tx:
            await tx.abort("by choice")

    with pytest.raises(TransactionAborted, match="by choice"):
        world.complete(work())


def test_plans_and_protocols_that_cannot_be_are_refused() -> None:
    world, engine = a_pair(joins)

    async def work() -> None:
        async with engine.transaction("s-tx"):
            pass

    with pytest.raises(PlanError, match="empty"):
        world.complete(work())
    with pytest.raises(ValueError, match="no protocol '2pc'; known are d-tx"):
        engine.transaction("2pc")


class Handmade:
    """A port whose time and whose broker are played by the test."""

    def __init__(self) -> None:
        self.sent: list[AnyMessage] = []
        self.timers: dict[Callable[[], None], float] = {}

    def send(self, *messages: AnyMessage) -> None:
        self.sent += messages

    def future(self) -> SimFuture:
        return SimFuture()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        raise AssertionError("nothing to be done beside")

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self.timers[callback] = delay_s
        return Timer(self.timers, callback)

    def let_time_pass(self) -> None:
        for callback in tuple(self.timers):
            callback()


class Timer:
    def __init__(self, timers: dict[Callable[[], None], float], callback: Callable[[], None]) -> None:
        self._timers, self._callback = timers, callback

    def cancel(self) -> None:
        self._timers.pop(self._callback, None)


class AnyWords:
    def filter(self, constraints: Any) -> Filter:
        return make_filter(constraints)

    def event(self, event: Any, payload: bytes) -> tuple[Event, bytes]:
        return dict(event), payload

    def may_publish(self, event: dict[str, Value]) -> bool:
        return True

    """Whatever is published is allowed."""

    def __init__(self) -> None:
        self.advertised = Advertised()


class Bench:
    def __init__(self) -> None:
        self.port = Handmade()
        self.transactions = Transactions(
            "E", self.port, AnyWords(), lambda: 7, lambda *_: None, timeout_s=2.0
        )
        self.plans = Plans(self.transactions)
        self._soon: list[Callable[[], None]] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Task:
        task = Task(work, self._soon.append)
        self.settle()
        return task

    def settle(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def answer(self, *messages: Any) -> None:
        for message in messages:
            manager = self.plans if type(message).__name__.startswith("Step") else self.transactions
            manager.receive(message)
            self.settle()

    def pass_time(self) -> None:
        self.port.let_time_pass()
        self.settle()

    def kinds(self) -> list[type]:
        return [type(message) for message in self.port.sent]


def committing(bench: Bench) -> tuple[Any, Task]:
    """A transaction whose commit has been sent, and not answered."""
    tx = bench.transactions.begin("d-tx")

    async def work() -> None:
        async with tx:
            await tx.publish({"n": 1})

    task = bench.run(work())
    bench.answer(Begun(tx.tx), TxAck(tx.tx, 7, reached=1), Prepared(tx.tx))
    assert bench.kinds()[-1] is Commit
    return tx, task


def test_a_commit_that_is_not_answered_in_time_is_unknown_and_known_later() -> None:
    bench = Bench()
    tx, task = committing(bench)
    assert list(bench.port.timers.values()) == [2.0]
    bench.pass_time()
    assert isinstance(task.error, OutcomeUnknown)
    assert tx.outcome.state == "unknown"
    assert Abort not in bench.kinds(), "a commit is not taken back"
    bench.answer(Ended(tx.tx, committed=True))
    assert tx.outcome == Outcome("committed")
    assert bench.transactions.parts == {}


def test_no_timer_is_left_of_a_transaction_that_has_ended() -> None:
    bench = Bench()
    tx, task = committing(bench)
    bench.answer(Ended(tx.tx, committed=True))
    assert (task.is_done, task.error, bench.port.timers) == (True, None, {})


def test_a_begin_that_is_not_answered_in_time_is_aborted() -> None:
    bench = Bench()
    tx = bench.transactions.begin("d-tx")

    async def work() -> None:
        async with tx:
            raise AssertionError("it has not begun")

    task = bench.run(work())
    bench.pass_time()
    assert isinstance(task.error, TransactionAborted)
    assert bench.kinds()[-1] is Abort


def test_an_abort_that_is_not_answered_in_time_is_an_abort_all_the_same() -> None:
    bench = Bench()
    tx = bench.transactions.begin("d-tx")

    async def work() -> None:
        async with tx:
            raise LookupError

    task = bench.run(work())
    bench.answer(Begun(tx.tx))
    assert bench.kinds()[-1] is Abort
    assert not task.is_done
    bench.pass_time()
    assert isinstance(task.error, LookupError)
    assert tx.outcome is not None
    assert tx.outcome.state == "aborted"


def cancelled_while(wait: SimFuture) -> None:
    wait.set_exception(asyncio.CancelledError())


def test_a_block_that_is_cancelled_aborts_and_does_not_wait() -> None:
    bench = Bench()
    tx = bench.transactions.begin("d-tx")
    pause = SimFuture()

    async def work() -> None:
        async with tx:
            await pause

    task = bench.run(work())
    bench.answer(Begun(tx.tx))
    cancelled_while(pause)
    bench.settle()
    assert isinstance(task.error, asyncio.CancelledError)
    assert bench.kinds()[-1] is Abort
    assert tx.outcome is not None
    assert tx.outcome.state == "aborted"


def test_a_commit_that_is_cancelled_stays_unknown() -> None:
    bench = Bench()
    tx, task = committing(bench)
    cancelled_while(tx._end)
    bench.settle()
    assert isinstance(task.error, asyncio.CancelledError)
    assert tx.outcome.state == "unknown"
    assert Abort not in bench.kinds()


@pytest.mark.parametrize(("safe", "state"), [(False, "unknown"), (True, "aborted")])
def test_a_plan_that_is_not_answered_in_time_is_unknown_once_its_commit_is_out(
    safe: bool, state: str
) -> None:
    bench = Bench()
    plan = Plan()
    plan.publish({"n": 1})
    task = bench.run(bench.plans.execute(plan, safe=safe))
    assert (StepCommit in bench.kinds()) is not safe
    bench.pass_time()
    assert task.result.state == state
    assert bench.kinds()[-1] is StepAbort, "the edge broker knows which was first"
    (tx,) = bench.plans.running
    bench.answer(StepEnded(tx, committed=not safe))
    assert bench.plans.running == {}
