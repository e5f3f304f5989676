"""A broker without sockets that keeps a recording: of a short life, with one of everything in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from broker.config import Neighbour, NodeConfig
from broker.protocol import wire
from broker.protocol.delay import Delay
from broker.protocol.dtx import Begin, Begun, Commit, Prepare, Prepared, TxAck, TxPublish
from broker.protocol.events import FIRST
from broker.protocol.filters import make_filter
from broker.protocol.hops import Hop, broker_hop, client_hop
from broker.protocol.link import Link
from broker.protocol.messages import Announce, Join, JoinAnswer, Leave, Operation, Publish, Refused, Request
from broker.protocol.vocabulary import D_TX, NO_KEY
from broker.protocol.wire import AnyMessage
from broker.routing.joining import ClientArrived, ClientAway, ClientBack, ClientGone
from broker.routing.ready import Ready
from broker.serving.recording import RecordingFile

B2, E = broker_hop("b2"), client_hop("E")
SPACE = make_filter({"s": "x"})
TX = "E/5/1"

Line = dict[str, Any]


class Desk:
    """What a server does for one broker, b1, with one neighbour, b2."""

    def __init__(self, detail: str = "all") -> None:
        self.lines: list[Line] = []
        self._numbers = count(1)
        self._note(FIRST, {"role": "broker", "incarnation": 7, "detail": detail})
        self._recording = RecordingFile(self._note)
        config = NodeConfig("b1", "here:0", neighbours=(Neighbour("b2", "", Delay()),))
        self.core = self._recording.core(config, 7)
        self.core.state.keeps_history = True
        self._recording.begin(self.core)
        self._links: dict[Hop, Link] = {B2: self._recording.link(B2)}
        self._carry_out(self.core.start())

    def take(self, now: float, source: Hop, message: Any) -> None:
        if isinstance(message, ClientArrived):
            self._links[source] = self._recording.link(source)
        elif isinstance(message, ClientGone):
            del self._links[source]
        self._carry_out(self.core.handle(now, source, message))

    def decide(self, source: Hop, *messages: Publish) -> None:
        decision = self.core.decide(source, messages)
        for place, reason in decision.refused.items():
            self._put(source, Refused(messages[place].id, reason))
        for message, hops in zip(messages, decision.hops, strict=True):
            for hop in hops:
                if hop != source:
                    self._put(hop, message)

    def expire(self, now: float) -> None:
        self._carry_out(self.core.expire(now))

    def close(self) -> list[Line]:
        self._recording.end()
        return self.lines

    def _carry_out(self, ready: Ready) -> None:
        for hop, message in ready.sends:
            self._put(hop, message)
        for notice in ready.notices:
            self._note(notice.name, notice.fields)

    def _put(self, hop: Hop, message: AnyMessage) -> None:
        if hop in self._links:
            self._links[hop].pass_on(wire.encode(message), 1)

    def _note(self, name: str, fields: Mapping[str, Any] | msgspec.Struct) -> None:
        number = next(self._numbers)
        line = {"node": "b1", "number": number, "time": 0.25 * number, "name": name, "fields": fields}
        self.lines.append(json.loads(msgspec.json.encode(line)))


def life(detail: str = "all") -> list[Line]:
    """E joins at b1, and A at b2, who subscribes; E publishes, regularly and in a transaction, and leaves."""
    desk = Desk(detail)
    desk.take(1.0, B2, Announce("b2", 3, ""))
    desk.take(1.1, E, ClientArrived(5))
    desk.take(1.2, B2, JoinAnswer("E", 5, "b1", ""))
    desk.take(1.3, B2, Join("A", 6, "b2"))
    desk.take(1.4, E, Request(1, "adv", SPACE))
    desk.take(1.5, B2, Operation("sub", "A", (NO_KEY, 1, 6, 1), SPACE))
    desk.decide(E, *(Publish(n, {"s": "x", "n": n}, b"-") for n in range(1, 4)), Publish(4, {"s": "y"}, b""))
    desk.take(2.0, E, ClientAway())
    desk.take(2.1, E, ClientBack())
    desk.take(2.2, E, Begin(TX, D_TX, NO_KEY, 1000))
    desk.take(2.3, B2, Begun(TX))
    desk.take(2.4, E, TxPublish(TX, 1, "pub", {"s": "x", "n": 5}, b""))
    desk.take(2.5, B2, TxAck(TX, 1, "", 1))
    desk.take(2.6, E, Prepare(TX))
    desk.take(2.7, B2, Prepared(TX))
    desk.take(2.8, E, Commit(TX))
    desk.expire(3.0)
    desk.take(3.1, E, ClientGone("it said goodbye"))
    desk.take(3.2, B2, Leave("A", 6, "b2"))
    return desk.close()


def write(folder: Path, lines: Iterable[Line], node: str = "b1") -> Path:
    """As the history of a node; lines are numbered anew, those of others put in the node's name."""
    folder.mkdir(parents=True, exist_ok=True)
    told = [{**line, "node": node, "number": number} for number, line in enumerate(lines, 1)]
    (folder / f"{node}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in told))
    return folder
