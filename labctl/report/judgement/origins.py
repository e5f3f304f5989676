"""What was run where and with what, and by what it was reported."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labctl.report.judgement.model import CalibrationResult
from labctl.report.judgement.stats import CONFIDENCE, DRAWS
from labctl.results import documents
from labctl.results.problem import ResultProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES = ("labctl", "pyspark", "pyarrow", "matplotlib")


def calibrations(
    root: str, run: Mapping[str, Any], spark: SparkSession
) -> tuple[list[CalibrationResult], list[str]]:
    """The waits that the result was made with, and what could not be read of them."""
    found: list[CalibrationResult] = []
    problems: list[str] = []
    for name in run.get("calibrations") or ():
        try:
            text = documents.read_text(documents.join(root, name), spark)
            if text is None:
                problems.append(f"{name}: missing")
                continue
            found.append(_calibration(Path(name).stem, documents.parse(text, name)))
        except (ResultProblem, KeyError, TypeError) as error:
            problems.append(f"{name}: not the calibration that it should be ({error})")
    return found, problems


def _calibration(cell: str, artefact: Mapping[str, Any]) -> CalibrationResult:
    below = [run for run in artefact["runs"] if run["wait_ms"] == artefact["failed_at_ms"]]
    faults = [fault for run in below for fault in run["faults"]]
    return CalibrationResult(
        cell=cell,
        wait_ms=artefact["wait_ms"],
        step_ms=artefact["step_ms"],
        correct=artefact["correct"],
        failed_at_ms=artefact["failed_at_ms"],
        failure_rate_upper_bound=artefact["failure_rate_upper_bound"],
        runs=len(artefact["runs"]),
        fault=f"{faults[0]['fault']} ({faults[0]['label']})" if faults else "",
        load_average=artefact.get("load_average"),
    )


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
