"""Regular events beside transactions: how they are counted, and how they are sent in a closed and an open loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.scenarios.load import IN_FLIGHT, TOLD_EVERY, Generator, Meter, is_regular
from client.scenarios.stage import Load, Stage


def event(round_: int = 1, busy: int = 0, lag_ms: float = 0.0) -> dict[str, Any]:
    return {"instance": "regular.A1", "round": round_, "busy": busy, "lag_ms": lag_ms}


def meter(*arrivals: tuple[float, dict[str, Any]]) -> list[dict[str, Any]]:
    found = Meter("A1", 100.0)
    for now, arrived in arrivals:
        found.add(arrived, now)
    return found.lines()


def test_events_are_counted_by_windows_and_the_last_which_is_not_whole_is_left_out() -> None:
    lines = meter(*((5.0 + 0.03 * n, event()) for n in range(8)))
    assert [line["events"] for line in lines] == [4, 3]
    assert [round(line["start_s"], 3) for line in lines] == [5.0, 5.1]


def test_the_round_that_measures_capacity_does_not_count() -> None:
    assert meter((1.0, event(round_=0)), (1.5, event(round_=0))) == []


def test_a_window_has_a_transaction_if_an_event_was_sent_during_one() -> None:
    lines = meter((0.0, event()), (0.11, event(busy=1)), (0.12, event()), (0.21, event()), (0.35, event()))
    assert [line["transaction"] for line in lines] == [False, True, False]


def test_a_silent_window_belongs_to_the_transaction_before_it() -> None:
    lines = meter((0.0, event(busy=1)), (0.35, event()), (0.45, event()))
    assert [(line["events"], line["transaction"]) for line in lines] == [
        (1, True),
        (0, True),
        (0, True),
        (1, False),
    ]


def test_the_send_lag_of_a_window_is_that_of_its_slowest_hundredth() -> None:
    lines = meter(*((0.0005 * n, event(lag_ms=float(n))) for n in range(100)), (0.15, event()))
    assert lines[0]["send_lag_ms"] == 98.0


def test_regular_events_are_told_from_those_of_transactions() -> None:
    assert is_regular(event())
    assert not is_regular({"instance": "x17"})


class Loop:
    """Stands in for a session: whoever is sent to may answer at once, or not at all."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], None] = lambda sent: None
        loop = asyncio.get_running_loop()
        self.stage = Stage(self, self, loop.time, loop.call_later)  # type: ignore[arg-type]
        self.tasks: list[asyncio.Task[None]] = []

    async def publish(self, sent: dict[str, Any]) -> None:
        self.sent.append(sent)
        self.answer(sent)
        await asyncio.sleep(0)

    def future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))


TEMPLATES = {agent: {"instance": f"regular.{agent}"} for agent in ("A1", "A2")}


def answering(loop: Loop, generator: Generator) -> Callable[[dict[str, Any]], None]:
    def answer(sent: dict[str, Any]) -> None:
        if sent["step"] % TOLD_EVERY == 0:
            generator.arrived(sent["instance"].partition(".")[2], sent["step"], loop.stage.clock())

    return answer


@pytest.mark.parametrize("load", ["closed", "open"])
def test_it_says_when_a_round_is_over_and_goes_on_until_it_is_stopped(load: str) -> None:
    async def play() -> tuple[list[str], Loop]:
        loop, told = Loop(), list[str]()

        def tell(what: str) -> None:
            told.append(what)
            if told.count("mark") == 3:
                generator.order("stop", loop.stage)

        generator = Generator(Load(load=load, events=200), TEMPLATES, tell)
        loop.answer = answering(loop, generator)
        for what in ("measure", "play"):
            generator.order(what, loop.stage)
            await loop.tasks[-1]
        return told, loop

    told, loop = asyncio.run(play())
    assert told == ["measured", "mark", "mark", "mark", "stopped"]
    counted = [sent for sent in loop.sent if sent["round"]]
    assert [sum(sent["round"] == n for sent in counted) for n in (1, 2, 3)] == [200, 200, 200]
    by_agent = [sum(sent["instance"] == t["instance"] for sent in counted) for t in TEMPLATES.values()]
    assert abs(by_agent[0] - by_agent[1]) <= 1


def test_a_closed_loop_waits_for_agents_that_do_not_answer() -> None:
    async def play() -> int:
        loop = Loop()
        generator = Generator(Load(events=10 * IN_FLIGHT), TEMPLATES, lambda what: None)
        generator.order("play", loop.stage)
        for _ in range(4 * IN_FLIGHT):
            await asyncio.sleep(0)
        sent = len(loop.sent)
        generator.order("stop", loop.stage)
        await asyncio.gather(*loop.tasks)
        return sent

    assert asyncio.run(play()) == 2 * IN_FLIGHT


def test_events_say_whether_a_transaction_is_under_way() -> None:
    async def play() -> list[int]:
        loop = Loop()
        generator = Generator(Load(events=100), TEMPLATES, lambda what: None)
        loop.answer = answering(loop, generator)
        generator.order("play", loop.stage)
        for what in ("busy", "idle"):
            for _ in range(20):
                await asyncio.sleep(0)
            generator.order(what, loop.stage)
        generator.order("stop", loop.stage)
        await asyncio.gather(*loop.tasks)
        return [sent["busy"] for sent in loop.sent]

    marks = asyncio.run(play())
    assert marks[0] == 0
    assert 1 in marks


def test_events_beside_a_transaction_do_not_count_for_the_next_round() -> None:
    async def play() -> list[int]:
        loop = Loop()
        generator = Generator(Load(events=40), TEMPLATES, lambda what: told.append((what, len(loop.sent))))
        told: list[tuple[str, int]] = []
        loop.answer = answering(loop, generator)
        generator.order("play", loop.stage)
        while not told:
            await asyncio.sleep(0)
        generator.order("busy", loop.stage)
        seen = len(loop.sent)
        while len(loop.sent) < seen + 200:
            await asyncio.sleep(0)
        assert len(told) == 1, "a transaction that takes long does not use up the next rounds"
        generator.order("idle", loop.stage)
        idle = len(loop.sent)
        while len(told) < 2:
            await asyncio.sleep(0)
        generator.order("stop", loop.stage)
        await asyncio.gather(*loop.tasks)
        return [told[1][0] == "mark", told[1][1] - idle]

    is_mark, between = asyncio.run(play())
    assert is_mark
    assert 39 <= between <= 41, "one may have been on its way when the transaction ended"
