"""What was run where and with what, and by what it was reported."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labctl.report.stats import CONFIDENCE, DRAWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES = ("labctl", "pyspark", "pyarrow", "matplotlib")


def describe(
    spark: SparkSession, run: Mapping[str, Any], claims_file: Path, seconds: float
) -> dict[str, Any]:
    keys = (
        "experiment",
        "profile",
        "seed",
        "started",
        "testbed",
        "code",
        "git",
        "versions",
        "machine",
        "calibrations",
    )
    jvm: Any = spark.sparkContext._jvm
    return {
        "run": {key: run.get(key) for key in keys},
        "report": {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(seconds, 1),
            "master": spark.sparkContext.master,
            "java": str(jvm.System.getProperty("java.version")),
            "python": platform.python_version(),
            "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
            "claims_sha256": hashlib.sha256(claims_file.read_bytes()).hexdigest(),
            "bootstrap": {"confidence": CONFIDENCE, "draws": DRAWS, "seed": run.get("seed")},
        },
    }
