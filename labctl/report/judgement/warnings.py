"""Why a result should not be believed, in sentences. Nothing here changes a number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from labctl.checks.repetition import COMMITS, WHOLE
from labctl.experiment.schedule import PROFILES
from labctl.report.judgement.model import CalibrationResult, CellResult

REPETITIONS_MIN = 5
LOOP_LAG_MS_MAX = 20.0
"""Of a node's median sample: beyond it the machine, not the protocol, decides."""
CPU_PERCENT_MAX = 90.0
SEND_LAG_MS_MAX = 50.0
SPREAD_MAX = 0.25
"""Half width of the interval of the mean latency, as a share of it."""
COST_TOLERANCE = 0.25
STOLEN_SHARE_MAX = 0.05
"""Of a host's processors, given to others by its hypervisor during a repetition."""


def of_cell(cell: CellResult) -> list[str]:
    return [text for text in (*_about_validity(cell), *_about_numbers(cell), *_about_machine(cell)) if text]


def _about_validity(cell: CellResult) -> list[str]:
    found = []
    verdicts = {v.property: v for v in cell.verdicts()}
    for name, meaning in ((COMMITS, "it did not do what it was to do"), (WHOLE, "a part of it is missing")):
        if name in verdicts and verdicts[name].answer != "valid":
            found.append(f"{meaning}: {verdicts[name].example}")
    if cell.answer == "invalid":
        faults = sum(v.faults for v in verdicts.values())
        found.append(
            f"it broke its promise ({faults} faults): its numbers are not averaged and decide no claim"
        )
    elif cell.answer == "unknown":
        found.append("whether it kept its promise could not be checked: it decides no claim")
    if cell.anomalies:
        found.append(f"{cell.anomalies} anomalies: things went to the wrong client, or late")
    if unknown := cell.count("unknown"):
        found.append(f"{unknown} transactions ended with an unknown outcome")
    return found


def _about_numbers(cell: CellResult) -> list[str]:
    found = []
    done = len(cell.repetitions)
    if done < cell.wanted:
        found.append(f"{done} of {cell.wanted} repetitions are there")
    if done < REPETITIONS_MIN:
        found.append(f"too few repetitions: {done}, at least {REPETITIONS_MIN} are needed")
    latency = cell.estimates.get("latency_ms")
    if latency is not None and latency.interval is not None:
        half = (latency.interval[1] - latency.interval[0]) / 2
        if half > SPREAD_MAX * latency.value:
            found.append(
                f"repetitions differ widely: the mean latency is known to {half / latency.value:.0%} only"
            )
    counted, model = cell.estimates.get("messages"), cell.messages_model
    if counted is not None and model is not None and abs(counted.value / model - 1) > COST_TOLERANCE:
        found.append(f"{counted.value:.1f} messages per transaction where the cost model has {model:.1f}")
    return found


def _about_machine(cell: CellResult) -> list[str]:
    found = []
    lagging = [n for n in cell.nodes if n.loop_lag_ms > LOOP_LAG_MS_MAX]
    if lagging:
        slowest = max(lagging, key=lambda n: n.loop_lag_ms)
        found.append(
            f"noisy machine: the event loops of {', '.join(n.node for n in lagging)} lag, "
            f"{slowest.node} by {slowest.loop_lag_ms:.0f} ms"
        )
    robbed = [r.stolen_share for r in cell.repetitions if r.stolen_share > STOLEN_SHARE_MAX]
    if robbed:
        found.append(
            f"noisy machine: its hypervisor gave up to {100 * max(robbed):.0f} % of the processors to others, in "
            f"{len(robbed)} of {len(cell.repetitions)} repetitions"
        )
    busy = [n.node for n in cell.nodes if n.cpu_percent > CPU_PERCENT_MAX]
    if busy:
        found.append(f"saturated: {', '.join(busy)} used over {CPU_PERCENT_MAX:.0f} % of a processor")
    lag = max((r.send_lag_ms or 0.0 for r in cell.repetitions), default=0.0)
    if lag > SEND_LAG_MS_MAX:
        found.append(f"the load generator was late by {lag:.0f} ms: the load was not what it should be")
    return found


def of_waits(waits: Iterable[CalibrationResult], cells: Mapping[str, CellResult], processors: int) -> None:
    """Adds to the warnings of the cells whose wait was found on a machine that had other things to do."""
    for wait in waits:
        if wait.cell in cells and (wait.load_average or 0.0) > processors:
            cells[wait.cell].warnings.append(
                f"its wait was calibrated at a load of {wait.load_average:.1f} on {processors} processors: "
                "it may be longer than the overlay needs"
            )


def _transactions(run: Mapping[str, Any]) -> int:
    profile = (run.get("resolved") or {}).get("profile") or {}
    return int(profile.get("transactions") or PROFILES["quick"].transactions)


def of_run(run: Mapping[str, Any], cells: Mapping[str, CellResult], problems: int) -> list[str]:
    found = []
    if run.get("profile") == "quick":
        found.append(
            f"quick profile: {_transactions(run)} transactions and one repetition show that it works, not how "
            "it performs"
        )
    if not (run.get("testbed") or {}).get("delay"):
        found.append("links without emulated delay: latencies are those of this machine's loopback")
    if problems:
        found.append(f"{problems} problems with the input; what they touch is left out")
    if (run.get("git") or {}).get("diff_sha256"):
        found.append("the working tree had changes that no commit holds")
    missing = [c["id"] for c in run.get("cells", ()) if c.get("id") not in cells]
    if missing:
        found.append(
            f"{len(missing)} cells of the matrix were not run: {', '.join(missing[:5])}"
            + (", ..." if len(missing) > 5 else "")
        )
    return found
