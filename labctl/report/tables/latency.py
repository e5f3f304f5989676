"""How long transactions took and how many there were: from exact values, never from averages of percentiles."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

SHARES = (0.5, 0.9, 0.95, 0.99)
PERCENTILES = ("p50", "p90", "p95", "p99")
BIN_RATIO = 1.02
"""Bins of the histograms grow by this factor: a value is known to one part in a hundred."""


def counted(transactions: DataFrame) -> DataFrame:
    """Without the warm-up, and with times in milliseconds.

    `latency_ms` is the paper's (until the agent's acknowledgement), `outcome_ms` until the coordinator knew,
    `completion_ms` until both: then a sequential coordinator goes on.
    """
    finished = F.greatest("ack_s", "outcome_s")
    return (
        transactions.where(~F.coalesce("warm_up", F.lit(False)))
        .withColumn("is_committed", F.col("outcome") == "committed")
        .withColumn("latency_ms", (F.col("ack_s") - F.col("start_s")) * 1e3)
        .withColumn("outcome_ms", (F.col("outcome_s") - F.col("start_s")) * 1e3)
        .withColumn("end_s", finished)
        .withColumn("completion_ms", (finished - F.col("start_s")) * 1e3)
    )


def by_repetition(transactions: DataFrame) -> DataFrame:
    """One row per cell and repetition, of what `counted` gives."""
    done = F.col("is_committed")
    wrong = ~F.coalesce("correct", F.lit(True))
    faults = {
        "late_subscriptions": "late-subscription",
        "late_unsubscriptions": "late-unsubscription",
        "wrong_recipients": "wrong-recipient",
        "missed": "missed",
    }
    return transactions.groupBy("cell", "repetition").agg(
        F.count("*").alias("transactions"),
        F.count_if(done).alias("committed"),
        F.count_if(F.col("outcome") == "aborted").alias("aborted"),
        F.count_if(F.col("outcome") == "unknown").alias("unknown"),
        F.count_if(wrong).alias("wrong"),
        *[F.count_if(wrong & (F.col("fault") == word)).alias(name) for name, word in faults.items()],
        F.avg(F.when(done, F.col("latency_ms"))).alias("latency_ms"),
        F.avg(F.when(done, F.col("outcome_ms"))).alias("outcome_ms"),
        F.avg(F.when(done, F.col("completion_ms"))).alias("completion_ms"),
        F.max(F.when(done, F.col("latency_ms"))).alias("max_ms"),
        F.percentile(F.when(done, F.col("latency_ms")), list(SHARES)).alias("percentiles"),
    )


def by_cell(transactions: DataFrame) -> DataFrame:
    """Percentiles over all committed transactions of a cell."""
    done = transactions.where("is_committed")
    return done.groupBy("cell").agg(
        F.count("*").alias("committed"),
        F.percentile("latency_ms", list(SHARES)).alias("percentiles"),
        F.max("latency_ms").alias("max_ms"),
    )


def throughput(transactions: DataFrame) -> DataFrame:
    """Committed transactions per second, by cell and repetition.

    Each coordinator is timed by its own clock; their rates add up.
    """
    span = F.max("end_s") - F.min("start_s")
    per_copy = transactions.groupBy("cell", "repetition", "copy").agg(
        F.count_if("is_committed").alias("committed"), span.alias("span_s")
    )
    rate = F.when(F.col("span_s") > 0, F.col("committed") / F.col("span_s"))
    return per_copy.groupBy("cell", "repetition").agg(F.sum(rate).alias("throughput"))


def histogram(transactions: DataFrame) -> DataFrame:
    """How many committed transactions of a cell took how long; `low_ms` is the lower edge of a bin."""
    number = F.floor(F.log(F.col("latency_ms")) / F.log(F.lit(BIN_RATIO)))
    bins = transactions.where(F.col("is_committed") & (F.col("latency_ms") > 0)).withColumn("bin", number)
    return (
        bins.groupBy("cell", "bin")
        .agg(F.count("*").alias("transactions"))
        .withColumn("low_ms", F.pow(F.lit(BIN_RATIO), F.col("bin")))
        .coalesce(1)
        .sortWithinPartitions("cell", "bin")
    )
