"""What a recorded core and recorded links write down, and that others do nothing of the kind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.config import NodeConfig
from broker.core import Broker
from broker.node.log import JsonLog
from broker.protocol.link import Link
from broker.protocol.messages import Announce, Publish
from broker.recorded import Given, decided
from broker.routing.joining import ClientArrived
from broker.serving.recording import RecordedBroker, RecordingFile
from broker.serving.server import Server
from labctl.simulate.recorded import reading, repetition
from tests.support import recordings
from tests.support.observe import cuttable_overlay, in_loop, link_becomes


class Notes:
    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, Any]]] = []

    def note(self, name: str, fields: Mapping[str, Any] | msgspec.Struct) -> None:
        self.found.append((name, msgspec.to_builtins(fields)))


def test_a_link_tells_every_message_where_it_gets_its_number_queued_or_not() -> None:
    notes = Notes()
    link, plain = RecordingFile(notes.note).link("client:E"), Link()
    for each in (link, plain):
        each.window_bytes = 4
        frames = [each.pass_on(b"abc", 3), each.pass_on(b"d", 1), each.pass_on(b"ef", 2)]
        assert [frame is None for frame in frames] == [False, False, True]
        each.push(b"g")
        each.acknowledge(4)
        assert each.take() is not None
    assert (link.taken, link.sent, link.queue_bytes) == (plain.taken, plain.sent, plain.queue_bytes)
    told = [(fields["first"], fields["count"]) for _, fields in notes.found]
    assert told == [(1, 3), (4, 1), (5, 2), (7, 1)]


def test_who_comes_again_has_another_link() -> None:
    notes = Notes()
    recording = RecordingFile(notes.note)
    for _ in range(2):
        recording.link("client:E").push(b"a")
    assert [fields["life"] for _, fields in notes.found] == [1, 2]


def test_what_a_core_is_given_stands_before_what_follows_from_it() -> None:
    names = [line["name"] for line in recordings.life()]
    assert names[:4] == ["history", "made", "given", "put"]
    assert names[-1] == "closed"
    given = [line["fields"] for line in recordings.life() if line["name"] == "given"]
    assert [g["act"] for g in given][:2] == ["start", "handle"]
    assert [g["count"] for g in given if g["act"] == "decide"] == [4]
    assert [g["now"] for g in given if g["act"] == "expire"] == [3.0]


def test_a_publication_alone_is_told_like_several() -> None:
    told: list[Given] = []
    core = RecordedBroker(told.append, "b1", [], 1)
    core.handle(0.0, "client:E", ClientArrived(7))
    message = Publish(1, {"a": 1}, b"")
    core.decide_one("client:E", message)
    core.decide("client:E", [message])
    assert told[1:] == [decided("client:E", [message])] * 2


def test_nothing_can_be_asked_of_a_core_behind_the_back_of_its_recording() -> None:
    """Whoever gives the core another door writes down what comes by it, and adds it here."""
    told: list[Given] = []
    recorded, plain = RecordedBroker(told.append, "b1", ["b2"], 7), Broker("b1", ["b2"], 7)
    doors = {name for name in dir(plain) if not name.startswith("_") and callable(getattr(plain, name))}
    assert doors == {"start", "handle", "expire", "decide", "decide_one", "publish"}
    recorded.start()
    recorded.handle(1.0, "broker:b2", Announce("b2", 3, ""))
    recorded.expire(2.0)
    message = Publish(1, {"x": 1}, b"")
    recorded.decide("broker:b2", (message, message))
    recorded.decide_one("broker:b2", message)
    assert [(given.act, given.now, given.count) for given in told] == [
        ("start", 0.0, 0),
        ("handle", 1.0, 1),
        ("expire", 2.0, 0),
        ("decide", 0.0, 2),
        ("decide", 0.0, 1),
    ]


@pytest.mark.parametrize(
    ("history", "detail", "is_recorded"),
    [("b1.jsonl", "all", True), ("b1.jsonl", "transactions", False), ("", "all", False)],
)
def test_who_keeps_no_recording_has_a_plain_core_and_plain_links(
    tmp_path: Path, history: str, detail: Any, is_recorded: bool
) -> None:
    async def make() -> Server:
        file = str(tmp_path / history) if history else ""
        config = NodeConfig("b1", "127.0.0.1:0", history=file, history_detail=detail)
        return Server(config, JsonLog(os.open(os.devnull, os.O_WRONLY), "b1"))

    core = asyncio.run(make()).core
    assert type(core) is (RecordedBroker if is_recorded else Broker)


@pytest.mark.slow
@in_loop
async def test_a_connection_that_is_lost_is_in_the_recordings_of_both_brokers(tmp_path: Path) -> None:
    """And the replay says so, and reproduces what came before and after it."""
    recorded = tmp_path / "recorded"
    recorded.mkdir()

    def keep_all(name: str, text: str) -> str:
        return f'history = "{recorded / name}.jsonl"\nhistory_detail = "all"\n{text}'

    async with cuttable_overlay(tmp_path, [("b1", "b2")], rewrite=keep_all) as (overlay, links):
        links["b1", "b2"].take_away()
        await link_becomes(overlay.address("b2"), "broker:b1", state="away")
        links["b1", "b2"].bring_back()
        await link_becomes(overlay.address("b2"), "broker:b1", state="up")
        assert [overlay.stop(name) for name in overlay.names] == [0, 0]
    replayed = repetition.replay(reading.load(recorded)).nodes
    assert [(node.node, node.is_reproduced) for node in replayed] == [("b1", True), ("b2", True)]
    assert all(node.lost for node in replayed)
