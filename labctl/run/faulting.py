"""The faults of a repetition: what agents are told of them, how long they go on, and what is written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from labctl.experiment.client_processes import Instructions, TransactionLine
from labctl.faults.done import FaultDone
from labctl.faults.plan import FaultPlan, NodeFault
from labctl.faults.steps import FaultStep
from labctl.results import layout
from labctl.run.station import Struck

TRANSACTIONS_MAX = 10**6
"""More than there can be."""
REJOIN_S = 3.0
"""For a client that was started again to take up its part."""


def request(step: FaultStep, at: str, is_broker: bool) -> dict[str, object]:
    """What the agent of a host is told of a step, whose files are below `at`."""
    node = step.node
    return {
        "at_s": step.at_s,
        "fault": step.fault,
        "phase": step.phase,
        "node": node,
        "do": step.do,
        "text": step.text,
        "control": f"{at}/{layout.CONTROL}/{node}.json",
        "data": f"{at}/{layout.DATA}/{node}.data",
        # A killed writer leaves a torn end, behind which nobody must write.
        "files": [f"{at}/{layout.lines_of(kind, node)}" for kind in (layout.HISTORY, layout.NODES)],
        # A client that comes back is another life of it; a broker goes on with its lines.
        "apart": [] if is_broker else [f"{at}/{layout.lines_of(layout.HISTORY, node)}"],
        "more": [] if is_broker else ["--returns"],
    }


def endless(given: Instructions, plan: FaultPlan) -> Instructions:
    """As many transactions as there are until somebody says stop; who waits for one waits out the longest fault."""
    disruption = given.disruption
    return replace(
        given,
        transactions=TRANSACTIONS_MAX,
        patience_s=given.patience_s + plan.longest_s,
        disruption=None if disruption is None else replace(disruption, rounds=TRANSACTIONS_MAX),
    )


class Faulting:
    """Of the part that is counted."""

    def __init__(self, plan: FaultPlan, folder: Path, struck: Callable[[], list[Struck]]) -> None:
        self.plan = plan
        self.began_s: dict[str, float] = {}
        """By client: the time of its host from which faults count."""
        self._path = folder / layout.FAULTS
        self._struck = struck
        self._end = 0.0
        # Also where nothing happens before the run fails.
        self._path.touch()

    def begin(self, began_s: dict[str, float]) -> None:
        self.began_s = began_s
        self._end = time.monotonic() + self.plan.lasts_s

    @property
    def is_over(self) -> bool:
        self.keep()
        return time.monotonic() >= self._end

    def keep(self) -> None:
        """A line as soon as something has happened: also of a repetition that fails."""
        for news in self._struck():
            what = str(self.plan.faults[news.fault - 1])
            line = FaultDone(news.fault, news.phase, news.node, news.time_s, what)
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")

    def excused(self, record: TransactionLine) -> TransactionLine:
        """Of a client that is gone nothing is promised: whether a transaction beside its kill was right is not known."""
        if record.correct is not False or record.start_s is None:
            return record
        zero_s = min(self.began_s.values())
        start_s, end_s = record.start_s - zero_s, (record.outcome_s or inf) - zero_s
        kills = [
            f
            for f in self.plan.faults
            if isinstance(f, NodeFault) and f.kind == "kill" and f.node.role == "client"
        ]
        if any(start_s < kill.end_s + REJOIN_S and end_s > kill.at_s for kill in kills):
            return replace(record, correct=None, fault="")
        return record

    def description(self) -> dict[str, Any]:
        """For `cell.json`."""
        return {"plan": self.plan.document(), "began_s": self.began_s}
