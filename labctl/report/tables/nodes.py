"""What nodes sent and how busy they were."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812


def traffic(messages: DataFrame, by_repetition: DataFrame) -> DataFrame:
    """Messages and bytes per committed transaction: each message counts once, where it was sent."""
    sent = messages.groupBy("cell", "repetition").agg(
        F.sum("messages_out").alias("messages_out"), F.sum("bytes_out").alias("bytes_out")
    )
    counts = by_repetition.select("cell", "repetition", "committed")
    joined = sent.join(counts, ["cell", "repetition"])
    some = F.col("committed") > 0
    return joined.select(
        "cell",
        "repetition",
        F.when(some, F.col("messages_out") / F.col("committed")).alias("messages"),
        F.when(some, F.col("bytes_out") / F.col("committed")).alias("bytes"),
    )


def vitals(samples: DataFrame) -> DataFrame:
    """CPU and loop lag of every node in every cell, over its repetitions."""
    return (
        samples.groupBy("cell", "node")
        .agg(
            F.avg("cpu_percent").alias("cpu_percent"),
            F.max("cpu_percent").alias("cpu_percent_max"),
            F.percentile("loop_lag_ms_max", 0.5).alias("loop_lag_ms"),
            F.max("loop_lag_ms_max").alias("loop_lag_ms_max"),
            F.max("rss_bytes").alias("rss_bytes_max"),
        )
        .coalesce(1)
        .sortWithinPartitions("cell", "node")
    )
