"""The answers for programs: one JSON document and one CSV table."""

from __future__ import annotations

import csv
import io
from typing import Any

from msgspec import structs

from labctl.report.judgement.claims import RULE, Judgement
from labctl.report.judgement.model import CellResult, Report
from labctl.report.judgement.stats import Estimate
from labctl.report.tables.latency import PERCENTILES


def document(report: Report, outputs: dict[str, Any]) -> dict[str, Any]:
    found = {
        "result": report.path,
        "experiment": report.run.get("experiment"),
        "profile": report.run.get("profile"),
        "rule": RULE,
        "claims": [claim(judgement) for judgement in report.judgements],
        "cells": [cell(each) for each in report.cells.values()],
        "calibrations": report.calibrations,
        "problems": report.problems,
        "warnings": report.warnings,
        "provenance": report.made_with,
        "outputs": outputs,
    }
    return {**found, "faults": faults(report)} if report.disturbed else found


def faults(report: Report) -> list[dict[str, Any]]:
    """What each fault did, repetition by repetition."""
    return [
        {"cell": each.cell, "repetition": each.repetition, **structs.asdict(effect)}
        for each in report.disturbed
        for effect in each.effects
    ]


def claim(judgement: Judgement) -> dict[str, Any]:
    return {name: getattr(judgement, name) for name in judgement.__struct_fields__}


def cell(result: CellResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "parameters": result.parameters,
        "valid": {"valid": True, "invalid": False}.get(result.answer),
        "verdict": result.answer,
        "checks": result.verdicts(),
        "anomalies": result.anomalies,
        "repetitions": len(result.repetitions),
        "repetitions_wanted": result.wanted,
        "transactions": result.count("transactions"),
        "committed": result.count("committed"),
        "aborted": result.count("aborted"),
        "unknown": result.count("unknown"),
        "latency_ms": {**_estimate(result.estimates.get("latency_ms")), **result.percentiles},
        "outcome_ms": _estimate(result.estimates.get("outcome_ms")),
        "completion_ms": _estimate(result.estimates.get("completion_ms")),
        "throughput": _estimate(result.estimates.get("throughput")),
        "messages": {**_estimate(result.estimates.get("messages")), "model": result.messages_model},
        "bytes": _estimate(result.estimates.get("bytes")),
        "drop": _estimate(result.estimates.get("drop")),
        "variation": _estimate(result.estimates.get("variation")),
        "event_p50_ms": _estimate(result.estimates.get("event_p50_ms")),
        "event_p99_ms": _estimate(result.estimates.get("event_p99_ms")),
        "nodes": result.nodes,
        "by_repetition": [
            {"repetition": r.number, "verdict": r.answer, "wait_ms": r.wait_ms, **r.counts, **r.values}
            for r in result.repetitions
        ],
        "warnings": result.warnings,
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {"mean": None, "interval": None}
    return {"mean": estimate.value, "interval": estimate.interval}


_PARAMETERS = ("scenario", "approach", "brokers", "in_flight", "copies", "step_ms", "stalls", "work", "load")
_MEANS = ("latency_ms", "outcome_ms", "completion_ms", "throughput", "messages", "bytes", "drop", "variation")


def table(report: Report) -> str:
    """One line per cell; an invalid one has its verdict and no means."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    means = [f"{name}{part}" for name in _MEANS for part in ("", "_low", "_high")]
    writer.writerow(
        [
            "cell",
            *_PARAMETERS,
            "verdict",
            "repetitions",
            "transactions",
            "committed",
            *means,
            *PERCENTILES,
            "max",
        ]
    )
    for each in report.cells.values():
        values: list[object] = []
        for name in _MEANS:
            found = each.estimates.get(name)
            values += [None, None, None] if found is None else [found.value, found.low, found.high]
        writer.writerow(
            [
                each.id,
                *(each.parameters[name] for name in _PARAMETERS),
                each.answer,
                len(each.repetitions),
                each.count("transactions"),
                each.count("committed"),
                *values,
                *(each.percentiles.get(name) for name in (*PERCENTILES, "max")),
            ]
        )
    return text.getvalue()
