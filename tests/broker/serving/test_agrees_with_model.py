"""The real server agrees with the model: scenarios over TCP, judged by the histories of all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from broker.protocol.vocabulary import PROTOCOLS
from client.scenarios.stage import Options
from labctl.checks.verdict import Verdict
from tests.support.brokers import Overlay, brokers
from tests.support.cuttable import Cuttable, all_cut, cut_at_random
from tests.support.observe import LINE, eventually, in_loop, start
from tests.support.playing import (
    Playing,
    keep_histories,
    keep_tables,
    nothing_is_open,
    on_stage,
    play_all,
    verdicts,
)

pytestmark = pytest.mark.slow

PLACES = {
    "dispatching": {"E": "b1", "D": "b2", "A1": "b3", "A2": "b1"},
    "consolidation": {"C": "b1", "E": "b2", "A1": "b3", "A2": "b1"},
}


def all_valid(found: dict[str, Verdict], *but: str) -> None:
    answers = {name: (verdict.answer, verdict.faults) for name, verdict in found.items() if name not in but}
    assert {answer for answer, _ in answers.values()} == {"valid"}, answers


@asynccontextmanager
async def cuttable_overlay_with_histories(folder: Path) -> AsyncIterator[tuple[Overlay, list[Cuttable]]]:
    """Three brokers in a line, whose links can be cut, and the proxies that do it."""
    with brokers(folder, LINE, start=False) as overlay:
        async with AsyncExitStack() as stack:
            links = []
            for dialler, other in LINE:
                link = await stack.enter_async_context(Cuttable(overlay.address(other)))
                links.append(link)
                file = folder / f"{dialler}.toml"
                file.write_text(file.read_text().replace(overlay.address(other), link.address))
            keep_histories(folder, overlay.names)
            await start(overlay)
            yield overlay, links


def none_invalid(found: dict[str, Verdict]) -> None:
    assert [fault for verdict in found.values() for fault in verdict.faults] == []


@pytest.mark.parametrize("scenario", PLACES)
@in_loop
async def test_all_approaches_at_once_keep_their_promises(tmp_path: Path, scenario: str) -> None:
    with brokers(tmp_path, LINE, start=False) as overlay:
        result = keep_histories(tmp_path, overlay.names)
        await start(overlay)
        homes = {role: overlay.address(home) for role, home in PLACES[scenario].items()}
        # A wait that no machine exceeds: this is not about BL-WAIT's own failure.
        options = [Options(a, transactions=12, concurrency=3) for a in PROTOCOLS]
        options.append(Options("bl-wait", transactions=12, concurrency=12, wait_ms=2000))
        async with on_stage(Playing(result, scenario, homes, o) for o in options) as playings:
            await play_all(playings)
            await nothing_is_open(overlay)
            await keep_tables(overlay, result)
    for playing in playings:
        assert {line["correct"] for line in playing.report.lines() if line["outcome"] != "aborted"} == {True}
        assert playing.report.summary()["unknown"] == 0
        assert playing.report.summary()["published" if "bl" in playing.cast.process else "committed"] > 0
    all_valid(verdicts(result))


@in_loop
async def test_members_may_call_before_their_coordinator_is_there(tmp_path: Path) -> None:
    with brokers(tmp_path, LINE, start=False) as overlay:
        result = keep_histories(tmp_path, overlay.names)
        await start(overlay)
        homes = {role: overlay.address(home) for role, home in PLACES["consolidation"].items()}
        async with on_stage([Playing(result, "consolidation", homes, Options("s-tx", 3))]) as [playing]:
            await playing.run(coordinator_after_s=0.5)
            await nothing_is_open(overlay)
            await keep_tables(overlay, result)
    all_valid(verdicts(result), "serializability")  # S-TX does not promise it


@pytest.mark.parametrize("victim", ["E", "D", "A1"])
@in_loop
async def test_a_client_that_is_killed_leaves_nothing_half_done(tmp_path: Path, victim: str) -> None:
    random = Random(victim)
    with brokers(tmp_path, LINE, settings={"grace_ms": 300}, start=False) as overlay:
        result = keep_histories(tmp_path, overlay.names)
        await start(overlay)
        homes = {role: overlay.address(home) for role, home in PLACES["dispatching"].items()}
        options = [Options(approach, transactions=100_000, patience_s=1) for approach in PROTOCOLS]
        async with on_stage(Playing(result, "dispatching", homes, o, victim) for o in options) as playings:
            async with asyncio.TaskGroup() as group:
                for playing in playings:
                    group.create_task(_play_and_kill(playing, random.uniform(0.1, 0.6)))
            await nothing_is_open(overlay)
            for playing in playings:
                for session in playing.sessions.values():
                    session.note("finished")  # if it has not said so itself
            await keep_tables(overlay, result)
    found = verdicts(result)
    none_invalid(found)
    assert {found[name].answer for name in ("atomicity", "convergence", "liveness", "links", "replay")} == {
        "valid"
    }


async def _play_and_kill(playing: Playing, after_s: float) -> None:
    victim = await playing.start_elsewhere()
    playing_task = asyncio.create_task(playing.run())

    async def is_under_way() -> bool:
        return playing.is_under_way

    await eventually("the first transaction", is_under_way)
    await asyncio.sleep(after_s)
    victim.kill()
    await victim.wait()
    if playing.coordinator is None:
        playing_task.cancel()  # nobody will say stop
        await asyncio.wait([playing_task])
        return
    before = len(playing.report.attempts)
    wanted = "committed" if playing.elsewhere == "A1" else "aborted"  # the other agent can go on

    async def has_gone_on() -> bool:
        return [attempt.outcome for attempt in playing.report.attempts[before:]].count(wanted) > 3

    await eventually("transactions without the victim", has_gone_on)
    playing.coordinator.wind_up()
    await playing_task


@pytest.mark.parametrize("scenario", PLACES)
@in_loop
async def test_transactions_survive_cut_links(tmp_path: Path, scenario: str) -> None:
    random = Random(scenario)
    async with AsyncExitStack() as stack:
        overlay, links = await stack.enter_async_context(cuttable_overlay_with_histories(tmp_path))
        result = tmp_path / "result"
        proxies = {
            home: await stack.enter_async_context(Cuttable(overlay.address(home))) for home in overlay.names
        }
        homes = {role: proxies[home].address for role, home in PLACES[scenario].items()}
        options = [Options(approach, transactions=15, concurrency=2, patience_s=30) for approach in PROTOCOLS]
        async with on_stage(Playing(result, scenario, homes, o) for o in options) as playings:
            cutting = asyncio.create_task(cut_at_random([*links, *proxies.values()], random, 0.08))
            await play_all(playings)
            cutting.cancel()
            await all_cut(links)
            await nothing_is_open(overlay)
            await keep_tables(overlay, result)
    for playing in playings:
        summary = playing.report.summary()
        assert (summary["wrong"], summary["unknown"], summary["confirmed"]) == (0, 0, True), summary
        assert summary["committed"] > 0, summary
    all_valid(verdicts(result))
