"""Our end of the line to the agent of one host, whether it is a pipe or a channel of SSH.

Requests are answered in order; news (a line that a process has printed, a process that has ended, a host
that is lost) of all hosts come together in one queue. Nothing waits for ever.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from labctl.exits import LabError
from labctl.faults.steps import Phase

REQUEST_S = 30.0
"""For an agent to answer; stopping processes, which takes longest, has its own limits inside."""


class HostLost(LabError):
    """The line to a host's agent has ended."""


class StationError(LabError):
    """A host's agent could not do what it was asked for."""


class AgentLine(Protocol):
    def send(self, data: bytes) -> None: ...
    def receive(self) -> bytes:
        """Whatever has come; nothing when the line has ended."""

    def close(self) -> None: ...
    def why(self) -> str:
        """What there is to say about the end of the line."""


class Said(Struct, frozen=True):
    """A process has printed a line."""

    name: str
    text: str


class ProcessEnd(Struct, frozen=True):
    name: str
    code: int
    last: str
    """The last thing that it wrote to its standard error."""


class Lost(Struct, frozen=True):
    host: str
    why: str


class Struck(Struct, frozen=True):
    """A step of a fault has been done, or could not be."""

    fault: int
    phase: Phase
    node: str
    time_s: float
    error: str


News = Said | ProcessEnd | Lost | Struck


class Answer:
    """What will be the answer to a request."""

    def __init__(self, station: Station, what: str) -> None:
        self._station = station
        self._what = what
        self.arrived: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def get(self, limit_s: float = REQUEST_S) -> dict[str, Any]:
        host = self._station.host
        try:
            found = self.arrived.get(timeout=limit_s)
        except queue.Empty:
            raise HostLost(f"host {host} did not answer to {self._what!r} within {limit_s:g} s") from None
        if found is None:
            raise HostLost(f"host {host} is lost: {self._station.why}")
        if "error" in found:
            raise StationError(f"host {host}: {found['error']}")
        return found


class Station:
    """The agent of one host."""

    def __init__(self, host: str, pipe: AgentLine, inbox: queue.SimpleQueue[News]) -> None:
        self.host = host
        self.why = ""
        self.left: list[str] = []
        """What an earlier run had left on the host, and was stopped."""
        self.heard_at = time.monotonic()
        """When it last said anything."""
        self._pipe = pipe
        self._inbox = inbox
        self._waiting: dict[int, Answer] = {}
        self._next = 0
        self._guard = threading.Lock()
        self._hello = Answer(self, "hello")
        self._reader = threading.Thread(target=self._read, name=f"agent of {host}", daemon=True)
        self._reader.start()

    @property
    def is_lost(self) -> bool:
        return bool(self.why)

    def wait_until_up(self, limit_s: float = REQUEST_S) -> None:
        self.left = self._hello.get(limit_s)["left"]

    def ask(self, do: str, **fields: object) -> Answer:
        """Sends at once; the answer is waited for when it is needed, so that many hosts work in parallel."""
        answer = Answer(self, do)
        with self._guard:
            if self.why:
                answer.arrived.put(None)
                return answer
            self._next += 1
            number = self._next
            self._waiting[number] = answer
            with suppress(OSError):  # the reader sees the same end, and tells why
                self._pipe.send(msgspec.json.encode({"id": number, "do": do, **fields}) + b"\n")
        return answer

    def close(self) -> None:
        """The agent stops what it has started, and ends."""
        self._pipe.close()
        self._reader.join(REQUEST_S)

    def _read(self) -> None:
        rest = b""
        while block := self._receive():
            self.heard_at = time.monotonic()
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._take(line)
        with self._guard:
            self.why = self._pipe.why() or "its agent has ended"
            waiting, self._waiting = self._waiting, {}
        for answer in (self._hello, *waiting.values()):
            answer.arrived.put(None)
        self._inbox.put(Lost(self.host, self.why))

    def _receive(self) -> bytes:
        try:
            return self._pipe.receive()
        except OSError:
            return b""

    def _take(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except msgspec.MsgspecError:
            message = None
        if not isinstance(message, dict):
            # A login script that prints something; not from the agent.
            return
        if "hello" in message:
            self._hello.arrived.put(message)
        elif "line" in message:
            self._inbox.put(Said(message["line"], message["text"]))
        elif "fault" in message:
            self._inbox.put(msgspec.convert(message, Struck))
        elif "ended" in message:
            self._inbox.put(ProcessEnd(message["ended"], message["code"], message["last"]))
        else:
            with self._guard:
                answer = self._waiting.pop(message["re"], None)
            if answer is not None:
                answer.arrived.put(message)


def ask_all(stations: Iterable[Station], do: str, limit_s: float = REQUEST_S, **fields: object) -> list[Any]:
    """The same request to many, at once."""
    answers = [station.ask(do, **fields) for station in stations]
    return [answer.get(limit_s) for answer in answers]
