"""Whether an overlay is up: each broker process still runs, and each link is proven to stand.

Writes nothing down and stops nothing: that is `labctl.overlay.local` on this machine and `labctl.run.crew` in a run,
which must do both also when this module fails half-way.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from labctl.exits import INFRASTRUCTURE, USAGE, LabError, UsageProblem
from labctl.host import launcher, ports
from labctl.host.launcher import Launch
from labctl.overlay.state import BrokerRecord
from labctl.retry import look_until
from labctl.topology import Topology
from playbooks import start

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


class BrokerProcess:
    """A broker process that we have started."""

    def __init__(self, record: BrokerRecord) -> None:
        self.record = record
        self._log = Path(record.log)
        command = start.broker([sys.executable], record.config)
        # Python looks for modules in the folder first: it holds none that could hide `broker`.
        self.pid = launcher.start(
            Launch(command, Path(record.config).parent, errors=self._log, output=self._log)
        )

    def check(self) -> None:
        """Raise when the broker has ended, with the reason that it gave itself."""
        code = launcher.exit_code(self.pid)
        if code is None:
            return
        text = launcher.ended(f"broker {self.record.id}", code, launcher.last_words(self._log))
        raise StartError(
            f"{text} (log: {self._log})", code if code in (USAGE, INFRASTRUCTURE) else INFRASTRUCTURE
        )


def reserved_ports(count: int) -> AbstractContextManager[list[int]]:
    """Free loopback ports, held until the block ends."""
    return ports.reserved(count, LOOPBACK)


def ports_from(base_port: int, count: int) -> list[int]:
    if not 1 <= base_port <= 65_535 - count + 1:
        raise UsageProblem(f"{count} ports from {base_port} up do not lie between 1 and 65535")
    return list(range(base_port, base_port + count))


def wait_until_linked(
    topology: Topology, look: Callable[[], Mapping[str, Document | str]], limit_s: float, logs: Path
) -> None:
    """Until every link is up at both ends and every broker knows every other; `look` asks the brokers."""
    missing = look_until(operator.not_, lambda: missing_in(topology, look()), limit_s, POLL_S)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise StartError(f"the overlay did not come up in time: {missing[0]}{more} (logs: {logs})")


def missing_in(topology: Topology, answers: Mapping[str, Document | str]) -> list[str]:
    """What the brokers' answers lack to be this overlay, one phrase each."""
    documents = {broker: answer for broker, answer in answers.items() if isinstance(answer, dict)}
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
    from client.asking import observer

    return await observer.ask(addresses, dump, timeout_s)


def _linked_brokers(document: Document) -> set[str]:
    return {link["name"] for link in document["links"] if link["kind"] == "broker" and link["state"] == "up"}
