"""One pass over the raw logs into Parquet; what cannot be read is counted and named.

A line that does not fit its schema stays in its table, as text in the column `corrupt`, so that the tables
alone show what was left out. So does what follows the last end of a line (`labctl.host.whole_lines`), even where it
could be read. `Tables` gives all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documentation calls it
from pyspark.sql.types import StructField, StructType

from broker.protocol import events
from labctl import topology
from labctl.report.tables import schemas
from labctl.report.tables.schemas import CORRUPT
from labctl.results import layout
from labctl.results.documents import join, rest
from labctl.results.layout import PLACE, Repetition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

CORRUPT_FILES_NAMED = 20
CORRUPT_LINES_NAMED = 3
WRITERS = 4
"""Tables that are written at the same time."""


class Problem(Struct, frozen=True):
    """Something of the input that could not be used."""

    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.text}"


class Tables:
    """The Parquet tables of one report."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path
        self._schemas: dict[str, StructType] = {}

    def write(self, **frames: DataFrame) -> None:
        """Several at a time: planning one and carrying out another do not keep each other waiting."""
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(self._write, frames, frames.values()))

    def _write(self, name: str, frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(self.where(name))
        self._schemas[name] = frame.schema

    def has(self, name: str) -> bool:
        return name in self._schemas

    def where(self, name: str) -> str:
        return join(self.path, f"{name}.parquet")

    def raw(self, name: str) -> DataFrame:
        # With its schema: Spark would run a job to find it in the files.
        return self.spark.read.schema(self._schemas[name]).parquet(self.where(name))

    def read(self, name: str) -> DataFrame:
        """Only rows that are what they should be."""
        frame = self.raw(name)
        return frame.where(F.col(CORRUPT).isNull()).drop(CORRUPT) if CORRUPT in frame.columns else frame


def ingest(root: str, tables: Tables, found: Iterable[Repetition]) -> None:
    """transactions, rates, latencies of regular events, history, vitals, cells, messages; faults, where some are."""
    spark = tables.spark
    present = {_kind(file) for repetition in found for file in repetition.files}
    lines = {
        "transactions": (layout.TRANSACTIONS, schemas.TRANSACTIONS),
        "rates": (layout.WINDOWS, schemas.RATES),
        "latencies": (layout.LATENCIES, schemas.LATENCIES),
        "faults": (layout.FAULTS, schemas.FAULTS),
        "history": (layout.lines_of(layout.HISTORY, "*"), schemas.HISTORY),
        "nodes": (layout.logs_of("*"), schemas.VITALS),
    }
    rests = _readable_rests(spark, root, found)
    frames: dict[str, DataFrame] = {}
    for name, (pattern, schema) in lines.items():
        if name in present:
            where = join(root, layout.EVERY, pattern)
            frame = read_lines(spark, where, schema, schemas.REQUIRED[name], rests)
        elif name == "faults":
            continue
        else:
            frame = _nothing(spark, schema)
        if name == "nodes":
            frame = frame.where((F.col("event") == "vitals") | F.col(CORRUPT).isNotNull()).drop("event")
        frames["vitals" if name == "nodes" else name] = frame
    frames["cells"] = read_cells(_documents(spark, root, layout.CELL, present))
    frames["messages"] = read_messages(_documents(spark, root, layout.MESSAGES, present))
    dumps = _documents(spark, root, f"{layout.TABLES}/*.json" if layout.TABLES in present else "", present)
    frames["dumps"] = dumps.select(
        "cell",
        "repetition",
        F.regexp_extract("file", PLACE, 3).alias("node"),
        F.col("value").alias("text"),
    )
    tables.write(**frames)
    tables.write(deliveries=deliveries(tables.read("history")))


def _readable_rests(spark: SparkSession, root: str, found: Iterable[Repetition]) -> dict[str, str]:
    """By file, what follows its last end of a line and would be taken for one: all others cannot be read anyway."""
    rests = {}
    for file in (f"{each.path}/{file}" for each in found for file in each.files if ".jsonl" in file):
        if text := rest(join(root, file), spark):
            with suppress(msgspec.DecodeError):
                msgspec.json.decode(text)
                rests[file] = text
    return rests


def _kind(file: str) -> str:
    """`history` for history/b1.jsonl, `rates` for rates.jsonl, cell.json for itself."""
    top, slash, _ = file.partition("/")
    return top if slash or not file.endswith(".jsonl") else file.removesuffix(".jsonl")


def read_lines(
    spark: SparkSession,
    pattern: str,
    schema: StructType,
    required: Iterable[str],
    rests: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    """JSON lines with the cell, repetition and node that their path names.

    `rests`: by file, what is no line though it can be read, for Spark looks for no end behind the last one.
    """
    raw = (
        spark.read.schema(StructType([*schema.fields, StructField(CORRUPT, schemas.TEXT)]))
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", CORRUPT)
        .json(pattern)
        .withColumn("file", F.col("_metadata.file_path"))
    )
    incomplete = _any([F.col(name).isNull() for name in required])
    row = F.to_json(F.struct(*[F.col(name) for name in schema.names]))
    placed = raw.withColumn(
        CORRUPT, F.when(F.col(CORRUPT).isNull() & incomplete, row).otherwise(F.col(CORRUPT))
    )
    for file, text in rests.items():
        is_rest = F.col("file").endswith(f"/{file}") & (row == F.to_json(F.from_json(F.lit(text), schema)))
        placed = placed.withColumn(CORRUPT, F.when(is_rest, F.lit(text)).otherwise(F.col(CORRUPT)))
    placed = with_place(placed)
    if "fields" in schema.names:
        # A node that was started again has a file for each life.
        placed = placed.withColumn("log", F.regexp_extract("file", PLACE, 3))
    if "node" in schema.names:
        placed = placed.withColumn("node", F.coalesce("node", F.regexp_extract("file", PLACE, 3)))
    return placed.withColumn("file", F.when(F.col(CORRUPT).isNotNull(), F.col("file")))


def with_place(frame: DataFrame) -> DataFrame:
    """Which cell and repetition a row is of, from the path of its file."""
    return frame.withColumn("cell", F.regexp_extract("file", PLACE, 1)).withColumn(
        "repetition", F.regexp_extract("file", PLACE, 2).cast("int")
    )


def _any(conditions: list[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found |= condition
    return found


def _nothing(spark: SparkSession, schema: StructType) -> DataFrame:
    empty = spark.createDataFrame([], schema)
    if "fields" in schema.names:
        empty = empty.withColumn("log", F.lit(None).cast("string"))
    extra: Mapping[str, DataType | str] = {
        CORRUPT: "string",
        "file": "string",
        "cell": "string",
        "repetition": "int",
    }
    for name, kind in extra.items():
        empty = empty.withColumn(name, F.lit(None).cast(kind))
    return empty


def _documents(spark: SparkSession, root: str, name: str, present: set[str]) -> DataFrame:
    """Whole files as text, with their place."""
    if not name or ("/" not in name and name not in present):
        return spark.createDataFrame([], "value string, file string, cell string, repetition int")
    text = spark.read.text(join(root, layout.EVERY, name), wholetext=True)
    return with_place(text.withColumn("file", F.col("_metadata.file_path")))


def read_cells(documents: DataFrame) -> DataFrame:
    """One row per repetition: its parameters and where its clients were."""
    parsed = documents.withColumn("d", F.from_json("value", schemas.CELL, {"mode": "PERMISSIVE"}))
    bad = (
        F.col("d").isNull()
        | F.col("d.parameters.approach").isNull()
        | F.col("d.parameters.scenario").isNull()
    )
    others = [
        n
        for n in schemas.CELL.names
        if n not in ("cell", "repetition", "parameters", "transactions", "warm_up")
    ]
    return parsed.select(
        "cell",
        "repetition",
        *[F.col(f"d.parameters.{name}").alias(name) for name in schemas.PARAMETERS.names],
        *[F.col(f"d.{name}").alias(name) for name in others],
        F.col("d.transactions").alias("transactions_wanted"),
        F.col("d.warm_up").alias("warm_up_wanted"),
        F.when(bad, F.substring("value", 1, 200)).alias(CORRUPT),
        F.when(bad, F.col("file")).alias("file"),
    )


def document_of(cell: Mapping[str, object]) -> dict[str, object]:
    """What `read_cells` has made a row of, as far as it says what was to be done."""
    return {
        "parameters": {name: cell[name] for name in schemas.PARAMETERS.names},
        "placement": cell["placement"],
        "transactions": cell["transactions_wanted"],
        "warm_up": cell["warm_up_wanted"],
        "measured": cell["measured"],
    }


def read_messages(documents: DataFrame) -> DataFrame:
    """One row per repetition and node: messages and bytes in the counted part."""
    parsed = documents.withColumn("d", F.from_json("value", schemas.MESSAGES, {"mode": "PERMISSIVE"}))
    bad = F.col("d").isNull()
    rows = parsed.select(
        "cell",
        "repetition",
        F.explode_outer("d").alias("node", "counts"),
        F.when(bad, F.substring("value", 1, 200)).alias(CORRUPT),
        F.when(bad, F.col("file")).alias("file"),
    )
    counts = [F.col(f"counts.{name}").alias(name) for name in schemas.COUNTS.names]
    return rows.select("cell", "repetition", "node", *counts, CORRUPT, "file")


def deliveries(history: DataFrame) -> DataFrame:
    """What clients were handed, out of the history."""
    fields = F.from_json("fields", schemas.DELIVERED).alias("d")
    rows = history.where(F.col("name") == events.DELIVERED).select(
        "cell", "repetition", F.col("node").alias("client"), "number", "time", fields
    )
    return rows.select("cell", "repetition", "client", "number", "time", "d.tx", "d.op", "d.event")


def corrupt_lines(tables: Tables, root: str) -> list[Problem]:
    """Every file with lines that cannot be used: how many, and the first of them by number."""
    names = ("transactions", "rates", "latencies", "faults", "history", "vitals", "cells", "messages")
    there = [name for name in names if tables.has(name)]
    bad = [tables.raw(name).where(F.col(CORRUPT).isNotNull()).select("file", CORRUPT) for name in there]
    counts = (
        reduce(lambda one, other: one.unionByName(other), bad)
        .groupBy("file")
        .agg(F.count("*").alias("lines"), F.min(CORRUPT).alias("text"))
        .orderBy("file")
        .limit(CORRUPT_FILES_NAMED + 1)
        .collect()
    )
    problems = [_corrupt(tables.spark, root, *row) for row in counts[:CORRUPT_FILES_NAMED]]
    if len(counts) > len(problems):
        problems.append(Problem("tables", "more files have corrupt lines; see the column 'corrupt'"))
    return problems


def _corrupt(spark: SparkSession, root: str, uri: str, lines: int, text: str) -> Problem:
    start = uri.rfind(f"/{layout.CELLS}/")
    file = uri[start + 1 :]
    if file.endswith(".json"):
        return Problem(file, "not the JSON document that it should be; left out")
    numbers = _line_numbers(spark, join(root, file), text)
    first = f"the first at line {numbers[0]}" if numbers else "without a field that every line has"
    return Problem(
        file, f"{lines} corrupt or truncated line{'s' if lines > 1 else ''}, {first}, left out: {text[:60]!r}"
    )


def _line_numbers(spark: SparkSession, path: str, text: str) -> list[int]:
    numbered = spark.sparkContext.textFile(path).zipWithIndex()
    return [
        number + 1 for _, number in numbered.filter(lambda line: line[0] == text).take(CORRUPT_LINES_NAMED)
    ]


def missing_files(
    found: Iterable[Repetition], cells: Mapping[tuple[str, int], Mapping[str, object]]
) -> list[Problem]:
    """Files that a repetition of its kind has, and this one has not."""
    problems: list[Problem] = []
    for repetition in found:
        place = repetition.path
        cell = cells.get((repetition.cell, repetition.number))
        for name in (layout.CELL, layout.TRANSACTIONS, layout.MESSAGES):
            if name not in repetition.files:
                problems.append(Problem(f"{place}/{name}", "missing"))
        if cell is None:
            continue
        if cell["scenario"] == "disruption" and layout.WINDOWS not in repetition.files:
            problems.append(Problem(f"{place}/{layout.WINDOWS}", "missing"))
        nodes = _nodes_of(cell)
        for kind in (layout.NODES, layout.HISTORY):
            absent = sorted(nodes - repetition.nodes(kind))
            if absent and not repetition.nodes(kind):
                problems.append(Problem(f"{place}/{kind}", "no node left one"))
            else:
                problems += [Problem(f"{place}/{layout.lines_of(kind, node)}", "missing") for node in absent]
    return problems


def _nodes_of(cell: Mapping[str, object]) -> set[str]:
    placement = cell.get("placement")
    clients = set(placement) if isinstance(placement, Mapping) else set()
    brokers = cell.get("brokers")
    return clients | set(topology.standard(brokers).brokers if isinstance(brokers, int) else ())
