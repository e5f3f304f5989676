"""For a dry run: hosts that only write down what they are asked, and answer as hosts would.

Everything above is the run's own code, so what is written down cannot differ from what a run does.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from labctl.run.observer import OBSERVER
from labctl.testbeds.labs.lab import Host
from labctl.testbeds.ssh.connections import Connections
from labctl.testbeds.ssh.line import BreakableLine
from labctl.testbeds.ssh.play import Player, in_words, words
from playbooks.steps import Playbook, shell

PORT = "PORT"
"""Free ones are asked for when the time has come."""

Made = TypeVar("Made")
Request = Mapping[str, Any]


class Recorder(Player):
    """In the place of the one who does the steps of playbooks; opens no connection."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections)
        self.lines: dict[str, list[str]] = {host.name: [] for host in self.lab.hosts}
        """By host: commands, each with what it is for."""
        self.about = ""
        """What all of it is for now."""

    def on(self, host: Host, playbook: Playbook[Made]) -> Made:
        lines, made = words(playbook, self.about)
        self.lines[host.name] += lines
        return made

    def attach(self, host: Host, playbook: Playbook[None]) -> BreakableLine:
        self.lines[host.name].append(in_words(next(playbook), self.about))
        return _Agent(lambda command, why: self._write(host, command, why))

    def _write(self, host: Host, command: str, why: str) -> None:
        about = f"{self.about}: " if self.about else ""
        self.lines[host.name].append(f"{command}    # {about}{why}")


class _Agent:
    """Agent and line in one: takes the requests of `labctl.host.agent`."""

    def __init__(self, write: Callable[[str, str], None]) -> None:
        self._write = write
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._say({"hello": 0, "left": []})

    def send(self, data: bytes) -> None:
        request = msgspec.json.decode(data)
        do = request["do"]
        if do in _COMMANDS:
            self._write(*_COMMANDS[do](request))
        self._say({"re": request["id"], **_ANSWERS[do](request)})
        if do == "tell" and request["name"] == OBSERVER:
            found = _observed(msgspec.json.decode(request["text"]))
            self._say({"line": OBSERVER, "text": msgspec.json.encode(found).decode()})

    def receive(self) -> bytes:
        return self._answers.get()

    def close(self) -> None:
        self._answers.put(b"")

    def give_up(self, why: str) -> None:
        raise AssertionError(f"answers at once: {why}")

    def why(self) -> str:
        return ""

    def _say(self, message: Request) -> None:
        self._answers.put(msgspec.json.encode(message) + b"\n")


def _start(request: Request) -> tuple[str, str]:
    command = request["command"]
    kind, name = command[command.index("-m") + 1].rpartition(".")[2], request["name"]
    return shell(command), name if name == kind else f"{kind} {name}"


# What an agent does to its host, as the command that does the same. All else are questions.
_COMMANDS: dict[str, Callable[[Request], tuple[str, str]]] = {
    "begin": lambda request: (
        shell(["mkdir", "-p", *(f"{request['folder']}/{name}" for name in request["folders"])]),
        "a place for files",
    ),
    "write": lambda request: (f"cat > {shell([request['path']])}", "its settings"),
    "start": _start,
    "stop": lambda request: ("kill PID ...", "whatever still runs"),
    "remove": lambda request: (shell(["rm", "-rf", "--", request["path"]]), "of earlier runs"),
}

_ANSWERS: dict[str, Callable[[Request], Request]] = {
    **dict.fromkeys(("begin", "write", "stop", "remove", "tell", "ping"), lambda request: {}),
    "start": lambda request: {"pid": 0, "started": 0},
    "ports": lambda request: {"ports": [PORT] * request["count"]},
    "facts": lambda request: {"facts": {}},
    "echo": lambda request: {"port": PORT},
    "round_trips": lambda request: {"ms": dict.fromkeys(request["targets"])},
}


def _observed(request: Request) -> Request:
    """Of brokers that are all up."""
    if "prove" in request:
        return {"took_ms": {}}
    brokers = list(request["ask"])
    links = [{"name": broker, "kind": "broker", "state": "up"} for broker in brokers]
    return {"brokers": {broker: {"overlay": brokers, "links": links} for broker in brokers}}
