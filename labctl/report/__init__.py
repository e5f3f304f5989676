"""From a result folder to answers: a PySpark pipeline, figures, and a page.

Raw logs are read once into Parquet (`tables.ingest`); all else is computed from there by small functions from
DataFrame to DataFrame (`tables`), and what reaches this process is one row per repetition, per node or per bin
of a histogram, and of a log only the transactions of repetitions with faults.

    pipeline.py   raw logs to a `Report`: read once, transform, check, judge

    tables/       functions from DataFrame to DataFrame
    judgement/    what the numbers mean
    pages/        what a report leaves behind for people and programs

May import: labctl.checks, labctl.report.judgement, labctl.report.tables, labctl.results.
"""
