"""Starts broker processes and waits until they are proven up: each says so, and each link stands.

Writes nothing down and stops nothing: that is `labctl.overlay`, which must do both also when this
module fails half-way.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from labctl import ports
from labctl.exits import INFRASTRUCTURE, USAGE, LabError, UsageProblem
from labctl.overlay_state import BrokerRecord
from labctl.patience import look_until
from labctl.topology import Topology

Document = dict[str, Any]
"""A broker's answer to a status request."""

LOOPBACK = "127.0.0.1"
POLL_S = 0.02
ASK_TIMEOUT_S = 2.0


class StartError(LabError):
    """A broker, or a link, that did not come up."""

    def __init__(self, text: str, exit_code: int = INFRASTRUCTURE) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Log:
    """A broker's log, as far as it has been read."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.ready = False
        self.reason = ""
        """Why it ended: its fatal event or, for want of one, the last thing it said in plain text."""
        self._offset = 0

    def read(self) -> None:
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            complete = file.read().rpartition(b"\n")[0]
        if complete:
            self._offset += len(complete) + 1
            for line in complete.split(b"\n"):
                self._take(line.decode(errors="replace").strip())

    def _take(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            self.reason = line or self.reason
            return
        if not isinstance(event, dict):
            return
        if event.get("event") == "ready":
            self.ready = True
        if event.get("event") == "fatal":
            self.reason = str(event.get("reason", ""))


class Child:
    """A broker process that we have started."""

    def __init__(self, record: BrokerRecord) -> None:
        self.record = record
        self.log = Log(record.log)
        self.pid = _spawn(record)

    def check(self) -> None:
        """Raise when the broker has ended, with the reason that it gave itself."""
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        self.log.read()
        if not ended:
            return
        code = os.waitstatus_to_exitcode(status)
        how = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        reason = self.log.reason.rstrip(".") or how
        text = f"broker {self.record.id} did not stay up: {reason} (log: {self.record.log})"
        raise StartError(text, code if code in (USAGE, INFRASTRUCTURE) else INFRASTRUCTURE)


def _spawn(record: BrokerRecord) -> int:
    with open(record.log, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "broker", "--config", record.config],
            # Python looks for modules here first: the folder holds none that could hide `broker`.
            cwd=Path(record.config).parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # It is meant to outlive us. Without this, Python would complain that nobody waits for it.
    process.returncode = 0
    return process.pid


def reserved_ports(count: int) -> AbstractContextManager[list[int]]:
    """Free loopback ports, held until the block ends."""
    return ports.reserved(count, LOOPBACK)


def ports_from(base_port: int, count: int) -> list[int]:
    if not 1 <= base_port <= 65_535 - count + 1:
        raise UsageProblem(f"{count} ports from {base_port} up do not lie between 1 and 65535")
    return list(range(base_port, base_port + count))


def wait_until_ready(children: Sequence[Child], deadline: float) -> None:
    """Until every broker has said that it is ready; `deadline` by the monotonic clock."""

    def still_silent() -> list[Child]:
        for child in children:
            child.check()
        return [child for child in children if not child.log.ready]

    silent = look_until(operator.not_, still_silent, deadline - time.monotonic(), POLL_S)
    if silent:
        names = ", ".join(child.record.id for child in silent)
        raise StartError(f"not ready in time: broker {names} (log: {silent[0].record.log})")


def wait_until_linked(topology: Topology, children: Sequence[Child], deadline: float) -> None:
    """Until every link is up at both ends and every broker knows every other."""
    asyncio.run(_until_linked(topology, children, deadline))


async def _until_linked(topology: Topology, children: Sequence[Child], deadline: float) -> None:
    addresses = {child.record.id: child.record.address for child in children}
    while True:
        for child in children:
            child.check()
        answers = await ask(addresses, timeout_s=ASK_TIMEOUT_S)
        documents = {broker: answer for broker, answer in answers.items() if isinstance(answer, dict)}
        missing = missing_in(topology, documents)
        if not missing:
            return
        if time.monotonic() > deadline:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            logs = Path(children[0].record.log).parent
            raise StartError(f"the overlay did not come up in time: {missing[0]}{more} (logs: {logs})")
        await asyncio.sleep(POLL_S)


def missing_in(topology: Topology, documents: Mapping[str, Document]) -> list[str]:
    """What the brokers' answers lack to be this overlay, one phrase each."""
    missing = [f"broker {broker} does not answer" for broker in topology.brokers if broker not in documents]
    for link in topology.links:
        for here, there in (link, link[::-1]):
            if here in documents and there not in _linked_brokers(documents[here]):
                missing.append(f"the link {here} - {there} is not up at {here}")
    for broker, document in documents.items():
        unknown = sorted(set(topology.brokers) - {broker} - set(document["overlay"]))
        if unknown:
            missing.append(f"broker {broker} does not know {', '.join(unknown)}")
    return missing


async def ask(
    addresses: Mapping[str, str], dump: bool = False, timeout_s: float = 5.0
) -> dict[str, Document | str]:
    """Every broker at once; a sentence instead of a document where one does not answer."""
    # Imported here because only commands that talk to brokers should pay for loading the client.
    from client import observer

    return await observer.ask(addresses, dump, timeout_s)


def _linked_brokers(document: Document) -> set[str]:
    return {link["name"] for link in document["links"] if link["kind"] == "broker" and link["state"] == "up"}
