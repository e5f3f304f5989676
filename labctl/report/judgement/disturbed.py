"""Repetitions with faults: what each fault did, and how the first repetition of a cell went on meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from labctl.faults.done import FaultDone, Span, spans
from labctl.faults.effects import Effect, FaultyTransaction, effects
from labctl.faults.plan import FaultPlan

Key = tuple[str, int]
Rows = Mapping[Key, Sequence[Mapping[str, Any]]]
"""Of a table, by cell and repetition."""


class Timeline(Struct, frozen=True):
    """Of one repetition, from the beginning of what is measured."""

    lasts_s: float
    faults: tuple[Span, ...]
    latencies: tuple[tuple[float, float], ...]
    """Of each transaction that has committed: when, and how long it had taken, in milliseconds."""
    rates: tuple[tuple[float, float], ...] = ()
    """Regular events per second, where there are some."""


class Disturbed(Struct, frozen=True):
    """A repetition."""

    cell: str
    repetition: int
    timeline: Timeline
    effects: tuple[Effect, ...]


def disturbed(
    cells: Mapping[Key, Mapping[str, Any]], done: Rows, transactions: Rows, rates: Rows, window_s: float
) -> list[Disturbed]:
    """Of the cells that have faults; a repetition that does not say which is left out."""
    found = []
    for key in sorted(cells):
        plan = _plan(cells[key])
        if plan is not None:
            rows = [table.get(key, ()) for table in (done, transactions, rates)]
            found.append(_one(key, plan, cells[key]["began_s"] or {}, *rows, window_s=window_s))
    return found


def _plan(cell: Mapping[str, Any]) -> FaultPlan | None:
    try:
        return msgspec.json.decode(cell.get("plan") or "null", type=FaultPlan | None)
    except msgspec.MsgspecError:
        return None


def _one(
    key: Key,
    plan: FaultPlan,
    began_s: Mapping[str, float],
    done: Iterable[Mapping[str, Any]],
    transactions: Iterable[Mapping[str, Any]],
    rates: Iterable[Mapping[str, Any]],
    *,
    window_s: float,
) -> Disturbed:
    """`began_s`: by client, the time of its host from which faults count."""
    lines = [FaultDone(row["fault"], row["phase"], row["node"], row["time_s"]) for row in done]
    # Coordinators share a host, or their hosts begin within a few milliseconds of each other.
    zero_s = min(began_s.values(), default=0.0)
    rows = [row for row in transactions if not row["warm_up"]]
    attempts = [attempt for row in rows if (attempt := _attempt(row, zero_s)) is not None]
    arrived = _arrived(rates, began_s)
    events = [(start_s, start_s + window_s) for start_s, count in arrived if count] if arrived else None
    met = spans(plan, lines)
    timeline = Timeline(
        plan.lasts_s,
        tuple(met),
        tuple((a.end_s, (a.end_s - a.start_s) * 1e3) for a in attempts if a.outcome == "committed"),
        tuple((start_s, count / window_s) for start_s, count in arrived),
    )
    return Disturbed(*key, timeline, tuple(effects(met, attempts, events, plan.lasts_s)))


def _attempt(row: Mapping[str, Any], zero_s: float) -> FaultyTransaction | None:
    ends = [row[name] for name in ("ack_s", "outcome_s") if row[name] is not None]
    if row["start_s"] is None:
        return None
    end_s = max(ends) - zero_s if ends else float("inf")
    is_lost = row["outcome"] == "committed" and row["fault"] == "missed"
    return FaultyTransaction(row["start_s"] - zero_s, end_s, row["outcome"], is_lost)


def _arrived(rates: Iterable[Mapping[str, Any]], began_s: Mapping[str, float]) -> list[tuple[float, float]]:
    """When a window began, and how many events came in it, over all agents; each counts by its own clock."""
    found: dict[int, list[float]] = {}
    for row in rates:
        if row["start_s"] is not None and row["agent"] in began_s:
            start_s, count = found.setdefault(row["window"], [row["start_s"] - began_s[row["agent"]], 0.0])
            found[row["window"]] = [start_s, count + row["events"]]
    return [(start_s, count) for _, (start_s, count) in sorted(found.items())]
