"""The columns of every file of a result folder, written down: nothing is inferred from the data."""

from __future__ import annotations

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

CORRUPT = "corrupt"
"""Text of a line that is not what its schema says; null in every other row."""

TEXT, WHOLE, REAL, FLAG = StringType(), LongType(), DoubleType(), BooleanType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


TRANSACTIONS = _struct(
    copy=WHOLE,
    number=WHOLE,
    tx=TEXT,
    warm_up=FLAG,
    agent=TEXT,
    start_s=REAL,
    outcome_s=REAL,
    ack_s=REAL,
    outcome=TEXT,
    reason=TEXT,
    correct=FLAG,
    fault=TEXT,
)
RATES = _struct(agent=TEXT, window=WHOLE, start_s=REAL, events=WHOLE, transaction=FLAG, send_lag_ms=REAL)
FAULTS = _struct(fault=WHOLE, phase=TEXT, node=TEXT, time_s=REAL, what=TEXT)
LATENCIES = _struct(agent=TEXT, due_s=REAL, latency_ms=REAL)
HISTORY = _struct(node=TEXT, number=WHOLE, time=REAL, name=TEXT, fields=TEXT)
VITALS = _struct(
    t=WHOLE, node=TEXT, event=TEXT, cpu_percent=REAL, cpu_s=REAL, rss_bytes=WHOLE, loop_lag_ms_max=REAL
)

REQUIRED = {
    "transactions": ("number", "start_s", "outcome"),
    "rates": ("agent", "window", "events", "transaction"),
    "latencies": ("due_s", "latency_ms"),
    "faults": ("fault", "phase", "node", "time_s"),
    "history": ("node", "number", "time", "name", "fields"),
    "nodes": ("event",),
}
"""Columns without which a line says nothing: such a line counts as corrupt."""

PARAMETERS = _struct(
    scenario=TEXT,
    approach=TEXT,
    brokers=WHOLE,
    in_flight=WHOLE,
    copies=WHOLE,
    step_ms=REAL,
    stalls=FLAG,
    work=TEXT,
    load=TEXT,
    durable=TEXT,
    faults=TEXT,
)
CELL = _struct(
    cell=TEXT,
    parameters=PARAMETERS,
    wait_ms=REAL,
    repetition=WHOLE,
    seed=WHOLE,
    placement=MapType(TEXT, TEXT),
    transactions=WHOLE,
    warm_up=WHOLE,
    started=TEXT,
    ended=TEXT,
    profile=TEXT,
    steal=MapType(TEXT, REAL),
    measured=MapType(TEXT, WHOLE),
    plan=TEXT,
    began_s=MapType(TEXT, REAL),
)
COUNTS = _struct(messages_in=WHOLE, messages_out=WHOLE, bytes_in=WHOLE, bytes_out=WHOLE)
MESSAGES = MapType(TEXT, COUNTS)

VERDICTS = StructType(
    [
        StructField("cell", TEXT, nullable=False),
        StructField("repetition", IntegerType(), nullable=False),
        StructField("property", TEXT, nullable=False),
        StructField("answer", TEXT, nullable=False),
        StructField("checked", WHOLE, nullable=False),
        StructField("faults", WHOLE, nullable=False),
        StructField("anomalies", WHOLE, nullable=False),
        StructField("example", TEXT, nullable=False),
    ]
)
DELIVERED = _struct(tx=TEXT, op=WHOLE, event=TEXT)
