"""A repetition from ready to the last word: what coordinators are told, what they tell, what brokers are asked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from labctl.experiment import client_processes
from labctl.experiment.client_processes import Instructions, OutputLine, TransactionLine
from labctl.faults.plan import FaultPlan
from labctl.overlay import launch
from labctl.results import layout
from labctl.results.documents import write_json
from labctl.retry import look_until
from labctl.run.crew import Crew, CrewError, StartedClient
from labctl.run.faulting import Faulting

READY_S = 60.0
"""For all clients to be ready."""
SILENCE_S = 60.0
"""Longest time without news of a coordinator."""
END_S = 30.0
"""For the last words, and for everybody to leave."""
REST_S = 3.0
"""For brokers to come to rest when all transactions are over."""
RETURN_S = 10.0
"""For a broker that was started again to answer."""
POLL_S = 0.25
RATE_WINDOW = 20
"""The latest transactions, whose latency and rate the live view shows."""


class Progress(Struct, frozen=True):
    phase: str
    done: int = 0
    total: int = 0
    rate: float | None = None
    """Transactions per second, lately."""
    latency_ms: float | None = None


Traffic = dict[str, int | None]
Watch = Callable[[Progress], None]


class RepetitionPlay:
    """From ready to the last word."""

    def __init__(
        self,
        crew: Crew,
        given: Instructions,
        addresses: dict[str, str],
        watch: Watch,
        plan: FaultPlan | None = None,
        ends_at_fault: bool = False,
    ) -> None:
        self._crew = crew
        self.given = given
        self._ends_at_fault = ends_at_fault
        self._addresses = addresses
        self._watch = watch
        self._points: dict[str, set[str]] = {}
        self._ended: list[tuple[float, float | None]] = []
        """When transactions ended, and their latency."""
        self._final: list[TransactionLine] = []
        self._summaries: dict[str, dict[str, Any]] = {}
        self._is_stopped = False
        self._total = 0 if plan else (given.transactions + given.warm_up) * given.cell.copies
        self.faulting = None if plan is None else Faulting(plan, crew.folder, crew.struck)
        self.messages: dict[str, Traffic] = {}
        self.counting_s = 0.0

    def run(self) -> list[TransactionLine]:
        self._watch(Progress("waiting for clients"))
        self._reach("ready", READY_S)
        if self.given.warm_up:
            self._go()
            self._reach("warm", SILENCE_S)
        before = self._count()
        began = time.monotonic()
        if self.faulting is None:
            self._go()
        else:
            self._disturb(self.faulting)
        self._reach("counted", SILENCE_S)
        self.counting_s = time.monotonic() - began
        after = self._count()
        if self.faulting is None or not self.faulting.plan.restarts("broker"):  # a new process counts anew
            self.messages = {
                name: _minus(seen, before[name]) for name, seen in after.items() if name in before
            }
        self._watch(Progress("collecting", self._total, self._total))
        self._keep_tables()
        self._go()
        self._finish()
        if self.faulting is not None:
            self._final = [self.faulting.excused(record) for record in self._final]
        return sorted(self._final, key=lambda record: (record.copy, record.number))

    def _go(self) -> None:
        for member in self._crew.coordinators:
            member.tell("go")

    def _disturb(self, faulting: Faulting) -> None:
        """As many transactions as there are while faults happen, until all of these are over."""
        self._crew.arm(faulting.plan)
        faulting.begin(self._crew.release())
        self._go()
        self._until(lambda: faulting.is_over, SILENCE_S, "faults")
        self._wind_up()

    def _wind_up(self) -> None:
        for member in self._crew.coordinators:
            member.tell("stop")

    def _reach(self, point: str, silence_s: float) -> None:
        """Until every coordinator has come there."""
        self._until(
            lambda: len(self._points.get(point, ())) == len(self._crew.coordinators), silence_s, point
        )

    def _finish(self) -> None:
        self._until(lambda: len(self._summaries) == len(self._crew.coordinators), END_S, "its last word")
        self._crew.wait(END_S)
        if self.faulting is not None:
            self.faulting.keep()

    def _until(self, reached: Callable[[], bool], silence_s: float, what: str) -> None:
        deadline = time.monotonic() + silence_s
        while not reached():
            for member, line in self._crew.news(POLL_S):
                self._take(member, line)
                deadline = time.monotonic() + silence_s
            self._crew.check()
            if time.monotonic() > deadline:
                raise CrewError(
                    f"no news for {silence_s:g} s while waiting for {what!r} of {self._awaited(what)} "
                    f"(logs: {self._crew.folder / 'nodes'})"
                )

    def _awaited(self, point: str) -> str:
        there = self._points.get(point, set())
        return ", ".join(m.client.name for m in self._crew.coordinators if m.client.name not in there)

    def _take(self, member: StartedClient, line: OutputLine) -> None:
        if line.summary is not None:
            self._summaries[member.client.name] = line.summary
        elif line.event == "transaction":
            self._note(line)
        elif line.event:
            self._points.setdefault(line.event, set()).add(member.client.name)
        elif line.transaction is not None:
            self._final.append(client_processes.record(line, self.given, member.client))

    def _note(self, line: OutputLine) -> None:
        self._ended.append((time.monotonic(), line.latency_ms))
        if line.wrong and self._ends_at_fault and not self._is_stopped:
            self._is_stopped = True
            self._wind_up()
        self._watch(
            Progress("running", len(self._ended), self._total, *_recently(self._ended[-RATE_WINDOW:]))
        )

    @property
    def counted(self) -> int:
        """Transactions of the coordinator that has most."""
        return max(Counter(record.copy for record in self._final if not record.warm_up).values(), default=0)

    def _count(self) -> dict[str, Traffic]:
        counted: dict[str, Traffic] = {}
        for broker, answer in self._ask().items():
            counted |= client_processes.counted(broker, answer)
        return counted

    def _keep_tables(self) -> None:
        """While all clients are there: afterwards nothing could be said about how events would be routed.

        Brokers forget a transaction a moment after its coordinator knows its outcome. What is still there after a
        while was left behind, and is kept for the checks to find.
        """
        answers = look_until(
            lambda seen: not any(_is_open(answer) for answer in seen.values()),
            lambda: self._ask(dump=True),
            REST_S,
            launch.POLL_S,
        )
        for broker, answer in answers.items():
            write_json(self._crew.folder / layout.TABLES / f"{broker}.json", answer)

    def _ask(self, dump: bool = False) -> dict[str, launch.Document]:
        """All brokers; one that was just started again may need a moment."""
        answers = look_until(
            lambda seen: all(isinstance(answer, dict) for answer in seen.values()),
            lambda: self._crew.observer.ask(self._addresses, dump=dump),
            0.0 if self.faulting is None else RETURN_S,
            launch.POLL_S,
        )
        found: dict[str, launch.Document] = {}
        for broker, answer in answers.items():
            if isinstance(answer, str):
                raise CrewError(f"broker {broker} does not answer: {answer}")
            found[broker] = answer
        return found


def _recently(ended: list[tuple[float, float | None]]) -> tuple[float | None, float | None]:
    """Rate and mean latency."""
    known = [latency for _, latency in ended if latency is not None]
    span_s = ended[-1][0] - ended[0][0]
    rate = (len(ended) - 1) / span_s if span_s > 0 else None
    return rate, sum(known) / len(known) if known else None


def _minus(after: Traffic, before: Traffic) -> Traffic:
    return {name: None if value is None else value - (before[name] or 0) for name, value in after.items()}


def _is_open(answer: launch.Document) -> bool:
    """What has committed everywhere is told to all a moment later: until then a record of it may carry its tag."""
    return any(answer["open"].values()) or answer["counts"]["retiring"] > 0
