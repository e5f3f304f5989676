"""What a program sees of the client library, on real overlays: the words, the waits and the errors."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from client import (
    Connection,
    ConnectionFailed,
    InvalidFilter,
    NotAdvertised,
    RefusedByBroker,
    SessionClosed,
    TimedOut,
    TooLarge,
    between,
    connect,
    less_than,
    more_than,
    one_of,
)
from labctl.paths import PROJECT
from tests.support.cuttable import Cuttable
from tests.support.observe import (
    LINE,
    cuttable_overlay,
    eventually,
    in_loop,
    lines_of,
    link_becomes,
    running,
)

pytestmark = pytest.mark.slow

NAN = float("nan")
LIMITS = {"payload_bytes_max": 100, "attributes_max": 3, "text_length_max": 20, "values_max": 4}


@in_loop
async def test_the_program_in_the_readme_prints_what_the_readme_says(tmp_path: Path) -> None:
    program, output = readme_program()
    async with running(tmp_path, LINE) as overlay:
        for place, name in enumerate(overlay.names, 1):
            program = program.replace(f"127.0.0.1:700{place}", overlay.address(name))
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, cwd=PROJECT, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await asyncio.wait_for(child.communicate(), 10)
    assert child.returncode == 0
    assert printed.decode() == output


def readme_program() -> tuple[str, str]:
    """Its first Python block, and the block behind it."""
    text = (PROJECT / "README.md").read_text()
    found = re.search(r"```python\n(.*?)```\n+```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1], found[2]


@in_loop
async def test_subscribe_returns_at_the_edge_and_settled_when_every_broker_has_it(tmp_path: Path) -> None:
    slow = {"delay_ms": 1000.0}
    async with (
        running(tmp_path, LINE, delays={("b3", "b2"): slow}) as overlay,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(overlay.address("b3"), client_id="A") as a,
    ):
        await e.advertise({"k": between(0, 9)})
        await e.settled()
        began = time.monotonic()
        await a.subscribe({"k": 1})
        assert time.monotonic() - began < 1.0, "it waited for more than the edge broker"
        await e.publish({"k": 1}, b"before it holds at b1")
        await a.settled()
        assert time.monotonic() - began >= 1.0
        await e.publish({"k": 1}, b"after")
        assert (await a.next_delivery(5)).payload == b"after"


@in_loop
async def test_after_settled_a_publication_from_anywhere_is_routed_right(tmp_path: Path) -> None:
    async with (
        running(tmp_path, LINE) as overlay,
        connect(overlay.address("b1"), client_id="E1") as e1,
        connect(overlay.address("b2"), client_id="E2") as e2,
        connect(overlay.address("b3"), client_id="A") as a,
    ):
        for publisher in (e1, e2):
            await publisher.advertise({"k": between(0, 99)})
            await publisher.settled()
        for k in range(0, 100, 2):
            await a.subscribe({"k": k})
            await a.settled()
            await e1.publish({"k": k}, b"e1")
            await e2.publish({"k": k}, b"e2")
            got = [await a.next_delivery(5) for _ in range(2)]
            assert sorted((d.event["k"], d.payload) for d in got) == [(k, b"e1"), (k, b"e2")]
            await a.unsubscribe({"k": k})
            await a.settled()
            await e1.publish({"k": k}, b"too late")
            await e2.publish({"k": k + 1}, b"not asked for")


@in_loop
async def test_a_callback_that_raises_does_not_end_the_session(tmp_path: Path) -> None:
    complaints: list[dict[str, Any]] = []
    got: list[object] = []

    def take(delivery: Any) -> None:
        got.append(delivery.event["n"])
        if delivery.event["n"] == 1:
            raise ValueError("a fault of the program")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with (
        running(tmp_path) as overlay,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(overlay.address("b1"), client_id="A", on_delivery=take) as a,
    ):
        await e.advertise({})
        await a.subscribe({})
        for n in range(4):
            await e.publish({"n": n})
        await e.settled()
        await a.settled()
    assert got == [0, 1, 2, 3]
    assert [str(context["exception"]) for context in complaints] == ["a fault of the program"]


@in_loop
async def test_mistakes_are_refused_at_the_caller_and_the_session_goes_on(tmp_path: Path) -> None:
    filters: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"k": NAN}, InvalidFilter, "'k': NaN"),
        ({"k": between(1, NAN)}, InvalidFilter, "'k': NaN"),
        ({"k": True}, InvalidFilter, "'k': .* not bool"),
        ({"k": None}, InvalidFilter, "'k': .* not NoneType"),
        ({"k": between(9, 1)}, InvalidFilter, r"'k': the interval in \[9, 1\] is empty"),
        ({"k": between(1, "z")}, InvalidFilter, "'k': .* mixes"),
        ({"k": []}, InvalidFilter, "'k': an empty set"),
        ({"": 1}, InvalidFilter, "name"),
        ({"k": 2**64}, InvalidFilter, "'k': .* 64 bits"),
        ({"k": "x" * 21}, TooLarge, "a text of 21 characters; the limit is 20"),
        ({"k" * 21: 1}, TooLarge, "a text of 21 characters; the limit is 20"),
        ({"k": one_of(1, 2, 3, 4, 5)}, TooLarge, "a set of 5 values; the limit is 4"),
        (dict.fromkeys("abcd", 1), TooLarge, "a filter of 4 attributes; the limit is 3"),
    ]
    events: list[tuple[dict[str, Any], bytes, type[Exception], str]] = [
        ({"k": 10}, b"", NotAdvertised, "{'k': 10} is outside what E advertises; advertise it first"),
        ({"other": 1}, b"", NotAdvertised, "outside what E advertises"),
        ({"k": NAN}, b"", InvalidFilter, "'k': NaN"),
        ({"k": True}, b"", InvalidFilter, "'k': .* not bool"),
        ({"k": 1}, bytes(101), TooLarge, "a payload of 101 bytes; the limit is 100"),
        ({"k": 1, "a": 1, "b": 1, "c": 1}, b"", TooLarge, "an event of 4 attributes; the limit is 3"),
        ({"k": 1, "a": "x" * 21}, b"", TooLarge, "a text of 21 characters; the limit is 20"),
    ]
    async with (
        running(tmp_path, limits=LIMITS) as overlay,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(overlay.address("b1"), client_id="A") as a,
    ):
        await e.advertise({"k": less_than(10)})
        await a.subscribe({"k": more_than(0)})
        for constraints, error, sentence in filters:
            for ask in (e.advertise, e.unadvertise, e.subscribe, e.unsubscribe):
                with pytest.raises(error, match=sentence):
                    await ask(constraints)
        for event, payload, error, sentence in events:
            with pytest.raises(error, match=sentence):
                await e.publish(event, payload)
        with pytest.raises(InvalidFilter, match="a payload is bytes, not str"):
            await e.publish({"k": 1}, "text")  # type: ignore[arg-type]
        await e.publish({"k": 1}, bytes(100))
        assert (await a.next_delivery(5)).payload == bytes(100)
        await e.unadvertise({"k": 1})
        with pytest.raises(NotAdvertised):
            await e.publish({"k": 1})


@in_loop
async def test_what_takes_too_long_is_timed_out_and_may_still_happen(tmp_path: Path) -> None:
    async with (
        cuttable_overlay(tmp_path, [("b1", "b2")]) as (overlay, between_brokers),
        connect(overlay.address("b1"), client_id="E") as e,
    ):
        with pytest.raises(TimedOut, match=r"nothing was delivered to E within 0\.05 s"):
            await e.next_delivery(0.05)
        between_brokers["b1", "b2"].take_away()
        await link_becomes(overlay.address("b1"), "broker:b2", state="away")
        await e.advertise({"k": 1})
        with pytest.raises(TimedOut, match=r"no answer to Settle \d+ within 0\.2 s"):
            await e.settled(timeout_s=0.2)
        with pytest.raises(ConnectionFailed, match=r"the overlay did not confirm the client within 0\.2 s"):
            async with connect(overlay.address("b1"), client_id="A", timeout_s=0.2):
                pass
        between_brokers["b1", "b2"].bring_back()
        await e.settled()
        async with connect(overlay.address("b1"), client_id="A"):
            pass


@in_loop
async def test_too_many_requests_at_once_are_refused_and_the_session_goes_on(tmp_path: Path) -> None:
    async with (
        cuttable_overlay(tmp_path, [("b1", "b2")]) as (overlay, between_brokers),
        connect(overlay.address("b1"), client_id="E") as e,
    ):
        between_brokers["b1", "b2"].take_away()
        await link_becomes(overlay.address("b1"), "broker:b2", state="away")
        asked = [asyncio.create_task(e.settled()) for _ in range(1100)]
        await asyncio.wait(asked, return_when=asyncio.FIRST_EXCEPTION)
        between_brokers["b1", "b2"].bring_back()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {type(None), RefusedByBroker}
        assert "settles under way: the limit" in str(outcomes[-1])
        await e.settled()


@in_loop
async def test_nobody_there_is_told_soon(tmp_path: Path) -> None:
    async with running(tmp_path) as overlay:
        address = overlay.address("b1")
    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match=f"{address}: Connection refused"):
        async with connect(address, client_id="E"):
            pass
    assert time.monotonic() - began < 5
    with pytest.raises(ConnectionFailed, match="'nowhere' is not an address of the form host:port"):
        connect("nowhere", client_id="E")


@in_loop
async def test_a_broker_that_swallows_everything_is_not_waited_for_beyond_the_time_limit(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as overlay, Cuttable(overlay.address("b1")) as proxy:
        proxy.freeze()
        with pytest.raises(ConnectionFailed, match=r"no broker answered within 0\.3 s"):
            async with connect(proxy.address, client_id="E", timeout_s=0.3):
                pass


async def everything(session: Connection) -> None:
    """Each thing that a program can ask for, of a session that has ended."""
    for ask in (session.advertise, session.unadvertise, session.subscribe, session.unsubscribe):
        with pytest.raises(SessionClosed):
            await ask({"k": 1})
    for call in (session.settled, session.next_delivery):
        with pytest.raises(SessionClosed):
            await call()
    with pytest.raises(SessionClosed):
        await session.publish({"k": 1})


@in_loop
async def test_a_session_that_is_not_open_says_so(tmp_path: Path) -> None:
    async with running(tmp_path) as overlay:
        session = connect(overlay.address("b1"), client_id="E")
        with pytest.raises(SessionClosed, match="not connected yet"):
            await session.publish({"k": 1})
        async with session:
            await session.advertise({"k": 1})
            await session.close()
            await everything(session)
        await everything(session)
        with pytest.raises(SessionClosed, match="connect again"):
            await session.__aenter__()


@in_loop
async def test_closing_while_others_publish_stops_them_and_delivers_what_they_had_published(
    tmp_path: Path,
) -> None:
    published: list[int] = []

    async def publish(session: Connection) -> None:
        while True:
            await session.publish({"n": len(published)})
            published.append(len(published))

    async with (
        running(tmp_path) as overlay,
        connect(overlay.address("b1"), client_id="A") as a,
    ):
        await a.subscribe({})
        async with connect(overlay.address("b1"), client_id="E") as e:
            await e.advertise({})
            publishing = asyncio.create_task(publish(e))
            assert (await a.next_delivery(5)).event["n"] == 0
            began = time.monotonic()
            await e.close()
            assert time.monotonic() - began < 2
        with pytest.raises(SessionClosed):
            await publishing
        await a.settled()
        for number in published[1:]:
            assert (await a.next_delivery(5)).event["n"] == number


@in_loop
async def test_closing_tells_when_the_broker_has_not_taken_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client.carrier.LEAVE_S_MAX", 0.3)

    async def publish_and_leave(address: str, error: Exception | None) -> None:
        async with Cuttable(address) as proxy, connect(proxy.address, client_id="E") as e:
            await e.advertise({})
            proxy.freeze()
            await e.publish({"n": 1})
            if error is not None:
                raise error

    async with running(tmp_path) as overlay:
        with pytest.raises(TimedOut, match="had not taken all"):
            await publish_and_leave(overlay.address("b1"), None)
        with pytest.raises(KeyError, match="what the program failed of"):
            await publish_and_leave(overlay.address("b1"), KeyError("what the program failed of"))


@in_loop
async def test_iterating_ends_when_the_program_closes_and_raises_when_the_session_died(
    tmp_path: Path,
) -> None:
    async def iterate(session: Connection) -> list[object]:
        return [delivery.event["n"] async for delivery in session.deliveries()]

    async with running(tmp_path) as overlay:
        address = overlay.address("b1")
        async with (
            connect(address, client_id="E", reconnect_s=0.2) as e,
            connect(address, client_id="A") as a,
            connect(address, client_id="B", reconnect_s=0.2) as b,
        ):
            await e.advertise({})
            iterating = {}
            for session in (a, b):
                await session.subscribe({})
                iterating[session] = asyncio.create_task(iterate(session))
            for n in range(3):
                await e.publish({"n": n})
            await e.settled()
            await a.settled()
            await a.close()
            assert await iterating[a] == [0, 1, 2]
            assert not iterating[b].done()
            overlay.kill("b1")
            with pytest.raises(ConnectionFailed, match=address):
                await asyncio.wait_for(iterating[b], 5)
            with pytest.raises(ConnectionFailed, match=address):
                await b.publish({"n": 1})


@in_loop
async def test_the_log_tells_what_happened_and_has_vitals_every_second(tmp_path: Path) -> None:
    log_file = tmp_path / "e.log"
    async with (
        running(tmp_path) as overlay,
        Cuttable(overlay.address("b1")) as proxy,
        connect(proxy.address, client_id="E", log_file=log_file) as e,
    ):
        proxy.cut()
        await e.settled()

        async def has_three_vitals() -> bool:
            return len([line for line in lines_of(log_file) if line["event"] == "vitals"]) >= 3

        await eventually("three samples", has_three_vitals)
    lines = lines_of(log_file)
    assert {line["node"] for line in lines} == {"E"}
    assert [line["event"] for line in lines if line["event"] != "vitals"] == ["up", "away", "up", "away"]
    vitals = [line for line in lines if line["event"] == "vitals"]
    gaps_s = [(b["t"] - a["t"]) / 1e9 for a, b in pairwise(vitals)]
    assert all(0.8 < gap < 2 for gap in gaps_s)
    assert all(line["rss_bytes"] > 1 << 20 and line["cpu_percent"] >= 0 for line in vitals)
