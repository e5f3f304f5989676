"""The checks of `labctl.checks` on every repetition's history, in parallel over repetitions.

Spark brings each repetition's lines together, node by node and in order; a worker puts them into the form
that `labctl check` reads from a folder, and asks the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F  # noqa: N812

from broker.protocol.events import FIRST
from client.scenarios.approaches import APPROACHES, approach_of
from labctl.checks import judge as checks
from labctl.checks.verdict import Answer, Verdict
from labctl.report.tables import schemas
from labctl.results.histories import File, Line, Result, tables_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

EXAMPLE_LENGTH = 300
ROUTING = "routing"
NEEDED = ("atomicity", "liveness", ROUTING)


Row = tuple[str, int, str, str, int, int, int, str]
Key = tuple[str, int]
DUMP = "tables at the end"
"""Name of a row that carries a broker's tables, among the lines of its repetition."""
_ORDER = ("cell", "repetition", "log", "number")
_COLUMNS = (*_ORDER, "time", "node", "name", "fields")


def check(
    lines: DataFrame, dumps: DataFrame, brokers: Mapping[Key, Sequence[str]], partitions: int
) -> DataFrame:
    """Verdicts of every repetition that has a history and is named in `brokers`."""
    tables = dumps.select(
        "cell",
        "repetition",
        F.lit("").alias("log"),
        F.lit(0).cast("long").alias("number"),
        F.lit(0.0).alias("time"),
        "node",
        F.lit(DUMP).alias("name"),
        F.col("text").alias("fields"),
    )
    together = (
        lines.select(*_COLUMNS)
        .unionByName(tables)
        .repartition(partitions, "cell", "repetition")
        .sortWithinPartitions(*_ORDER)
    )
    return together.mapInArrow(_checker(dict(brokers)), schemas.VERDICTS)


def _checker(
    brokers: dict[Key, Sequence[str]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for key, rows in groupby(_rows(batches), key=lambda row: (row[0], row[1])):
            if key not in brokers:
                continue
            found = [_row(key, verdict) for verdict in judge(brokers[key], rows)]
            columns = [list(column) for column in zip(*found, strict=True)]
            kinds = [pa.string(), pa.int32(), pa.string(), pa.string(), *[pa.int64()] * 3, pa.string()]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=schemas.VERDICTS.names)

    return work


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def judge(brokers: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> list[Verdict]:
    """`rows` of one repetition, in order, with the columns of `check`."""
    try:
        return checks.judge(_result(brokers, rows))
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        # One history that makes no sense must not take the report of all others with it.
        text = f"the history makes no sense: {type(error).__name__}: {error}"
        return [Verdict("history", "unknown", 0, (text,))]


def _result(brokers: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> Result:
    result = Result([])
    for log, members in groupby(rows, key=lambda row: row[2]):
        lines = []
        for *_, number, time, node, name, fields in members:
            decoded = msgspec.json.decode(fields)
            if name == DUMP:
                result.tables[node] = tables_of(decoded)
            else:
                lines.append(Line(node, number, time, name, decoded))
        if lines:
            _take(result, log, lines)
    silent = sorted({*brokers} - {*result.brokers})
    result.gaps += [f"there is no history of broker {name}" for name in silent]
    return result


def _take(result: Result, log: str, lines: list[Line]) -> None:
    first = lines[0]
    if first.name != FIRST or any(line.number != place for place, line in enumerate(lines, 1)):
        result.gaps.append(f"lines are missing in the history {log}")
    if first.name == FIRST:
        result.files.append(File(log, first.node, lines=lines, **first.fields))


def _row(key: Key, verdict: Verdict) -> Row:
    texts = [*verdict.faults, *verdict.anomalies]
    example = texts[0][:EXAMPLE_LENGTH] if texts else ""
    return (
        *key,
        verdict.property,
        verdict.answer,
        verdict.checked,
        len(verdict.faults),
        len(verdict.anomalies),
        example,
    )


def routing(by_repetition: DataFrame, cells: DataFrame) -> DataFrame:
    """What coordinators and agents saw: whether each transaction's last message went to whom it should."""
    approach = cells.select("cell", "repetition", "approach")
    tolerated = F.col("approach").isin(*(a.name for a in APPROACHES.values() if not a.is_exact))
    wrong = F.col("wrong")
    kinds = ("late_subscriptions", "late_unsubscriptions", "wrong_recipients", "missed")
    words = [F.when(F.col(k) > 0, F.concat(F.lit(k.replace("_", " ") + " "), F.col(k))) for k in kinds]
    answer = (
        F.when((wrong > 0) & ~tolerated, F.lit("invalid"))
        .when(F.col("committed") == 0, F.lit("unknown"))
        .otherwise(F.lit("valid"))
    )
    return by_repetition.join(approach, ["cell", "repetition"]).select(
        "cell",
        "repetition",
        F.lit(ROUTING).alias("property"),
        answer.alias("answer"),
        F.col("transactions").alias("checked"),
        F.when(tolerated, F.lit(0)).otherwise(wrong).cast("long").alias("faults"),
        F.when(tolerated, wrong).otherwise(F.lit(0)).cast("long").alias("anomalies"),
        F.concat_ws(", ", *words).alias("example"),
    )


def overall(approach: str, answers: Mapping[str, Answer]) -> Answer:
    """Of a repetition: one broken promise makes it invalid; it is valid when all that is needed was seen."""
    if "invalid" in answers.values():
        return "invalid"
    needed: Sequence[str] = NEEDED if approach_of(approach).is_transactional else (ROUTING,)
    return "valid" if all(answers.get(name) == "valid" for name in needed) else "unknown"
