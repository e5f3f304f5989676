"""Durable brokers that are killed at random moments while transactions and regular events go on.

    python -m tests.support.killing --kills 500 --seed 1 --record soak.txt

Five brokers; by every protocol in turn both scenarios, round after round (`tests.support.rounds`), and numbered regular
events (`tests.support.numbered`). At the end: the checks on all histories, the count of the regular events, and
whether anything has grown or stayed open. Exit code 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import uvloop
from msgspec import Struct, field

from broker.protocol.vocabulary import PROTOCOLS
from client import ClientError
from client.asking.monitor import fetch_status
from labctl.checks.judge import judge
from labctl.checks.verdict import Verdict
from labctl.results.histories import load
from tests.support.brokers import Overlay, brokers, data_folder
from tests.support.cuttable import Cuttable
from tests.support.numbered import Traffic
from tests.support.observe import eventually, start
from tests.support.playing import keep_histories, keep_tables, nothing_is_open, on_stage, play_all
from tests.support.rounds import ROLES, Lane

LINKS = [("b1", "b2"), ("b2", "b3"), ("b3", "b4"), ("b3", "b5")]
SETTINGS = {"grace_ms": 8000, "redo_ms_max": 100}
"""A client may need several attempts to find a broker again that is killed as soon as it is there; and snapshots
are to be taken, and killed in the middle, more often than they would be."""
AWAY_S = (0.05, 1.0)
GAP_S_MEAN = 0.8
ALL_SHARE, STOP_SHARE = 0.03, 0.1
"""Of the times when brokers are killed: all at once, as if their machine had died; told to stop instead."""
WARM_UP_SAMPLES = 3
GROWTH_MAX = {"rss_bytes": 4 << 20, "descriptors": 20, "data_bytes": 4 << 20, "records": 400}
"""From one third of a long soak to the next: what waits for a broker that is away comes and goes."""
UNTOLD = {"links"}
"""What histories cannot decide whose brokers are durable: they do not keep single messages."""


class Sample(NamedTuple):
    seconds: float
    kills: int
    rss_bytes: int
    """The most of a broker, as are the others."""
    descriptors: int
    data_bytes: int
    recovered_s: float
    records: int


class Soak(Struct):
    kills: int
    seed: int = 1
    client_kill_share: float = 0.2
    """Of the rounds of each lane."""
    gap_s: float = GAP_S_MEAN
    size: int = 6
    """Transactions of a round."""
    rate: float = 50.0
    """Regular events a second, of each publisher."""
    payload_bytes_max: int = 200
    durable: str = "fsync"
    delay_ms: float = 0.0
    """Emulated between brokers and to clients, with jitter and stalls."""
    sample_s: float = 10.0
    protocols: tuple[str, ...] = PROTOCOLS
    say: Callable[[str], None] = lambda line: None
    samples: list[Sample] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    stopped: int = 0
    client_kills: int = 0
    events: int = 0
    deliveries: int = 0
    latest_s: float = 0.0
    recoveries: list[dict[str, Any]] = field(default_factory=list)

    def run(self, folder: Path) -> None:
        """What went wrong is in `faults` and `verdicts`."""
        delay = {"delay_ms": self.delay_ms, "sigma": 0.5, "stall_probability": 0.01, "stall_ms": [20, 60]}
        delays = {ends: delay for a, b in LINKS for ends in ((a, b), (b, a))} if self.delay_ms else {}
        clients = delay if self.delay_ms else {}
        with brokers(
            folder,
            LINKS,
            settings=SETTINGS,
            durable=self.durable,
            delays=delays,
            clients=clients,
            start=False,
        ) as overlay:
            result = keep_histories(folder, overlay.names, "transactions")
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._play(overlay, result, folder))
            self.recoveries = [line for name in overlay.names for line in overlay.log(name, "recovered")]
            self.faults += [
                f"{name} has refused somebody honest: {line['reason']}"
                for name in overlay.names
                for line in overlay.log(name, "refused")
                if line["code"] == "protocol"
            ]
            left = [name for name in overlay.names if not overlay.is_alive(name)]
            self.faults += [f"{name} has ended: {overlay.errors(name)}" for name in left]
        self.faults += grown(self.samples)
        self.verdicts = judge(load(result))
        for verdict in self.verdicts:
            self.faults += [f"{verdict.property}: {fault}" for fault in verdict.faults]
            if verdict.answer == "unknown" and verdict.property not in UNTOLD:
                self.faults.append(f"{verdict.property} could not be judged")

    async def _play(self, overlay: Overlay, result: Path, folder: Path) -> None:
        await start(overlay)
        random = Random(self.seed)
        where = overlay.address
        ways = [Cuttable(where(name)) for name in ("b2", "b5")]
        traffic = Traffic(
            {"P1": where("b1"), "P4": where("b4"), "P3": where("b3")},
            {f"S{name}": where(name) for name in overlay.names},
            self.rate,
            self.payload_bytes_max,
            {"away": ways[0], "away too": ways[1]},
        )
        lanes = [
            Lane(overlay, result, scenario, approach, Random(f"{self.seed} {scenario} {approach}"), self.size)
            for scenario in ROLES
            for approach in self.protocols
        ]
        try:
            await traffic.begin()
            async with asyncio.TaskGroup() as group:
                group.create_task(traffic.run())
                for lane in lanes:
                    group.create_task(lane.run(self.client_kill_share))
                sampling = group.create_task(self._sample(overlay, folder, lanes, traffic))
                group.create_task(traffic.cut(Random(f"{self.seed} cut")))
                await self._kill(overlay, random)
                for lane in lanes:
                    lane.stop()
                self.say("no more kills; what is under way ends")
                await asyncio.sleep(1)
                traffic.stop()
                sampling.cancel()
            self.faults += await traffic.end()
        finally:
            await traffic.leave()
        self.faults += [fault for lane in lanes for fault in lane.faults]
        self.outcomes = sum((lane.outcomes for lane in lanes), Counter())
        self.client_kills = sum(lane.client_kills for lane in lanes)
        self.events, self.deliveries = sum(traffic.published.values()), traffic.delivered
        self.latest_s = max(subscriber.latest_s for subscriber in traffic.subscribers)
        async with on_stage(lane.last_playing() for lane in lanes) as playings:
            await play_all(playings)
            await nothing_is_open(overlay)
            await keep_tables(overlay, result)
        for playing in playings:
            summary = playing.report.summary()
            if summary["correct"] < summary["transactions"] - summary["aborted"]:
                self.faults.append(f"when no more was killed: {summary}")

    async def _kill(self, overlay: Overlay, random: Random) -> None:
        """Whoever is there, also while it comes up; each comes back in its own time."""
        away: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while self.killed < self.kills:
                await asyncio.sleep(random.expovariate(1 / self.gap_s))
                there = [name for name in overlay.names if overlay.is_alive(name) and name not in away]
                chance = random.random()
                for name in there if chance < ALL_SHARE else random.sample(there, min(1, len(there))):
                    if chance > 1 - STOP_SHARE:
                        overlay.signal(name, signal.SIGTERM)
                        self.stopped += 1
                    else:
                        overlay.kill(name)
                        self.killed += 1
                    away.add(name)
                    group.create_task(_come_back(overlay, name, random.uniform(*AWAY_S), away))

    async def _sample(self, overlay: Overlay, folder: Path, lanes: list[Lane], traffic: Traffic) -> None:
        began = time.monotonic()
        self.say(
            "    s  kills  RSS MB  fds  data MB  recovery s  records   committed  aborted  unknown  events"
        )
        while True:
            await asyncio.sleep(self.sample_s)
            looks = [look async for look in _looks(overlay, folder)]
            if not looks:
                continue
            sample = Sample(time.monotonic() - began, self.killed, *map(max, zip(*looks, strict=True)))
            self.samples.append(sample)
            outcomes: Counter[str] = sum((lane.outcomes for lane in lanes), Counter())
            self.say(
                f"{sample.seconds:5.0f}  {sample.kills:5}  {sample.rss_bytes / 1e6:6.1f}  {sample.descriptors:3}"
                f"  {sample.data_bytes / 1e6:7.2f}  {sample.recovered_s:10.3f}  {sample.records:7}"
                f"   {outcomes['committed']:9}  {outcomes['aborted']:7}  {outcomes['unknown']:7}"
                f"  {traffic.delivered:6}"
            )

    def summary(self) -> str:
        seconds = sorted(line["seconds"] for line in self.recoveries)
        entries = max((line["entries"] for line in self.recoveries), default=0)
        return (
            f"{self.killed} kills of brokers ({self.stopped} stops), {self.client_kills} of clients; transactions: {dict(self.outcomes)};"
            f" {self.events} regular events, {self.deliveries} deliveries, the latest after {self.latest_s:.1f} s;"
            f" {len(seconds)} recoveries of at most {entries} entries, median {seconds[len(seconds) // 2]:.3f} s,"
            f" longest {seconds[-1]:.3f} s"
        )


def grown(samples: list[Sample]) -> list[str]:
    """The most of the last third, beside the most of what was warm and came before."""
    warm = samples[WARM_UP_SAMPLES:]
    third = len(warm) // 3
    found = []
    for name, allowed in GROWTH_MAX.items() if third else ():
        before, after = [
            max(getattr(sample, name) for sample in part) for part in (warm[:-third], warm[-third:])
        ]
        if after > before + allowed:
            found.append(f"{name} has grown: {before} -> {after}")
    return found


async def _has_ended(overlay: Overlay, name: str) -> bool:
    return not overlay.is_alive(name)


async def _come_back(overlay: Overlay, name: str, after_s: float, away: set[str]) -> None:
    """Whoever has not ended, or has ended by itself, has a fault."""
    await eventually(f"{name} has ended", lambda: _has_ended(overlay, name))
    code = overlay.process(name).child.returncode
    assert code in (0, -signal.SIGKILL, -signal.SIGTERM), f"{name}: {code} {overlay.errors(name)}"
    await asyncio.sleep(after_s)
    overlay.start(name)
    away.discard(name)


async def _looks(overlay: Overlay, folder: Path) -> Any:
    for name in overlay.names:
        try:
            status = await fetch_status(overlay.address(name), timeout_s=1)
            process = Path("/proc") / str(status["pid"])
            rss_bytes = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            descriptors = len(list((process / "fd").iterdir()))
        except (ClientError, OSError):
            continue  # it is not there at present
        data_bytes = 0
        for file in data_folder(folder, name).iterdir():
            data_bytes += file.stat().st_size if file.exists() else 0
        recovered = status["journal"]["recovered"] or {"seconds": 0.0}
        records = status["counts"]["srt"] + status["counts"]["prt"]
        yield rss_bytes, descriptors, data_bytes, recovered["seconds"], records


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.killing", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durable", choices=("fsync", "os"), default="fsync")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="emulated on every link, with stalls")
    parser.add_argument("--payload-bytes-max", type=int, default=200)
    parser.add_argument("--record", type=Path, metavar="FILE", help="gets what is printed")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where everything stays; else it goes")
    options = parser.parse_args()

    def say(line: str) -> None:
        _say(line)
        if options.record is not None:
            with options.record.open("a") as file:
                file.write(f"{line}\n")

    soak = Soak(
        options.kills,
        options.seed,
        durable=options.durable,
        delay_ms=options.delay_ms,
        payload_bytes_max=options.payload_bytes_max,
        say=say,
    )
    with tempfile.TemporaryDirectory() as folder:
        soak.run(options.keep or Path(folder))
    say(soak.summary())
    for verdict in soak.verdicts:
        say(f"{verdict.property}: {verdict.answer}, {verdict.checked} checked")
    say("\n".join(soak.faults) or "nothing went wrong")
    return bool(soak.faults)


if __name__ == "__main__":
    sys.exit(main())
