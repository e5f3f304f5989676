"""Rates of regular events in windows, and what transactions do to them."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

POINTS_MAX = 600
"""Of a curve; more cannot be told apart on paper."""


def windows(rates: DataFrame, window_s: float) -> DataFrame:
    """Events per second of both agents together, without the first and the last window, which are not whole."""
    every = Window.partitionBy("cell", "repetition")
    total = rates.groupBy("cell", "repetition", "window").agg(
        (F.sum("events") / F.lit(window_s)).alias("rate"),
        F.max("transaction").alias("transaction"),
        F.max("send_lag_ms").alias("send_lag_ms"),
    )
    edges = total.withColumn("first", F.min("window").over(every)).withColumn(
        "last", F.max("window").over(every)
    )
    inner = (F.col("window") > F.col("first")) & (F.col("window") < F.col("last"))
    return edges.where(inner).drop("first", "last")


def drops(whole: DataFrame) -> DataFrame:
    """By repetition: the share by which the rate falls in windows that a transaction touches."""
    touched = F.col("transaction")
    sums = whole.groupBy("cell", "repetition").agg(
        F.count_if(touched).alias("windows_with"),
        F.count_if(~touched).alias("windows_without"),
        F.avg(F.when(touched, F.col("rate"))).alias("rate_with"),
        F.avg(F.when(~touched, F.col("rate"))).alias("rate_without"),
        F.avg("rate").alias("rate"),
        F.stddev("rate").alias("rate_deviation"),
        F.max("send_lag_ms").alias("send_lag_ms_max"),
        F.percentile("send_lag_ms", 0.5).alias("send_lag_ms"),
    )
    return sums.withColumn(
        "drop", F.when(F.col("rate_without") > 0, 1 - F.col("rate_with") / F.col("rate_without"))
    ).withColumn("variation", F.when(F.col("rate") > 0, F.col("rate_deviation") / F.col("rate")))


def event_latency(samples: DataFrame) -> DataFrame:
    """By repetition: how long sampled regular events took, from the time at which they were to leave."""
    values = F.percentile("latency_ms", [0.5, 0.99])
    found = samples.groupBy("cell", "repetition").agg(values.alias("shares"))
    return found.select(
        "cell",
        "repetition",
        F.col("shares")[0].alias("event_p50_ms"),
        F.col("shares")[1].alias("event_p99_ms"),
    )


def curves(whole: DataFrame, window_s: float, points_max: int = POINTS_MAX) -> DataFrame:
    """The rate over time in the first repetition of every cell, thinned to what a figure can show."""
    first = whole.withColumn("chosen", F.min("repetition").over(Window.partitionBy("cell")))
    first = first.where(F.col("repetition") == F.col("chosen"))
    span = Window.partitionBy("cell")
    step = F.greatest(F.lit(1), F.ceil((F.max("window").over(span) + 1) / F.lit(points_max)))
    return (
        first.withColumn("point", F.floor(F.col("window") / step))
        .groupBy("cell", "point")
        .agg(
            (F.min("window") * F.lit(window_s)).alias("time_s"),
            F.avg("rate").alias("rate"),
            F.max("transaction").alias("transaction"),
        )
        .coalesce(1)
        .sortWithinPartitions("cell", "point")
    )
