"""A lost connection is not a lost session: what clients and brokers see when links are cut, frozen or away."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from client import ClientIdInUse, SessionClosed, SlowConsumer, connect
from client.asking.monitor import fetch_status
from labctl.paths import PROJECT
from tests.support.cuttable import Cuttable
from tests.support.observe import (
    LINE,
    cuttable_overlay,
    eventually,
    in_loop,
    is_forgotten,
    link,
    link_becomes,
    logged,
    noted,
    resident_bytes,
    running,
    traces,
)
from tests.support.traffic import introduce, nothing_more, publish, receive

pytestmark = pytest.mark.slow

SILENCE_MS = 600


@pytest.mark.parametrize("thaw", [Cuttable.thaw, Cuttable.thaw_for_others])
@pytest.mark.parametrize("where", ["client", "broker"])
def test_a_link_that_falls_silent_is_given_up_and_resumed(tmp_path: Path, where: str, thaw: object) -> None:
    """Half-open: TCP sees nothing wrong, on this connection or on the next that is tried."""
    asyncio.run(_fall_silent(tmp_path, where, is_lasting=thaw is Cuttable.thaw_for_others))


async def _fall_silent(folder: Path, where: str, is_lasting: bool) -> None:
    log_file = folder / "a.log"
    async with (
        cuttable_overlay(folder, settings={"silence_ms": SILENCE_MS}) as (overlay, between),
        Cuttable(overlay.address("b3")) as far,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(far.address, client_id="A", silence_s=SILENCE_MS / 1e3, log_file=log_file) as a,
    ):
        await introduce(e, a)
        frozen, witness, hop = (
            (far, "b3", "client:A") if where == "client" else (between["b2", "b3"], "b2", "broker:b3")
        )
        frozen.freeze()
        before = frozen.connections
        await publish(e, "A", range(500))
        await publish(a, "E", range(500))
        await logged(overlay, witness, "silent", peer=hop)
        if where == "client":
            await eventually("A has noticed", lambda: noted(log_file, "away", "silent for"))

        async def is_dialled_again() -> bool:
            return frozen.connections > before

        await eventually("somebody dials again, into the silence", is_dialled_again)
        if is_lasting:
            frozen.thaw_for_others()
        else:
            frozen.thaw()
        async with asyncio.timeout(10):
            assert await receive(a, 500) == list(range(500))
            assert await receive(e, 500) == list(range(500))
        await nothing_more(e, a)


@in_loop
async def test_a_quiet_link_between_living_peers_stays_up(tmp_path: Path) -> None:
    settings = {"silence_ms": SILENCE_MS}
    async with (
        cuttable_overlay(tmp_path, settings=settings) as (overlay, between),
        connect(overlay.address("b1"), client_id="E", silence_s=SILENCE_MS / 1e3),
    ):
        before = [proxy.connections for proxy in between.values()]
        await asyncio.sleep(3 * SILENCE_MS / 1e3)
        assert [proxy.connections for proxy in between.values()] == before
        assert [overlay.log(name, "away") for name in overlay.names] == [[], [], []]


@in_loop
async def test_a_client_that_is_away_for_a_while_keeps_its_records_and_gets_what_it_missed(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path, LINE) as overlay,
        Cuttable(overlay.address("b3")) as far,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(far.address, client_id="A") as a,
    ):
        await introduce(e, a)
        records = await traces(overlay, "A")
        far.take_away()
        await link_becomes(overlay.address("b3"), "client:A", state="away")
        await publish(a, "E", range(100))
        await publish(e, "A", range(100))
        await e.settled()
        assert await traces(overlay, "A") == records
        assert (await link(overlay.address("b3"), "client:A"))["queue_messages"] >= 100
        far.bring_back()
        assert await receive(a, 100) == list(range(100))
        assert await receive(e, 100) == list(range(100))
        await nothing_more(e, a)


@in_loop
async def test_a_client_that_stays_away_longer_than_the_grace_time_is_gone_and_is_told_so(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path, LINE, settings={"grace_ms": 300}) as overlay,
        Cuttable(overlay.address("b3")) as far,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(far.address, client_id="A") as a,
    ):
        await introduce(e, a)
        assert {trace.split()[0] for trace in await traces(overlay, "A")} == {"b1", "b2", "b3"}
        far.take_away()
        await is_forgotten(overlay, "A")
        await logged(overlay, "b3", "client-gone", client="A")
        departed = (await fetch_status(overlay.address("b3")))["departed"]
        assert [(row["client"], row["code"]) for row in departed] == [("A", "state-lost")]
        await e.publish({"to": "A", "n": 0})
        far.bring_back()
        sentence = "session of A at broker b3 has ended: it was away for more than 300 ms; connect anew"
        with pytest.raises(SessionClosed, match=sentence):
            await a.next_delivery(5)
        with pytest.raises(SessionClosed, match=sentence):
            await a.publish({"to": "E", "n": 0})
        async with connect(far.address, client_id="A") as a_again:
            await a_again.subscribe({"to": "A"})
            await a_again.settled()
            await e.publish({"to": "A", "n": 1})
            assert await receive(a_again, 1) == [1]


@in_loop
async def test_a_client_that_says_goodbye_is_gone_at_once(tmp_path: Path) -> None:
    async with (
        running(tmp_path, LINE, settings={"grace_ms": 60_000}) as overlay,
        connect(overlay.address("b1"), client_id="E") as e,
    ):
        async with connect(overlay.address("b3"), client_id="A") as a:
            await introduce(e, a)
        await is_forgotten(overlay, "A")
        async with connect(overlay.address("b2"), client_id="A"):
            pass


VICTIM = """
import asyncio, sys
from client import connect
async def main():
    async with connect(sys.argv[1], client_id="A") as session:
        await session.subscribe({"to": "A", "life": 1})
        await session.settled()
        print("up", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@in_loop
async def test_a_killed_client_comes_back_as_a_new_life_without_its_old_records(tmp_path: Path) -> None:
    async with (
        running(tmp_path, LINE, settings={"grace_ms": 60_000}) as overlay,
        connect(overlay.address("b1"), client_id="E") as e,
    ):
        await e.advertise({"to": "A"})
        await e.settled()
        command = [sys.executable, "-c", VICTIM, overlay.address("b3")]
        victim = await asyncio.create_subprocess_exec(*command, cwd=PROJECT, stdout=asyncio.subprocess.PIPE)
        assert victim.stdout is not None
        assert await victim.stdout.readline() == b"up\n"
        victim.kill()
        await victim.wait()
        await link_becomes(overlay.address("b3"), "client:A", state="away")
        assert len(await traces(overlay, "A")) == 6, "one record and one claim at each of three brokers"
        async with connect(overlay.address("b3"), client_id="A") as a:
            assert {trace.split()[1] for trace in await traces(overlay, "A")} == {"crt"}
            await a.subscribe({"to": "A", "life": 2})
            await a.settled()
            for life in (1, 2):
                await e.publish({"to": "A", "life": life, "n": life})
            assert await receive(a, 1) == [2]
            await nothing_more(e, a)


@in_loop
async def test_an_old_life_that_comes_back_does_no_harm_to_its_successor(tmp_path: Path) -> None:
    async with (
        running(tmp_path, settings={"grace_ms": 60_000}) as overlay,
        Cuttable(overlay.address("b1")) as old_way,
        Cuttable(overlay.address("b1")) as new_way,
        connect(overlay.address("b1"), client_id="E") as e,
        connect(old_way.address, client_id="A") as old,
    ):
        old_way.take_away()
        await link_becomes(overlay.address("b1"), "client:A", state="away")
        async with connect(new_way.address, client_id="A") as new:
            await introduce(e, new)
            new_way.take_away()
            await link_becomes(overlay.address("b1"), "client:A", state="away")
            old_way.bring_back()
            with pytest.raises(SessionClosed, match="another client has come by that name"):
                await old.next_delivery(5)
            await publish(e, "A", range(10))
            new_way.bring_back()
            assert await receive(new, 10) == list(range(10))


@in_loop
async def test_an_id_that_is_in_use_is_refused_with_the_name_of_the_broker(tmp_path: Path) -> None:
    async with (
        running(tmp_path, LINE) as overlay,
        connect(overlay.address("b3"), client_id="A") as first,
    ):
        for name in ("b3", "b1"):
            with pytest.raises(ClientIdInUse, match="client id A is in use at broker b3"):
                async with connect(overlay.address(name), client_id="A"):
                    pass
        await first.settled()


@in_loop
async def test_a_client_that_is_away_while_too_much_is_published_is_gone_with_a_reason(
    tmp_path: Path,
) -> None:
    limit = 1 << 20
    settings = {"grace_ms": 60_000, "queue_bytes_max": limit}
    async with running(tmp_path, settings=settings) as overlay:
        address = overlay.address("b1")
        async with (
            Cuttable(address) as far,
            connect(address, client_id="E") as e,
            connect(far.address, client_id="A") as a,
        ):
            await introduce(e, a)
            far.take_away()
            await link_becomes(address, "client:A", state="away")
            before = resident_bytes(overlay.pid("b1"))
            for number in range(10_000):
                await e.publish({"to": "A", "n": number}, bytes(1000))
            await e.settled()
            await is_forgotten(overlay, "A")
            assert resident_bytes(overlay.pid("b1")) - before < 12 << 20, "ten megabytes were published"
            gone = await logged(overlay, "b1", "client-gone", client="A")
            assert "too slow" in gone["reason"]
            assert str(limit) in gone["reason"]
            far.bring_back()
            with pytest.raises(SlowConsumer, match="A is too slow"):
                await a.next_delivery(5)
