"""Raw logs to a `Report`: read once, transform, check, judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from labctl.checks.repetition import overall
from labctl.checks.verdict import worst
from labctl.report.judgement import claims, cost, disturbed, verdicts, warnings
from labctl.report.judgement.disturbed import Disturbed
from labctl.report.judgement.model import (
    Bin,
    CellResult,
    NodeVitals,
    Point,
    PropertyVerdict,
    RepetitionResult,
    Report,
    estimates_of,
    measured,
)
from labctl.report.judgement.origins import calibrations, describe
from labctl.report.judgement.stats import Resampler
from labctl.report.tables import ingest, latency, nodes, rates
from labctl.report.tables.ingest import Tables
from labctl.results.accounts import due_of
from labctl.results.documents import join
from labctl.results.layout import repetitions
from labctl.results.problem import ResultProblem
from labctl.results.reading import list_files, read_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Key = tuple[str, int]
Say = Callable[[str], None]
STEPS = ("reading the logs", "looking for damage", "computing", "checking histories", "judging the claims")
WINDOW_MS = 100.0
CHECK_ROUNDS = 8
"""Tasks for each processor: a long repetition does not keep the others waiting."""
_COUNTS = (
    "transactions",
    "committed",
    "aborted",
    "unknown",
    "wrong",
    "late_subscriptions",
    "late_unsubscriptions",
    "wrong_recipients",
    "missed",
)


def analyse(spark: SparkSession, root: str, output: str, claims_file: Path, say: Say) -> Report:
    """The report of a result folder; its tables are in `output`/tables afterwards."""
    started = time.monotonic()
    run = read_run(root, spark)
    listed = claims.load(claims_file)
    found = repetitions(list_files(spark, root))
    if not found:
        raise ResultProblem(f"{root} has no finished repetition of any cell; go on with --resume")
    tables = Tables(spark, join(output, "tables"))

    say(STEPS[0])
    ingest.ingest(root, tables, found)
    say(STEPS[1])
    cells = {(row["cell"], row["repetition"]): row.asDict(True) for row in tables.read("cells").collect()}
    problems = [*ingest.corrupt_lines(tables, root), *ingest.missing_files(found, cells)]
    say(STEPS[2])
    window_s = _window_s(run)
    summarise(tables, window_s)
    say(STEPS[3])
    check(tables, cells)
    say(STEPS[4])
    waits, unread = calibrations(root, run, spark)
    resampler = Resampler(int(run.get("seed") or 0))
    results = _cells(tables, run, cells, resampler)
    for cell in results.values():
        cell.warnings = warnings.of_cell(cell)
    warnings.of_waits(waits, results, int((run.get("machine") or {}).get("cpus") or 1))
    usable = {name: measured(cell) for name, cell in results.items()}
    return Report(
        path=root,
        run=run,
        cells=results,
        judgements=tuple(claims.judge(claim, usable, resampler) for claim in listed),
        curves=_curves(tables),
        problems=(*map(str, problems), *unread),
        warnings=tuple(warnings.of_run(run, results, len(problems) + len(unread))),
        made_with=describe(spark, run, claims_file, time.monotonic() - started),
        calibrations=tuple(waits),
        disturbed=_disturbed(tables, cells, window_s),
    )


def _disturbed(
    tables: Tables, cells: Mapping[Key, Mapping[str, Any]], window_s: float
) -> tuple[Disturbed, ...]:
    """Only of repetitions with faults are transactions and windows looked at one by one."""
    if not tables.has("faults"):
        return ()
    names = sorted({cell for (cell, _), row in cells.items() if row["plan"]})
    rows: list[dict[Key, list[dict[str, Any]]]] = []
    for table in ("faults", "transactions", "rates"):
        found: dict[Key, list[dict[str, Any]]] = {}
        for row in tables.read(table).where(F.col("cell").isin(names)).collect():
            found.setdefault((row["cell"], row["repetition"]), []).append(row.asDict())
        rows.append(found)
    done, transactions, windows = rows
    return tuple(disturbed.disturbed(cells, done, transactions, windows, window_s))


def _window_s(run: Mapping[str, Any]) -> float:
    settings = (run.get("resolved") or {}).get("disruption") or {}
    return float(settings.get("window_ms") or WINDOW_MS) / 1e3


def summarise(tables: Tables, window_s: float) -> None:
    """Everything that is smaller than the logs, each in a table of its own."""
    counted = latency.counted(tables.read("transactions"))
    whole = rates.windows(tables.read("rates"), window_s)
    tables.write(
        repetitions=_repetitions(tables, counted, whole),
        percentiles=latency.by_cell(counted),
        histograms=latency.histogram(counted),
        node_vitals=nodes.vitals(tables.read("vitals")),
        curves=rates.curves(whole, window_s),
    )


def _repetitions(tables: Tables, counted: DataFrame, whole: DataFrame) -> DataFrame:
    key = ["cell", "repetition"]
    by_repetition = latency.by_repetition(counted)
    return (
        by_repetition.join(latency.throughput(counted), key, "left")
        .join(nodes.traffic(tables.read("messages"), by_repetition), key, "left")
        .join(rates.drops(whole), key, "left")
        .join(rates.event_latency(tables.read("latencies")), key, "left")
    )


def check(tables: Tables, cells: Mapping[Key, Mapping[str, Any]]) -> None:
    """The table of verdicts."""
    due = {key: due_of(ingest.document_of(cell)) for key, cell in cells.items()}
    parallel = tables.spark.sparkContext.defaultParallelism
    width = max(1, min(len(due), CHECK_ROUNDS * parallel))
    tables.write(verdicts=verdicts.check(tables, due, width).coalesce(width))


def _cells(
    tables: Tables, run: Mapping[str, Any], cells: Mapping[Key, Mapping[str, Any]], resampler: Resampler
) -> dict[str, CellResult]:
    rows = {(r["cell"], r["repetition"]): r.asDict(True) for r in tables.read("repetitions").collect()}
    answers: dict[Key, list[PropertyVerdict]] = {}
    for r in _sorted(tables, "verdicts", "cell", "repetition", "property"):
        verdict = PropertyVerdict(*(r[n] for n in PropertyVerdict.__struct_fields__))
        answers.setdefault((r["cell"], r["repetition"]), []).append(verdict)
    pooled = {r["cell"]: r.asDict() for r in tables.read("percentiles").collect()}
    bins: dict[str, list[Bin]] = {}
    for r in _sorted(tables, "histograms", "cell", "bin"):
        bins.setdefault(r["cell"], []).append(Bin(r["low_ms"], r["transactions"]))
    vitals: dict[str, list[NodeVitals]] = {}
    for r in _sorted(tables, "node_vitals", "cell", "node"):
        vitals.setdefault(r["cell"], []).append(_vitals(r.asDict()))
    wanted = {cell["id"]: int(cell.get("repetitions") or 0) for cell in run.get("cells", ())}
    results = {}
    for name in sorted({cell for cell, _ in cells}):
        repetitions = tuple(
            _repetition(number, cells[key], rows.get(key, {}), answers.get(key, ()))
            for key in sorted(cells)
            if (number := key[1]) is not None and key[0] == name
        )
        answer = worst([repetition.answer for repetition in repetitions])
        results[name] = CellResult(
            id=name,
            parameters=_parameters(next(cell for key, cell in cells.items() if key[0] == name)),
            wanted=wanted.get(name, 0),
            repetitions=repetitions,
            answer=answer,
            estimates=estimates_of(name, repetitions, answer, resampler),
            percentiles=_percentiles(pooled.get(name)) if answer != "invalid" else {},
            histogram=tuple(bins.get(name, ())),
            nodes=tuple(vitals.get(name, ())),
        )
    return results


def _sorted(tables: Tables, name: str, *columns: str) -> list[Row]:
    """A small table; in order here, because Spark would need two more jobs for it."""
    return sorted(tables.read(name).collect(), key=lambda row: [row[column] for column in columns])


def _parameters(cell: Mapping[str, Any]) -> dict[str, Any]:
    names = ("scenario", "approach", "brokers", "in_flight", "copies", "step_ms", "stalls", "work", "load")
    # Only of a cell that has them: most have neither.
    found = {name: cell[name] for name in ("durable", "faults") if cell[name] not in _NEITHER}
    return {name: cell[name] for name in names} | found


_NEITHER = (None, "", "none")


def _percentiles(row: Mapping[str, Any] | None) -> dict[str, float]:
    if row is None or row["percentiles"] is None:
        return {}
    return {**dict(zip(latency.PERCENTILES, row["percentiles"], strict=True)), "max": row["max_ms"]}


def _repetition(
    number: int, cell: Mapping[str, Any], row: Mapping[str, Any], found: Sequence[PropertyVerdict]
) -> RepetitionResult:
    approach = cell["approach"]
    values = {name: float(row[name]) for name in _METRICS if row.get(name) is not None}
    if cell["scenario"] == "disruption":
        # Most messages are regular events there, and nearly all time passes between transactions.
        values = {name: value for name, value in values.items() if name not in _OF_TRANSACTIONS}
    if row.get("percentiles"):
        values |= dict(zip(latency.PERCENTILES, row["percentiles"], strict=True))
    model = None
    if cell["scenario"] == "dispatching" and cell["brokers"] and cell["placement"]:
        model = cost.messages(approach, cell["brokers"], cell["placement"])
    return RepetitionResult(
        number=number,
        answer=overall(approach, {v.property: v.answer for v in found}),
        verdicts=tuple(found),
        counts={name: int(row.get(name) or 0) for name in _COUNTS},
        values=values,
        wait_ms=cell["wait_ms"],
        send_lag_ms=row.get("send_lag_ms_max"),
        messages_model=model,
        stolen_share=max((cell["steal"] or {}).values(), default=0.0),
    )


_OF_TRANSACTIONS = ("messages", "bytes", "throughput")
_METRICS = (
    "latency_ms",
    "outcome_ms",
    "completion_ms",
    "throughput",
    "messages",
    "bytes",
    "drop",
    "variation",
    "rate",
    "event_p50_ms",
    "event_p99_ms",
)


def _vitals(row: Mapping[str, Any]) -> NodeVitals:
    return NodeVitals(
        row["node"],
        row["cpu_percent"] or 0.0,
        row["cpu_percent_max"] or 0.0,
        row["loop_lag_ms"] or 0.0,
        row["loop_lag_ms_max"] or 0.0,
        row["rss_bytes_max"],
    )


def _curves(tables: Tables) -> dict[str, tuple[Point, ...]]:
    found: dict[str, list[Point]] = {}
    for r in _sorted(tables, "curves", "cell", "point"):
        found.setdefault(r["cell"], []).append(Point(r["time_s"], r["rate"], bool(r["transaction"])))
    return {cell: tuple(points) for cell, points in found.items()}
