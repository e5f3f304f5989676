"""Which folder is meant, whether it is a result that we understand, and which files it has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from labctl.exits import UsageProblem
from labctl.results.documents import is_local, join, parse, read_text
from labctl.results.layout import FORMAT, LATEST, REPORT, RUN
from labctl.results.problem import ResultProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def find(given: str | None, base: Path = Path("results")) -> str:
    """The folder that is meant: given itself, by its `latest`, or the newest of all."""
    if given is None:
        return _newest(base)
    if not is_local(given):
        return given
    path = Path(given)
    if not path.is_dir():
        raise UsageProblem(f"there is no folder {given}; give the folder of a result, which has a {RUN}")
    if not (path / RUN).exists():
        link = path / LATEST
        if (link / RUN).exists():
            return str(link.resolve())
        if link.is_file() and (path / link.read_text().strip() / RUN).exists():
            return str(path / link.read_text().strip())
    return str(path)


def _newest(base: Path) -> str:
    if (base / LATEST).exists():
        return find(str(base)) if (base / LATEST).is_file() else str((base / LATEST).resolve())
    found = sorted(base.glob(f"*/*/{RUN}"), key=lambda path: path.parent.name)
    runs = [path.parent for path in found if not path.parent.is_symlink()]
    if not runs:
        raise UsageProblem(
            f"there is no result under {base}; name one, or make one: labctl run experiment base"
        )
    return str(runs[-1])


def read_run(path: str, spark: SparkSession | None = None) -> dict[str, Any]:
    """run.json, checked to be of a version that we understand."""
    file = join(path, RUN)
    text = read_text(file, spark)
    if text is None:
        raise ResultProblem(
            f"{path} has no {RUN}: it is empty, or not the folder of a result (those are "
            "results/<experiment>/<time>-<id>)"
        )
    run = parse(text, file)
    found = run.get("format") if isinstance(run, dict) else None
    if not isinstance(found, int) or isinstance(found, bool):
        raise ResultProblem(f"{file} does not say its format; this labctl knows format {FORMAT}")
    if found != FORMAT:
        age = "an older" if found < FORMAT else "a newer"
        raise ResultProblem(
            f"{path} was made by {age} labctl (format {found}); this one knows format {FORMAT}. "
            "Go on with the labctl that made it"
        )
    assert isinstance(run, dict)
    return run


def list_files(spark: SparkSession, root: str) -> list[str]:
    """Every file of the result, relative to it, without what a report has written."""
    if is_local(root):
        found = [
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, names in os.walk(root)
            for name in names
        ]
    else:
        every = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(root)
        start = unquote(root.rstrip("/")).split(":", 1)[1].lstrip("/")
        found = [unquote(uri).split(start, 1)[1].lstrip("/") for uri in every.inputFiles()]
    return sorted(path for path in found if not path.startswith(f"{REPORT}/"))
