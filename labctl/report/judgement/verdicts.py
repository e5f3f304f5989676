"""The judgement on every repetition, in parallel over repetitions.

Spark brings together all that a repetition tells, node by node and in order; a worker puts it into the form
that `labctl check` reads from a folder, and asks the same function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F  # noqa: N812

from labctl.checks import repetition
from labctl.checks.verdict import Verdict
from labctl.report.tables import schemas
from labctl.report.tables.schemas import CORRUPT
from labctl.results import accounts, histories, layout
from labctl.results.accounts import Account, Due
from labctl.results.histories import Line, Result
from labctl.results.lines import cannot_be_read

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from labctl.report.tables.ingest import Tables

EXAMPLE_LENGTH = 300

Row = tuple[str, int, str, str, int, int, int, str]
Key = tuple[str, int]
LINE, ATTEMPT, TABLES, DAMAGED = "line", "attempt", "tables", "damaged"
"""What a row carries in its `text`: a line of a history or of the transactions, a broker's tables, or a line of
either that cannot be read."""
NO_LOG = ""
"""The log of what is no line of a history."""
_ORDER = ("cell", "repetition", "log", "number")
_COLUMNS = (*_ORDER, "time", "node", "name", "kind", "text")


def check(tables: Tables, due: Mapping[Key, Due | None], partitions: int) -> DataFrame:
    """Verdicts on every repetition that `due` names and that has told anything at all."""
    together = _together(tables).repartition(partitions, "cell", "repetition").sortWithinPartitions(*_ORDER)
    return together.mapInArrow(_checker(dict(due), _measured(tables, due)), schemas.VERDICTS)


def _measured(tables: Tables, due: Mapping[Key, Due | None]) -> dict[Key, dict[str, int]]:
    """Lines that can be read, by repetition and file."""
    found: dict[Key, dict[str, int]] = {}
    for table, file in (
        ("rates", layout.WINDOWS),
        ("latencies", layout.LATENCIES),
        ("faults", layout.FAULTS),
    ):
        if tables.has(table) and any(each is not None and file in each.measured for each in due.values()):
            for row in tables.read(table).groupBy("cell", "repetition").count().collect():
                found.setdefault((row["cell"], row["repetition"]), {})[file] = row["count"]
    return found


def _together(tables: Tables) -> DataFrame:
    attempt = F.to_json(F.struct(*schemas.TRANSACTIONS.names))
    return reduce(
        lambda one, other: one.unionByName(other),
        (
            _rows_of(
                tables.raw("history"),
                LINE,
                "fields",
                log="log",
                number="number",
                time="time",
                node="node",
                name="name",
            ),
            _rows_of(tables.raw("transactions").withColumn("attempt", attempt), ATTEMPT, "attempt"),
            _rows_of(tables.raw("dumps"), TABLES, "text", node="node"),
        ),
    )


def _rows_of(frame: DataFrame, kind: str, text: str, **given: str) -> DataFrame:
    """With the columns of all rows, those that are not given empty; what cannot be read has no text."""
    empty = {
        "log": F.lit(NO_LOG),
        "number": F.lit(0),
        "time": F.lit(0.0),
        "node": F.lit(""),
        "name": F.lit(""),
    }
    columns = empty | {name: F.col(column) for name, column in given.items()}
    damaged = F.col(CORRUPT).isNotNull() if CORRUPT in frame.columns else F.lit(False)
    for column in (F.col(text), columns["node"], columns["name"]):
        # Spark lets other bytes pass, and Python does not take them.
        damaged |= ~F.coalesce(F.is_valid_utf8(column), F.lit(True))
    columns["number"] = F.coalesce(columns["number"], F.lit(0)).cast("long")
    for name in ("node", "name"):
        columns[name] = F.when(~damaged, columns[name])
    columns["kind"] = F.when(damaged, DAMAGED).otherwise(kind)
    columns["text"] = F.when(~damaged, F.col(text))
    return frame.select("cell", "repetition", *(columns[name].alias(name) for name in _COLUMNS[2:]))


def _checker(
    due: dict[Key, Due | None], measured: dict[Key, dict[str, int]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for key, rows in groupby(_rows(batches), key=lambda row: (row[0], row[1])):
            if key not in due:
                continue
            judged = repetition.judge(_account(due[key], measured.get(key, {}), rows))
            found = [_row(key, verdict) for verdict in judged.verdicts]
            columns = [list(column) for column in zip(*found, strict=True)]
            kinds = [pa.string(), pa.int32(), pa.string(), pa.string(), *[pa.int64()] * 3, pa.string()]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=schemas.VERDICTS.names)

    return work


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


_fields = msgspec.json.Decoder(dict[str, Any]).decode


def _account(due: Due | None, measured: dict[str, int], rows: Iterable[tuple[Any, ...]]) -> Account:
    """What `labctl.results.accounts.load` reads from a folder; `rows` are of one repetition, in order."""
    account = Account(due, [], Result([]), measured)
    damaged: Counter[str] = Counter()
    for log, members in groupby(rows, key=lambda row: row[2]):
        lines: list[Line] = []
        for *_, number, time, node, name, kind, text in members:
            try:
                if kind == ATTEMPT:
                    account.attempts.append(accounts.attempted(text))
                elif kind == LINE:
                    lines.append(Line(node, number, time, name, _fields(text)))
                elif kind == TABLES:
                    histories.take_tables(account.result, f"{node}.json", text)
                else:
                    damaged[log] += 1
            except msgspec.MsgspecError:
                damaged[log] += 1
        if log != NO_LOG:
            histories.take(account.result, log, lines, damaged[log])
    if damaged[NO_LOG]:
        account.gaps.append(f"{layout.TRANSACTIONS}: {cannot_be_read(damaged[NO_LOG])}")
    histories.arrange(account.result)
    return account


def _row(key: Key, verdict: Verdict) -> Row:
    texts = [*verdict.faults, *verdict.anomalies, verdict.note]
    return (
        *key,
        verdict.property,
        verdict.answer,
        verdict.checked,
        len(verdict.faults),
        len(verdict.anomalies),
        texts[0][:EXAMPLE_LENGTH],
    )
