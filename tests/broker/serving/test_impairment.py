"""Links that are cut or slow on purpose: nothing gets through, or later, and nothing is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest

from broker.node.log import JsonLog
from broker.protocol.delay import Delay
from broker.serving.impairment import Impairment, SlowedLine
from broker.serving.peer import Peer
from client import Delivery, connect
from tests.support.brokers import Overlay, brokers, wait_for

DATA = {"space": "data"}


def impairment(path: Path, said: int | None = None) -> Impairment:
    return Impairment(str(path), JsonLog(os.open(os.devnull, os.O_WRONLY) if said is None else said, "b1"))


def test_a_slow_line_adds_to_each_message_and_keeps_their_order() -> None:
    line = SlowedLine(Delay(10), "broker:b2")
    assert line.due(1.0) == pytest.approx(1.01)
    line.by_s = 0.05
    assert line.due(1.1) == pytest.approx(1.16)
    line.by_s = 0.0
    assert line.due(1.11) == pytest.approx(1.16)
    assert line.due(1.2) == pytest.approx(1.21)


def test_without_a_file_links_are_as_they_are() -> None:
    found = Impairment("", JsonLog(os.open(os.devnull, os.O_WRONLY), "b1"))
    assert found.delaying(Delay(), "broker:b2") is None
    assert found.delaying(Delay(5), "broker:b2") is not None


def test_only_links_to_neighbours_can_be_slowed(tmp_path: Path) -> None:
    found = impairment(tmp_path / "b1.json")
    assert found.delaying(Delay(), "client:E") is None
    assert found.delaying(Delay(), "broker:b2") is not None


def test_who_waits_for_a_link_goes_on_when_it_is_not_cut_any_more(tmp_path: Path) -> None:
    path = tmp_path / "b1.json"

    async def run() -> None:
        found = impairment(path)
        path.write_text('{"cut": ["b2"]}')
        found.look()
        await asyncio.wait_for(found.passable("broker:b3"), 1)
        waiting = asyncio.create_task(found.passable("broker:b2"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        path.write_text("{}")
        found.look()
        await asyncio.wait_for(waiting, 1)

    asyncio.run(run())


@pytest.mark.parametrize("text", ["{", '{"cuts": []}', '{"slow": {"b2": -1}}', "[]"])
def test_a_file_that_makes_no_sense_changes_nothing(tmp_path: Path, text: str) -> None:
    path, told = tmp_path / "b1.json", tmp_path / "log"

    async def run() -> None:
        found = impairment(path, os.open(told, os.O_WRONLY | os.O_CREAT))
        path.write_text('{"cut": ["b2"]}')
        found.look()
        path.write_text(text)
        found.look()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(found.passable("broker:b2"), 0.01)

    asyncio.run(run())
    assert [json.loads(line)["event"] for line in told.read_text().splitlines()] == [
        "links",
        "control-unreadable",
    ]


def test_the_delay_of_a_peer_is_made_by_whoever_may_slow_it(tmp_path: Path) -> None:
    path = tmp_path / "b1.json"

    async def run() -> None:
        found = impairment(path)
        peer = Peer("broker:b2", "broker", Delay(), 10.0, found.delaying)
        path.write_text('{"slow": {"b2": 20}}')
        found.look()
        peer.put(b"x")
        peer.flush()
        assert peer.link.queue_messages == 0
        await asyncio.sleep(0.05)
        assert peer.link.queue_messages == 1
        peer.close()

    asyncio.run(run())


class Impaired:
    """Two brokers, and the control files of both."""

    def __init__(self, folder: Path, overlay: Overlay) -> None:
        self.folder = folder
        self.overlay = overlay

    def now(self, **links: object) -> None:
        for name, other in (("b1", "b2"), ("b2", "b1")):
            text = json.dumps(links).replace("OTHER", other)
            (self.folder / f"{name}.json").write_text(text)
            before = len(self.overlay.log(name, "links"))
            self.overlay.signal(name, signal.SIGUSR1)
            wait_for("the signal", lambda n=name, b=before: len(self.overlay.log(n, "links")) > b)  # type: ignore[misc]

    def states(self) -> set[str]:
        return {link["state"] for name in ("b1", "b2") for link in self.overlay.status(name)["links"]}


@pytest.mark.slow
def test_a_cut_link_is_down_until_it_is_lifted_and_loses_nothing(tmp_path: Path) -> None:
    with brokers(tmp_path, [("b1", "b2")], start=False) as overlay:
        for name in overlay.names:
            config = tmp_path / f"{name}.toml"
            config.write_text(f'control = "{tmp_path / name}.json"\n' + config.read_text())
            overlay.start(name)
        overlay.wait_until_linked()
        impaired = Impaired(tmp_path, overlay)

        async def publish() -> tuple[list[int], float]:
            got: list[int] = []

            def take(delivery: Delivery) -> None:
                got.append(int(delivery.event["n"]))

            async with (
                connect(overlay.address("b2"), client_id="A", on_delivery=take) as there,
                connect(overlay.address("b1"), client_id="E") as here,
            ):
                await here.advertise(DATA)
                await here.settled()
                await there.subscribe(DATA)
                await there.settled()
                for n in range(300):
                    if n == 100:
                        await asyncio.to_thread(impaired.now, cut=["OTHER"])
                        assert await asyncio.to_thread(impaired.states) == {"away", "up"}
                    if n == 200:
                        before = len(got)
                        await asyncio.to_thread(impaired.now)
                        assert before <= 100
                    await here.publish({**DATA, "n": n})
                await here.settled()
                await asyncio.to_thread(impaired.now, slow={"OTHER": 200})
                began = time.monotonic()
                await here.publish({**DATA, "n": 300})
                while len(got) < 301:
                    await asyncio.sleep(0.005)
                return got, time.monotonic() - began

        got, took_s = asyncio.run(publish())
        assert got == list(range(301))
        assert took_s >= 0.2
