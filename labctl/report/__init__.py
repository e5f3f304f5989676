"""From a result folder to answers: a PySpark pipeline, figures, and a page.

Raw logs are read once into Parquet (`ingest`); all else is computed from there by small functions from
DataFrame to DataFrame (`transforms`), and what reaches this process is one row per repetition, per node or
per bin of a histogram, never a row of a log.
"""
