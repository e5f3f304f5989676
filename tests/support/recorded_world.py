"""A simulated overlay whose brokers and clients keep histories at the level `all`, as real ones do."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker import recorded
from broker.core import Broker, Input
from broker.protocol import wire
from broker.protocol.events import FINISHED, FIRST, GIVEN
from broker.protocol.hops import Hop, broker_hop, is_client, name_of
from broker.protocol.link import Link
from broker.protocol.vocabulary import Message
from broker.recorded import Given
from broker.routing.joining import ClientArrived, ClientGone
from broker.serving.recording import RecordedBroker, RecordingFile
from labctl.simulate import world as simulated
from labctl.simulate.programs.programs import Program
from labctl.simulate.runner import SimResult, SimRun
from labctl.simulate.world import World


class Histories:
    """The lines of all nodes."""

    def __init__(self) -> None:
        self.lines: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.now = 0.0
        self._recordings: dict[str, RecordingFile] = {}
        self._links: dict[tuple[str, Hop], Link] = {}

    def broker(self, name: str, neighbours: Sequence[str], incarnation: int, *limits: Any) -> Broker:
        """In place of a plain core."""
        recording = RecordingFile(lambda event, fields: self.note(name, event, fields))
        self._recordings[name] = recording
        self.note(name, FIRST, {"role": "broker", "incarnation": incarnation, "detail": "all"})
        core = RecordedBroker(lambda given: self._given(name, given), name, neighbours, incarnation, *limits)
        recording.begin(core)
        for neighbour in neighbours:
            self._links[name, broker_hop(neighbour)] = recording.link(broker_hop(neighbour))
        publish = core.publish

        def told(source: Hop, messages: Any) -> Any:
            self._given(name, recorded.decided(source, messages))
            return publish(source, messages)

        core.publish = told
        return core

    def _given(self, name: str, given: Given) -> None:
        if given.client == ClientArrived.__name__:
            self._links[name, given.source] = self._recordings[name].link(given.source)
        elif given.client == ClientGone.__name__:
            self._links.pop((name, given.source), None)
        self.note(name, GIVEN, given)

    def put(self, name: str, hop: Hop, message: Input) -> None:
        link = self._links.get((name, hop))
        if link is not None and isinstance(message, Message):
            link.push(wire.encode(message))

    def note(self, node: str, name: str, fields: Mapping[str, Any] | msgspec.Struct) -> None:
        number = len(self.lines[node]) + 1
        line = {"node": node, "number": number, "time": self.now, "name": name, "fields": fields}
        self.lines[node].append(json.loads(msgspec.json.encode(line)))

    def write(self, folder: Path) -> Path:
        for recording in self._recordings.values():
            recording.end()
        for node, lines in self.lines.items():
            (folder / f"{node}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return folder


class RecordingWorld(World):
    histories: Histories

    def transmit(self, source: Hop, target: Hop, message: Input) -> None:
        self.histories.now = self.now
        if not is_client(source):
            self.histories.put(name_of(source), target, message)
        super().transmit(source, target, message)

    def step(self) -> bool:
        went_on = super().step()
        self.histories.now = self.now
        return went_on

    def record(self, node: str, name: str, fields: dict[str, Any]) -> None:
        if node not in self.histories.lines:
            first = {"role": "client", "incarnation": 1, "detail": "all"}
            self.histories.note(node, FIRST, first)
        self.histories.note(node, name, fields)
        super().record(node, name, fields)


def record(patch: pytest.MonkeyPatch, program: Program, folder: Path) -> SimResult:
    """Run a program; the histories of its nodes are in the folder then."""
    histories = Histories()

    class ThisWorld(RecordingWorld):
        pass

    ThisWorld.histories = histories
    with patch.context() as patched:
        patched.setattr(simulated, "Broker", histories.broker)
        result = SimRun(program, make_world=ThisWorld).execute()
    for client in result.world.clients.values():
        if client.is_alive:
            histories.note(client.client_id, FINISHED, {})
    histories.write(folder)
    return result
