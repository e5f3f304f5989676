"""What each fault did: how long nothing was committed, when it went on, and what became of transactions; pure.

All times count from the beginning of what is measured, by the clock of the coordinator's host, or an agent's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from msgspec import Struct

from labctl.faults.done import Span

Mark = tuple[float, float]
"""From when to when something was seen to work: a moment, or a piece of time."""


class FaultyTransaction(Struct, frozen=True):
    """A transaction, as far as it matters here."""

    start_s: float
    end_s: float
    """When its outcome was known and, of one that has committed, its last message had arrived."""
    outcome: str
    is_lost: bool = False
    """It has committed, and its last message has not arrived where it should."""


class Effect(Struct, frozen=True):
    number: int
    what: str
    begun_s: float
    ended_s: float
    stopped_s: float
    """The longest time around the fault in which no transaction was committed."""
    events_stopped_s: float | None
    """And in which no regular event arrived, where there are some."""
    recovery_s: float | None
    """From the end of the fault to the first transaction that was committed then; None: there was none."""
    aborted: int
    """Of the transactions that were under way from the beginning of the fault until then."""
    unknown: int
    lost: int


def effects(
    spans: Iterable[Span],
    attempts: Sequence[FaultyTransaction],
    events: Sequence[Mark] | None,
    lasts_s: float,
) -> list[Effect]:
    """`events`: the pieces of time in which regular events have arrived, in order."""
    commits = sorted(attempt.end_s for attempt in attempts if attempt.outcome == "committed")
    return [_effect(span, attempts, commits, events, lasts_s) for span in spans]


def _effect(
    span: Span,
    attempts: Sequence[FaultyTransaction],
    commits: Sequence[float],
    events: Sequence[Mark] | None,
    lasts_s: float,
) -> Effect:
    back_s = next((commit for commit in commits if commit >= span.ended_s), None)
    until_s = inf if back_s is None else back_s
    met = [attempt for attempt in attempts if attempt.start_s < until_s and attempt.end_s > span.begun_s]
    return Effect(
        number=span.number,
        what=str(span.fault),
        begun_s=span.begun_s,
        ended_s=span.ended_s,
        stopped_s=longest_gap([(commit, commit) for commit in commits], span, lasts_s),
        events_stopped_s=None if events is None else longest_gap(events, span, lasts_s),
        recovery_s=None if back_s is None else back_s - span.ended_s,
        aborted=sum(attempt.outcome == "aborted" for attempt in met),
        unknown=sum(attempt.outcome == "unknown" for attempt in met),
        lost=sum(attempt.is_lost for attempt in met),
    )


def longest_gap(marks: Sequence[Mark], span: Span, lasts_s: float) -> float:
    """Between two marks, the beginning or the end, of those gaps that a part of the fault lies in."""
    ends = [0.0, *(end for _, end in marks)]
    begins = [*(begin for begin, _ in marks), max(lasts_s, ends[-1])]
    gaps = zip(ends, begins, strict=True)
    return max((b - a for a, b in gaps if a < span.ended_s and b > span.begun_s), default=0.0)
