"""Regular events beside transactions: the generator that sends them, and the meter that counts them.

Closed loop: so many events are on their way to each agent, and the next leaves when the agents have told that
some have arrived. Open loop: each has a time at which it is to leave, whatever the overlay does; what is
measured counts from that time. What an agent has to know about the sender's state stands in the event itself,
so that no clocks are compared: whether a transaction was under way, and how late the sender was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from broker.protocol.filters import Event
from client.core.port import Future, resolve
from client.scenarios.stage import Load, Stage

REGULAR = "regular"
"""Instances of this name are handed over before the scenario begins; the events are steps of theirs."""
IN_FLIGHT = 500
"""Events on their way to one agent, in the closed loop."""
TOLD_EVERY = 50
"""An agent tells of each so many events that it has got."""
TURN = 64
"""Events in a row before the open loop looks at the clock again."""


def is_regular(event: Event) -> bool:
    return str(event.get("instance", "")).startswith(REGULAR)


class Generator:
    """Sends to all agents in turn; says `measured` after a first round, `mark` after each other one."""

    def __init__(
        self, plan: Load, templates: Mapping[str, Mapping[str, Any]], tell: Callable[[str], None]
    ) -> None:
        """`templates`: what an event to each agent looks like."""
        self._plan = plan
        self._templates = [(agent, dict(template)) for agent, template in templates.items()]
        self._tell = tell
        self._sent = dict.fromkeys(templates, 0)
        self._arrived = dict.fromkeys(templates, 0)
        self._room: Future | None = None
        self._busy = 0
        self._is_playing = False
        self._round = 1
        self._quiet = 0
        """Events of this round that were sent while no transaction was under way."""
        self._due: dict[tuple[str, int], float] = {}
        self.capacity = 0.0
        """Events per second that the closed loop has reached."""
        self.samples: list[dict[str, Any]] = []
        """Latency of the events that were told of, from the time at which they were to leave."""

    # What it is told

    def arrived(self, agent: str, count: int, now: float) -> None:
        self._arrived[agent] = max(self._arrived[agent], count)
        due = self._due.pop((agent, count), None)
        if due is not None:
            self.samples.append({"agent": agent, "due_s": due, "latency_ms": round((now - due) * 1e3, 3)})
        resolve(self._room)

    def order(self, what: str, stage: Stage) -> None:
        if what == "measure":
            stage.port.spawn(self._measure(stage))
        elif what == "play":
            self._is_playing = True
            stage.port.spawn(self._play(stage))
        elif what == "stop":
            self._is_playing = False
            resolve(self._room)
        else:
            self._busy = int(what == "busy")
            self._quiet = 0

    # What it does

    async def _measure(self, stage: Stage) -> None:
        """How many a closed loop gets through; the first tenth is for warming up."""
        warm = self._plan.events // 10
        for _ in range(warm):
            await self._closed(stage, 0)
        began = stage.clock()
        for _ in range(self._plan.events):
            await self._closed(stage, 0)
        self.capacity = self._plan.events / max(1e-9, stage.clock() - began)
        self._tell("measured")

    async def _play(self, stage: Stage) -> None:
        """Until it is told to stop: also while the last transactions are under way."""
        if self._plan.load == "open":
            await self._play_open(stage)
        else:
            while self._is_playing:
                await self._closed(stage, self._round)
                self._mark()
        self._tell("stopped")

    def _mark(self) -> None:
        """Only events without a transaction beside them make a round: otherwise slow ones would leave none."""
        self._quiet += not self._busy
        if self._quiet == self._plan.events:
            self._quiet = 0
            self._round += 1
            self._tell("mark")

    async def _closed(self, stage: Stage, round_: int) -> None:
        agent, _ = self._next()
        while self._sent[agent] - self._arrived[agent] >= IN_FLIGHT and (self._is_playing or not round_):
            self._room = stage.port.future()
            await self._room
        await self._send(stage, round_, stage.clock(), 0.0)

    async def _play_open(self, stage: Stage) -> None:
        gap_s = 1.0 / (self.capacity * self._plan.open_share)
        began, number = stage.clock(), 0
        while self._is_playing:
            now = stage.clock()
            for _ in range(TURN):
                due = began + number * gap_s
                if due > now:
                    break
                await self._send(stage, self._round, due, (now - due) * 1e3)
                number += 1
                self._mark()
            await stage.sleep(max(0.0, began + number * gap_s - stage.clock()))

    def _next(self) -> tuple[str, dict[str, Any]]:
        return self._templates[sum(self._sent.values()) % len(self._templates)]

    async def _send(self, stage: Stage, round_: int, due: float, lag_ms: float) -> None:
        agent, template = self._next()
        self._sent[agent] += 1
        count = self._sent[agent]
        if round_ and count % TOLD_EVERY == 0:
            self._due[agent, count] = due
        await stage.session.publish(
            {**template, "step": count, "round": round_, "busy": self._busy, "lag_ms": round(lag_ms, 3)}
        )


class Meter:
    """Counts what arrives at an agent, by windows of time; the round that measures capacity is left out."""

    def __init__(self, agent: str, window_ms: float) -> None:
        self._agent = agent
        self._window_s = window_ms / 1e3
        self._began: float | None = None
        self._counts: list[int] = []
        self._busy: list[bool] = []
        self._lags: list[list[float]] = []

    def add(self, event: Event, now: float) -> None:
        if not event["round"]:
            return
        if self._began is None:
            self._began = now
        place = int((now - self._began) / self._window_s)
        while len(self._counts) <= place:
            # A window in which nothing arrives belongs to what was going on before it.
            self._busy.append(bool(self._counts) and self._busy[-1] and len(self._counts) < place)
            self._counts.append(0)
            self._lags.append([])
        self._counts[place] += 1
        self._busy[place] = self._busy[place] or bool(event["busy"])
        self._lags[place].append(float(event["lag_ms"]))

    def lines(self) -> list[dict[str, Any]]:
        """All windows but the last, which is not whole."""
        began = self._began or 0.0
        return [
            {
                "agent": self._agent,
                "window": place,
                "start_s": began + place * self._window_s,
                "events": count,
                "transaction": self._busy[place],
                "send_lag_ms": _p99(self._lags[place]),
            }
            for place, count in enumerate(self._counts[:-1])
        ]


def _p99(values: list[float]) -> float | None:
    return sorted(values)[ceil(0.99 * len(values)) - 1] if values else None
