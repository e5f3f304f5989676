"""The two kinds of role: members do what they are asked, one coordinator asks.

Before the first transaction everybody introduces itself, waits until that holds at every broker, and
tells the coordinator; it begins when all have. At the end it asks everybody for a last word: links are
FIFO, so whoever got a publication that was not for it has said so by then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from broker.protocol.events import FINISHED, STARTED
from broker.protocol.filters import Event
from client.core.errors import ClientError, OutcomeUnknown, TransactionAborted
from client.core.frames import Frame, Tcm
from client.core.plans import Plan
from client.core.port import Future, resolve
from client.core.session import Delivery
from client.scenarios import catalogue
from client.scenarios.approaches import approach_of
from client.scenarios.attempts import Attempt, CoordinatorReport
from client.scenarios.stage import Cast, Options, ScenarioError, Stage, instance_of, told

READY_S = 0.1
"""Between two calls of a member that has not been answered."""


class Role(ABC):
    def __init__(self, name: str, cast: Cast, options: Options) -> None:
        self.name = name
        self.cast = cast
        self.options = options
        self.errors: list[str] = []
        self._stage: Stage | None = None

    @property
    def stage(self) -> Stage:
        assert self._stage is not None, "a role is given its stage when it is run"
        return self._stage

    # What the shell calls

    def deliver(self, delivery: Delivery) -> None:
        """A publication has arrived."""
        self.take(str(delivery.event["space"]), delivery.event)

    async def on_tcm(self, tcm: Tcm, frame: Frame) -> None:  # noqa: B027 (most roles are never asked)
        """A control message of a D-TX transaction."""

    @abstractmethod
    async def run(self, stage: Stage) -> CoordinatorReport | None:
        """Play it to the end."""

    def close(self) -> None:  # noqa: B027 (most roles have nothing left to say)
        """The session is over: write down what is left to say."""

    # What a scenario fills in

    @abstractmethod
    async def introduce(self) -> None:
        """Advertise and subscribe what the role needs."""

    @abstractmethod
    def take(self, space: str, event: Event) -> None:
        """A publication of the scenario has arrived."""

    def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Beside everything else; what goes wrong is told at the end."""
        self.stage.port.spawn(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - somebody's own scenario may raise anything, and it must be told
            self.errors.append(f"{self.name}: {told(error)}")

    async def say(self, space: str, to: str, **rest: Any) -> None:
        await self.stage.session.publish(self.cast.in_(space, to=to, **rest))

    async def _begin(self, stage: Stage) -> None:
        """After this, what `introduce` has said holds at every broker."""
        self._stage = stage
        await self.introduce()
        await stage.session.settled()


class Member(Role):
    def __init__(self, name: str, cast: Cast, options: Options) -> None:
        super().__init__(name, cast, options)
        self._orders: dict[str, Future] = {}

    async def run(self, stage: Stage) -> None:
        """Until the coordinator says stop."""
        session, cast = stage.session, self.cast
        self._orders = {"go": stage.port.future(), "stop": stage.port.future()}
        await session.advertise(cast.in_("ready", to=cast.coordinator))
        await session.advertise(cast.in_("ack", to=cast.coordinator))
        await session.subscribe(cast.in_("order", to=self.name))
        await self._begin(stage)
        deadline = stage.clock() + self.options.ready_s
        while not self._orders["go"].done():
            if stage.clock() > deadline:
                raise ScenarioError(f"{cast.coordinator} has not begun within {self.options.ready_s:g} s")
            await self._say_ready("back" if self.options.returns else "ready")
            await stage.sleep(READY_S)
        if await self._orders["stop"] == "finished":
            session.note(FINISHED)
        await self._say_ready("done")
        if self.errors:
            raise ScenarioError("; ".join(self.errors))

    def deliver(self, delivery: Delivery) -> None:
        if delivery.event["space"] == "order":
            what = str(delivery.event["what"])
            if what == "go":  # not before: until then the coordinator's own subscriptions may hold nowhere
                self.stage.session.note(STARTED)
            resolve(self._orders.get(what), delivery.event["state"])
        else:
            super().deliver(delivery)

    @property
    def is_playing(self) -> bool:
        """The coordinator has begun."""
        return "go" in self._orders and self._orders["go"].done()

    async def acknowledge(self, instance: str) -> None:
        """Tell the coordinator that a publication has reached us, wanted or not."""
        await self.say("ack", self.cast.coordinator, sender=self.name, instance=instance)

    async def _say_ready(self, what: str) -> None:
        await self.say("ready", self.cast.coordinator, sender=self.name, what=what)


class Coordinator(Role):
    def __init__(self, name: str, cast: Cast, options: Options) -> None:
        super().__init__(name, cast, options)
        self.report = CoordinatorReport(options.approach)
        self._said: dict[str, set[str]] = {"ready": set(), "done": set()}
        self._news: dict[str, Future] = {}
        self._next = 0
        self.at: Callable[[str], Awaitable[None]] = _at_once
        """Is called, and waited for, when the coordinator has come to `ready`, `warm` and `counted`."""
        self.told: Callable[[Attempt], None] = lambda attempt: None
        """Is called when a transaction is over."""
        self._is_winding_up = False

    # What a scenario fills in

    @abstractmethod
    def attempt(self, number: int) -> Attempt:
        """What has to happen in the transaction of this number."""

    @abstractmethod
    async def within(self, frame: Frame, attempt: Attempt) -> None:
        """The coordinator's operations in D-TX."""

    @abstractmethod
    def fill(self, plan: Plan, attempt: Attempt) -> None:
        """Everybody's operations in S-TX."""

    @abstractmethod
    async def by_hand(self, attempt: Attempt) -> None:
        """BL-WAIT: regular operations, and a wait for them to take effect."""

    def take(self, space: str, event: Event) -> None:
        raise ScenarioError(f"{self.name} did not ask for a publication in {space}: {event}")

    # Playing it

    def wind_up(self) -> None:
        """Begin no more transactions; those under way are finished."""
        self._is_winding_up = True

    async def run(self, stage: Stage) -> CoordinatorReport:
        session, cast = stage.session, self.cast
        self._news = {what: stage.port.future() for what in self._said}
        await session.advertise(cast.in_("order"))
        await session.subscribe(cast.in_("ready", to=self.name))
        await session.subscribe(cast.in_("ack", to=self.name))
        await self._begin(stage)
        if not await self._all("ready", self.options.ready_s):
            missing = sorted({*cast.members} - self._said["ready"])
            raise ScenarioError(
                f"not ready within {self.options.ready_s:g} s: {', '.join(missing)}; are they all started?"
            )
        await self.at("ready")
        session.note(STARTED)
        await self._order("go", "started")
        self.report.began = stage.clock()
        if self.options.warm_up:
            await self._work_until(self.options.warm_up)
            await self.at("warm")
        await self._work_until(self.options.transactions)
        self.report.ended = stage.clock()
        await self.at("counted")
        # Only if every outcome is known: what is still under way may yet need everybody.
        state = "finished" if self.report.is_decided else "unfinished"
        if state == "finished":
            session.note(FINISHED)
        await self._order("stop", state)
        self.report.confirmed = await self._all("done", self.options.patience_s)
        if self.errors:
            raise ScenarioError("; ".join(self.errors))
        return self.report

    def deliver(self, delivery: Delivery) -> None:
        event = delivery.event
        space = event["space"]
        if space == "ready":
            what = str(event["what"])
            if what == "back":
                self.do(self.say("order", str(event["sender"]), what="go", state="started"))
                return
            self._said[what].add(str(event["sender"]))
            if self._said[what] >= {*self.cast.members}:
                resolve(self._news[what])
        elif space == "ack":
            self.received(str(event["sender"]), instance_of(event))
        else:
            super().deliver(delivery)

    def received(self, client: str, instance: str) -> None:
        """Somebody has got the publication about an instance."""
        attempt = self.report.of(instance)
        if attempt is not None:
            attempt.receive(client, instance, self.stage.clock())

    async def _work_until(self, last: int) -> None:
        """Exactly `concurrency` at a time, as long as there are so many."""
        workers = [self.stage.port.future() for _ in range(self.options.concurrency)]
        for worker in workers:
            self.do(self._work(worker, last))
        for worker in workers:
            await worker

    async def _work(self, done: Future, last: int) -> None:
        try:
            while self._next < last and not self._is_winding_up:
                self._next += 1
                attempt = self.attempt(self._next)
                await self._transact(attempt)
                self.told(attempt)
        finally:
            resolve(done)

    async def _transact(self, attempt: Attempt) -> None:
        stage = self.stage
        self.report.add(attempt)
        attempt.arrived = stage.port.future()
        attempt.began = stage.clock()
        try:
            await self._carry_out(attempt)
        except TransactionAborted as error:
            attempt.outcome, attempt.reason = "aborted", str(error)
        except OutcomeUnknown as error:
            attempt.outcome, attempt.reason = "unknown", str(error)
        except ClientError:
            raise
        except Exception as error:  # noqa: BLE001 - a mistake in somebody's code is the end of this attempt alone
            attempt.outcome, attempt.reason = "unknown", told(error)
        attempt.ended = stage.clock()
        if attempt.outcome not in ("aborted", "unknown"):
            stage.call_later(self.options.patience_s, lambda: resolve(attempt.arrived))
            await attempt.arrived
        attempt.is_over = True

    async def _carry_out(self, attempt: Attempt) -> None:
        own = catalogue.approach(self.options.approach)
        if own is not None:
            await own.carry_out(self, attempt)
        elif approach_of(self.options.approach).is_transactional:
            await self.as_transaction(attempt, self.options.approach)
        else:
            await self.by_hand(attempt)
            attempt.outcome = "published"

    async def as_transaction(self, attempt: Attempt, protocol: str) -> None:
        """As one transaction of a protocol of the brokers; raises what keeps it from committing."""
        async with self.stage.session.transaction(protocol) as tx:
            try:
                if isinstance(tx, Plan):
                    self.fill(tx, attempt)
                else:
                    await self.within(tx, attempt)
            except ClientError:
                raise
            except Exception as error:
                # A block that raises is aborted, and its history says why.
                raise TransactionAborted(told(error)) from error
        attempt.outcome = "committed"

    async def _order(self, what: str, state: str) -> None:
        for member in self.cast.members:
            await self.say("order", member, what=what, state=state)

    async def _all(self, what: str, limit_s: float) -> bool:
        """Whether everybody has said so in time."""
        news = self._news[what]
        self.stage.call_later(limit_s, lambda: resolve(news))
        await news
        return self._said[what] >= {*self.cast.members}


async def _at_once(point: str) -> None:
    """Nobody wants to be asked."""


class Absent(TransactionAborted):
    """Nobody took a control message."""
