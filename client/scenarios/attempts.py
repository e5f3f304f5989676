"""What became of the transactions of a scenario: a line for each, and a summary; pure."""

from __future__ import annotations

from statistics import quantiles
from typing import Any

from msgspec import Struct, field

from client.core.port import Future, resolve

Receipt = tuple[str, str]
"""Who has got the publication about which instance."""


class Attempt(Struct, eq=False):
    """One transaction."""

    number: int
    expected: frozenset[Receipt]
    """Exactly these are right."""
    details: dict[str, Any] = field(default_factory=dict)
    outcome: str = ""
    """committed, aborted or unknown; BL-WAIT has none and is `published`; empty: it is under way."""
    reason: str = ""
    began: float = 0.0
    ended: float = 0.0
    """When the outcome was known."""
    receipts: list[Receipt] = field(default_factory=list)
    received_at: float | None = None
    """When the last of those who should have it had it."""
    arrived: Future | None = None
    is_over: bool = False
    """Nobody is waited for any more; false to the end if the coordinator was interrupted before."""

    @property
    def instances(self) -> set[str]:
        return {instance for _, instance in self.expected}

    def receive(self, client: str, instance: str, now: float) -> None:
        self.receipts.append((client, instance))
        is_complete = self.expected <= {*self.receipts}
        if is_complete and self.received_at is None:
            self.received_at = now
        if is_complete or (client, instance) not in self.expected:
            resolve(self.arrived)

    @property
    def is_wrong(self) -> bool:
        """Somebody has it who should not, or has it twice; or the time is over and somebody has it not."""
        if self.outcome == "aborted":
            return bool(self.receipts)
        surplus = {*self.receipts} - self.expected or len(self.receipts) > len({*self.receipts})
        is_missed = self.is_over and self.received_at is None
        return bool(surplus) or (self.outcome in ("committed", "published") and is_missed)

    def line(self, confirmed: bool) -> dict[str, Any]:
        """`correct` is None where that is not known: aborted, unknown, or not everybody could be asked."""
        correct = None
        if self.is_wrong:
            correct = False
        elif confirmed and self.outcome in ("committed", "published"):
            correct = True
        return {
            "transaction": self.number,
            **self.details,
            "outcome": self.outcome or "unknown",
            "reason": self.reason,
            "latency_ms": self.latency_ms,
            "outcome_ms": _ms(self.ended - self.began) if self.outcome else None,
            "received_ms": None if self.received_at is None else _ms(self.received_at - self.began),
            "received_by": sorted({client for client, _ in self.receipts}),
            "missing": sorted({client for client, _ in self.expected - {*self.receipts}}),
            "start_s": self.began,
            "outcome_s": self.ended if self.outcome else None,
            "ack_s": self.received_at,
            "correct": correct,
        }

    @property
    def latency_ms(self) -> float | None:
        """Until both the outcome and the receipt are known to the coordinator."""
        if self.received_at is None or self.outcome not in ("committed", "published"):
            return None
        return _ms(max(self.ended, self.received_at) - self.began)


class CoordinatorReport(Struct, eq=False):
    approach: str
    attempts: list[Attempt] = field(default_factory=list)
    began: float = 0.0
    ended: float = 0.0
    confirmed: bool = False
    """Everybody has had a last word: nothing can come any more."""
    _by_instance: dict[str, Attempt] = field(default_factory=dict)

    def add(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        self._by_instance.update((instance, attempt) for instance in attempt.instances)

    def of(self, instance: str) -> Attempt | None:
        return self._by_instance.get(instance)

    @property
    def is_decided(self) -> bool:
        return all(attempt.outcome not in ("", "unknown") for attempt in self.attempts)

    def lines(self) -> list[dict[str, Any]]:
        return [attempt.line(self.confirmed) for attempt in self.attempts]

    def summary(self) -> dict[str, Any]:
        lines = self.lines()
        latencies = sorted(line["latency_ms"] for line in lines if line["latency_ms"] is not None)
        seconds = self.ended - self.began
        outcomes = ("committed", "aborted", "unknown", "published")
        return {
            "approach": self.approach,
            "transactions": len(lines),
            **{name: sum(line["outcome"] == name for line in lines) for name in outcomes},
            "correct": sum(line["correct"] is True for line in lines),
            "wrong": sum(line["correct"] is False for line in lines),
            "confirmed": self.confirmed,
            "seconds": round(seconds, 6),
            "transactions_per_s": round(len(latencies) / seconds, 3) if seconds > 0 else None,
            "latency_ms_mean": round(sum(latencies) / len(latencies), 3) if latencies else None,
            "latency_ms_p50": _quantile(latencies, 50),
            "latency_ms_p95": _quantile(latencies, 95),
        }


def _quantile(values: list[float], percent: int) -> float | None:
    if len(values) < 2:
        return values[0] if values else None
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 3)


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)
