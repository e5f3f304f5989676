"""What a report leaves behind: tables, summary, figures, the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from labctl.report.judgement.model import Report
from labctl.report.pages import summary
from labctl.report.pages.figures import INK, draw
from labctl.report.pages.html import page
from labctl.results import documents
from labctl.results.documents import join

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = (
    "transactions",
    "deliveries",
    "rates",
    "cells",
    "verdicts",
    "vitals",
    "messages",
    "history",
    "repetitions",
)


def _tables(report: Report) -> tuple[str, ...]:
    return (*TABLES, "faults") if report.disturbed else TABLES


def write(report: Report, output: str, spark: SparkSession | None = None) -> dict[str, Any]:
    """Writes all but the tables, which are there already; gives the document of `--json`."""
    figures = draw(report)
    paths: dict[str, Any] = {
        "html": join(output, "report.html"),
        "csv": join(output, "summary.csv"),
        "json": join(output, "summary.json"),
        "figures": [join(output, "figures", f"{f.name}.{end}") for f in figures for end in ("svg", "png")],
        "tables": {name: join(output, "tables", f"{name}.parquet") for name in _tables(report)},
    }
    for figure in figures:
        # On paper ink is black; on the page it follows the reader's colours.
        documents.write(
            join(output, "figures", f"{figure.name}.svg"), figure.svg.replace(INK, "#000000"), spark
        )
        documents.write(join(output, "figures", f"{figure.name}.png"), figure.png, spark)
    documents.write(paths["html"], page(report, figures), spark)
    documents.write(paths["csv"], summary.table(report), spark)
    document = summary.document(report, paths)
    documents.write(paths["json"], msgspec.json.format(msgspec.json.encode(document), indent=1), spark)
    return document
