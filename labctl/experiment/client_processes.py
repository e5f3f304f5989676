"""What labctl knows of the scenario clients: who takes part, their command lines, and what they print; pure.

A coordinator that is started with `--controlled` waits for a line `go` on its standard input at each of
three points, and says on its standard output, as one JSON object a line, when it has come there: `ready`
(everybody is), `warm` (the warm-up is over), `counted` (all transactions are over; everybody is still
connected). So copies of a scenario begin together, and messages can be counted between the points. A line
`stop` ends the transactions early. Between the points it tells of each transaction when it is over; at the
end, when everybody has had a last word, of each once more, with what then is certain.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Struct

from broker.protocol.delay import Delay
from client.scenarios.cases import by_name
from client.scenarios.stage import Cast, Disruption
from labctl.exits import LabError
from labctl.experiment.cell import Cell
from labctl.results import layout

AGENTS = 2
"""In every scenario, as in the paper."""
PATIENCE_S = 5.0
"""How long an acknowledgement is waited for; the wait of BL-WAIT comes on top."""


class DriverError(LabError):
    """A scenario client that says what nobody expects."""


class Client(Struct, frozen=True):
    name: str
    role: str
    copy: int
    coordinates: bool


class Instructions(Struct, frozen=True):
    """What every client of a repetition is told."""

    cell: Cell
    transactions: int
    """Counted, per coordinator."""
    warm_up: int = 0
    wait_ms: float | None = None
    delay: Delay = Delay()
    disruption: Disruption | None = None
    history_detail: str = "transactions"
    patience_s: float = PATIENCE_S


def suffix(cell: Cell, copy: int) -> str:
    """Of all names in a copy; a copy that is alone needs none."""
    return "" if cell.copies == 1 else f"-{copy}"


def roles(scenario: str) -> Cast:
    """Who plays in one copy of a scenario."""
    found: Cast = by_name.scenario(scenario).cast(AGENTS, "")
    return found


def cast(cell: Cell) -> list[Client]:
    """Copy by copy, those who coordinate last: the others should be there before them."""
    played = roles(cell.cast)
    first, others = played.coordinator, played.members
    return [
        Client(role + suffix(cell, copy), role, copy, role == first)
        for copy in range(cell.copies)
        for role in (*others, first)
    ]


def clients(cell: Cell) -> list[str]:
    return [client.name for client in cast(cell)]


def command(
    given: Instructions,
    client: Client,
    address: str,
    folder: PurePath,
    python: Sequence[str] = (sys.executable,),
) -> list[str]:
    """One client; its files go below `folder`, which may be on another machine."""
    cell = given.cell
    values: dict[str, object] = {
        "scenario": cell.scenario,
        "role": client.role,
        "approach": cell.approach,
        "broker": address,
        "agents": AGENTS,
        "suffix": suffix(cell, client.copy),
        "transactions": given.transactions + given.warm_up,
        "concurrency": cell.in_flight,
        "patience-s": given.patience_s + (given.wait_ms or 0.0) / 1e3,
        "history": folder / layout.lines_of(layout.HISTORY, client.name),
        "history-detail": given.history_detail,
        "log": folder / layout.lines_of(layout.NODES, client.name),
    }
    if given.wait_ms is not None:
        values["wait-ms"] = given.wait_ms
    if not given.delay.is_zero:
        values |= {"delay-ms": given.delay.delay_ms, "sigma": given.delay.sigma, "seed": given.delay.seed}
        if given.delay.stall_probability:
            low, high = given.delay.stall_ms
            values |= {"stall-probability": given.delay.stall_probability, "stall-ms": f"{low:g},{high:g}"}
    if given.disruption is not None:
        values |= _load(cell, given.disruption, folder / layout.lines_of(layout.RATES, client.name))
    if client.coordinates and given.warm_up:
        values["warm-up"] = given.warm_up
    # One word each: an empty or negative value must not be taken for the next option.
    options = [f"--{name}={value}" for name, value in values.items()]
    return [*python, "-m", "client", *options, *(["--controlled"] if client.coordinates else [])]


def _load(cell: Cell, disruption: Disruption, rates: PurePath) -> dict[str, object]:
    return {
        "work": cell.cast,
        "load": cell.load,
        "rounds": disruption.rounds,
        "events": disruption.events,
        "instances": disruption.instances,
        "open-share": disruption.open_share,
        "window-ms": disruption.window_ms,
        "rates": rates,
    }


# What a coordinator prints


class OutputLine(Struct):
    """One line of a coordinator's output, as far as it interests us."""

    event: str = ""
    transaction: int | None = None
    outcome: str = ""
    reason: str = ""
    tx: str = ""
    agent: str = ""
    instance: str = ""
    correct: bool | None = None
    wrong: bool = False
    latency_ms: float | None = None
    start_s: float | None = None
    outcome_s: float | None = None
    ack_s: float | None = None
    received_by: list[str] = []
    missing: list[str] = []
    """Those who should have got it and have not."""
    summary: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(OutputLine).decode


def parse(text: bytes) -> OutputLine:
    try:
        return _decode(text)
    except msgspec.MsgspecError as error:
        shown = text[:80].decode(errors="replace")
        raise DriverError(
            f"a coordinator printed {shown!r}, which is no line of its report: {error}"
        ) from None


class TransactionLine(Struct, frozen=True):
    """A transaction as it stands in `transactions.jsonl`."""

    copy: int
    number: int
    """From 1; the warm-up has the first ones."""
    tx: str
    warm_up: bool
    agent: str
    start_s: float | None
    outcome_s: float | None
    ack_s: float | None
    outcome: str
    """committed, aborted or unknown; BL-WAIT is committed when its last operation is on its way."""
    reason: str
    correct: bool | None
    """None: not known, because not everybody could be asked or the outcome is unknown."""
    fault: str
    """late-subscription, late-unsubscription, wrong-recipient, missed, or nothing."""
    received_by: tuple[str, ...] = ()


def record(line: OutputLine, given: Instructions, client: Client) -> TransactionLine:
    assert line.transaction is not None
    cut = suffix(given.cell, client.copy)
    names = tuple(name.removesuffix(cut) for name in line.received_by)
    return TransactionLine(
        copy=client.copy,
        number=line.transaction,
        tx=line.tx,
        warm_up=line.transaction <= given.warm_up,
        agent=line.agent.removesuffix(cut),
        start_s=line.start_s,
        outcome_s=line.outcome_s,
        ack_s=line.ack_s,
        outcome="committed" if line.outcome == "published" else line.outcome,
        reason=line.reason,
        correct=line.correct,
        fault=fault(given.cell, line, names),
        received_by=names,
    )


def fault(cell: Cell, line: OutputLine, received_by: Sequence[str]) -> str:
    """How a transaction went wrong. Without isolation it is always one of two operations that came late."""
    if line.correct is not False:
        return ""
    expected = {"C"} if cell.cast == "consolidation" else {line.agent.partition("-")[0]}
    leavers = {"A1", "A2"} if cell.cast == "consolidation" else {"D"}
    if line.missing or not expected <= {*received_by}:
        return "late-subscription" if cell.waits else "missed"
    if {*received_by} & (leavers - expected):
        return "late-unsubscription" if cell.waits else "wrong-recipient"
    return "wrong-recipient"


def latencies_ms(records: Sequence[TransactionLine]) -> list[float]:
    """The paper's: from the start to the agent's acknowledgement; of what is counted."""
    return [
        (r.ack_s - r.start_s) * 1e3
        for r in records
        if not r.warm_up and r.ack_s is not None and r.start_s is not None
    ]


def counted(broker: str, status: Mapping[str, Any]) -> dict[str, dict[str, int | None]]:
    """What a broker and, over their links to it, its clients have sent and got so far."""
    links = status["links"]
    nodes = {broker: _traffic(links)}
    for link in links:
        if link["kind"] == "client":
            seen = _traffic([link])
            nodes[link["name"]] = {
                "messages_in": seen["messages_out"],
                "messages_out": seen["messages_in"],
                "bytes_in": seen["bytes_out"],
                "bytes_out": seen["bytes_in"],
            }
    return nodes


def _traffic(links: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    return {
        "messages_in": sum(link["received"] for link in links),
        "messages_out": sum(link["sent"] for link in links),
        "bytes_in": _sum(links, "received_bytes"),
        "bytes_out": _sum(links, "sent_bytes"),
    }


def _sum(links: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """None where brokers do not count it."""
    if not all(name in link for link in links):
        return None
    return sum(int(link[name]) for link in links)
