"""Steady traffic with transactions on real brokers, and whether anything of them grows.

    python -m tests.support.steady 600

Instances of a process go from the dispatcher to the agent and back, by every protocol in turn, two at a time, while the
engine publishes regular events. Every ten seconds a line: transactions, and of each broker its memory, open file
descriptors and records. At the end exit code 1 if something has grown since the first minute.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, cast

from broker.protocol.filters import Value
from broker.protocol.vocabulary import PLANNED, PROTOCOLS, Mode, PlanMode, Protocol
from client import ClientError, Connection, Frame, Plan, Tcm, connect
from client.asking.monitor import fetch_status
from tests.support.brokers import Overlay, brokers

LINE_S = 10.0
WARM_UP_S = 60.0
EVENTS_PER_S = 200
GROWTH_BYTES_MAX = 2 << 20
"""Of a process, from the first minute to the last: what allocators do is not to the byte."""
LIFETIME_S = 10.0


class Sample(NamedTuple):
    rss_bytes: int
    descriptors: int
    records: int


class Lane:
    """One instance, which goes there and back."""

    def __init__(self, number: int, engine: Connection) -> None:
        self._instance: dict[str, Value] = {"process": "p", "instance": number}
        self._engine = engine
        self.committed = 0
        self.others = 0

    async def run(self, deadline: float) -> None:
        protocols = cycle(PROTOCOLS)
        while time.monotonic() < deadline:
            protocol = next(protocols)
            for giver, taker in (("D", "A"), ("A", "D")):
                await self._move(protocol, giver, taker)

    async def _move(self, protocol: Protocol, giver: str, taker: str) -> None:
        """Until it has committed: the next move would find it at the wrong place."""
        while True:
            try:
                if protocol in PLANNED:
                    outcome = await self._engine.execute(self._plan(giver, taker), cast(PlanMode, protocol))
                    if outcome.state != "committed":
                        raise RuntimeError(f"a plan that nobody disturbs: {outcome}")
                else:
                    async with self._engine.transaction(cast(Mode, protocol), LIFETIME_S) as tx:
                        asked = f"{giver}>{taker}".encode()
                        await tx.tcm({"to": giver, **self._instance}, asked)
            except ClientError:
                self.others += 1
            else:
                self.committed += 1
                return

    def _plan(self, giver: str, taker: str) -> Plan:
        plan = Plan()
        at_giver = plan.tcm(giver)
        at_giver.tcm(taker).subscribe(self._instance)
        at_giver.unsubscribe(self._instance)
        return plan


async def answer(tcm: Tcm, frame: Frame) -> None:
    """As giver, ask the taker, and take back; as taker, subscribe."""
    instance = {"process": "p", "instance": tcm.event["instance"]}
    if tcm.payload:
        taker = tcm.payload.decode().partition(">")[2]
        await frame.tcm({"to": taker, **instance})
        await frame.unsubscribe(instance)
    else:
        await frame.subscribe(instance)


async def steady(overlay: Overlay, seconds: float, records_max: int = 0) -> list[str]:
    """What has grown; `records_max`: of records by more than so many."""
    first, middle, last = overlay.names
    places = {"E": first, "D": middle, "A": last}
    clients = {
        name: connect(overlay.address(place), client_id=name, on_tcm=answer, on_delivery=lambda _: None)
        for name, place in places.items()
    }
    engine, dispatcher, agent = [await clients[name].__aenter__() for name in "EDA"]
    try:
        await engine.advertise({"process": "p"})
        await dispatcher.subscribe({"process": "p"})
        for session in (engine, dispatcher, agent):
            for name in "EDA":
                await session.advertise({"to": name})
            await session.subscribe({"to": session.client_id})
            await session.settled()
        deadline = time.monotonic() + seconds
        lanes = [Lane(number, engine) for number in range(2)]
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(lane.run(deadline))
            group.create_task(_publish(engine, deadline))
            samples = group.create_task(_watch(overlay, lanes, deadline))
        return grown(samples.result(), records_max)
    finally:
        for client in clients.values():
            await client.__aexit__(None, None, None)


async def _publish(engine: Connection, deadline: float) -> None:
    number = 0
    while time.monotonic() < deadline:
        await engine.publish({"process": "p", "instance": number % 4, "n": number}, bytes(64))
        number += 1
        await asyncio.sleep(1 / EVENTS_PER_S)


async def _watch(
    overlay: Overlay, lanes: list[Lane], deadline: float
) -> list[tuple[float, dict[str, Sample]]]:
    began = time.monotonic()
    samples = []
    _say("    s  committed  others   " + "   ".join(f"{name}: MB  fds  records" for name in overlay.names))
    while time.monotonic() < deadline:
        await asyncio.sleep(min(LINE_S, max(0.1, deadline - time.monotonic())))
        now = time.monotonic() - began
        sample = {name: await look(overlay, name) for name in overlay.names}
        samples.append((now, sample))
        columns = [f"{s.rss_bytes / 1e6:6.1f}  {s.descriptors:3}  {s.records:7}" for s in sample.values()]
        committed, others = sum(lane.committed for lane in lanes), sum(lane.others for lane in lanes)
        _say(f"{now:5.0f}  {committed:9}  {others:6}  {'   '.join(columns)}")
    return samples


async def look(overlay: Overlay, name: str) -> Sample:
    counts = (await fetch_status(overlay.address(name)))["counts"]
    process = Path("/proc") / str(overlay.pid(name))
    rss_bytes = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Sample(rss_bytes, len(list((process / "fd").iterdir())), counts["srt"] + counts["prt"])


def grown(samples: list[tuple[float, dict[str, Sample]]], records_max: int = 0) -> list[str]:
    """The largest of the last third, beside the largest of what was warm and came before."""
    warm = [sample for at, sample in samples if at >= WARM_UP_S] or [sample for _, sample in samples]
    early, late = warm[: -len(warm) // 3 or None], warm[-(len(warm) // 3 or 1) :]
    found = []
    for name in early[0]:
        for field, allowed in (("rss_bytes", GROWTH_BYTES_MAX), ("descriptors", 0), ("records", records_max)):
            before = max(getattr(sample[name], field) for sample in early)
            after = max(getattr(sample[name], field) for sample in late)
            if after > before + allowed:
                found.append(f"{name}: {field} {before} -> {after}")
    return found


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(seconds: float) -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        brokers(Path(folder), [("b1", "b2"), ("b2", "b3")]) as overlay,
    ):
        faults = asyncio.run(steady(overlay, seconds))
    _say("\n".join(faults) or "nothing has grown")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
