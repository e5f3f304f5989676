"""The checks of `labctl.checks` on every repetition's history, in parallel over repetitions.

Spark brings each repetition's lines together and in order; a worker reads them as a stream, so that what it
holds is the history as the checks see it and not the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pyspark.sql import functions as F  # noqa: N812

from labctl import topology
from labctl.checks import history, properties
from labctl.checks.verdict import Answer, Verdict
from labctl.report import schemas

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

EXAMPLE_LENGTH = 300
ROUTING = "routing"
TOLERATED = frozenset({"bl-wait", "d-tx-ni"})
"""Approaches that promise nothing about who gets what: wrong routing is counted, and not a fault."""
NEEDED = ("atomicity", "liveness", ROUTING)


class Moment(NamedTuple):
    """A line of a history."""

    node: str
    number: int
    time: float
    name: str
    fields: dict[str, Any]


class Subject(NamedTuple):
    """What the checks have to know of a repetition beside its history."""

    approach: str
    brokers: tuple[str, ...]


Row = tuple[str, int, str, str, int, int, int, str]
Key = tuple[str, int]


def check(lines: DataFrame, subjects: Mapping[Key, Subject], partitions: int) -> DataFrame:
    """Verdicts of every repetition that has a history and is named in `subjects`."""
    together = (
        lines.select("cell", "repetition", "time", "node", "number", "name", "fields")
        .repartition(partitions, "cell", "repetition")
        .sortWithinPartitions("cell", "repetition", "time", "node", "number")
    )
    return together.mapInArrow(_checker(dict(subjects)), schemas.VERDICTS)


def _checker(
    subjects: dict[Key, Subject],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for key, rows in groupby(_rows(batches), key=lambda row: (row[0], row[1])):
            if key in subjects:
                found = [_row(key, verdict) for verdict in judge(subjects[key], map(_moment, rows))]
                columns = [list(column) for column in zip(*found, strict=True)]
                kinds = [pa.string(), pa.int32(), pa.string(), pa.string(), *[pa.int64()] * 3, pa.string()]
                arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=schemas.VERDICTS.names)

    return work


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _moment(row: tuple[Any, ...]) -> Moment:
    _, _, time, node, number, name, fields = row
    return Moment(node, number, time, name, msgspec.json.decode(fields))


def judge(subject: Subject, moments: Iterable[Moment]) -> list[Verdict]:
    """The properties that can be told from a history alone."""
    try:
        found = history.read(moments)
        return [
            properties.atomicity(found, subject.brokers),
            properties.consistency(found),
            properties.serializability(found),
            properties.recipients(found),
            properties.liveness(found, ()),
        ]
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        # One history that makes no sense must not take the report of all others with it.
        text = f"the history makes no sense: {type(error).__name__}: {error}"
        return [Verdict("history", "unknown", 0, (text,))]


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
    tolerated = F.col("approach").isin(*sorted(TOLERATED))
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


def subject_of(cell: Mapping[str, Any]) -> Subject:
    return Subject(cell["approach"], topology.standard(cell["brokers"] or 1).brokers)


def overall(approach: str, answers: Mapping[str, Answer]) -> Answer:
    """Of a repetition: one broken promise makes it invalid; it is valid when all that is needed was seen."""
    if "invalid" in answers.values():
        return "invalid"
    needed: Sequence[str] = (ROUTING,) if approach == "bl-wait" else NEEDED
    return "valid" if all(answers.get(name) == "valid" for name in needed) else "unknown"
