"""A result folder, here or anywhere that Spark reads: what is in it, its small documents, and writing.

A plain path is a directory of this machine. A path with a scheme (`file:`, `hdfs:`, `s3a:`) is asked
through Spark's file systems.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from labctl.exits import OUTCOME_UNKNOWN, LabError, UsageProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = 1
"""Of run.json: what this report understands."""
OUTPUT = "report"
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")
_REPETITION = re.compile(r"cells/([^/]+)/(\d+)/(.+)$")


class ResultProblem(LabError):
    """Not a result that can be reported, though it may be one."""

    exit_code = OUTCOME_UNKNOWN


class Repetition(Struct, frozen=True, order=True):
    """One repetition of a cell, and the files that it left."""

    cell: str
    number: int
    files: tuple[str, ...] = ()
    """Relative to the repetition's own folder."""

    def nodes(self, kind: str) -> set[str]:
        """Nodes that have a file in `history`, `nodes` or `tables`."""
        found = (file.removeprefix(f"{kind}/") for file in self.files if file.startswith(f"{kind}/"))
        return {name.rpartition(".")[0] for name in found}


def is_local(path: str) -> bool:
    return _SCHEME.match(path) is None


def join(root: str, *parts: str) -> str:
    return "/".join([root.rstrip("/"), *parts])


def find(given: str | None, base: Path = Path("results")) -> str:
    """The folder that is meant: given itself, by its `latest`, or the newest of all."""
    if given is None:
        return _newest(base)
    if not is_local(given):
        return given
    path = Path(given)
    if not path.is_dir():
        raise UsageProblem(f"there is no folder {given}; give the folder of a result, which has a run.json")
    if not (path / "run.json").exists():
        for candidate in (path / "latest",):
            if (candidate / "run.json").exists():
                return str(candidate.resolve())
            if candidate.is_file() and (path / candidate.read_text().strip() / "run.json").exists():
                return str(path / candidate.read_text().strip())
    return str(path)


def _newest(base: Path) -> str:
    if (base / "latest").exists():
        return find(str(base)) if (base / "latest").is_file() else str((base / "latest").resolve())
    found = sorted(base.glob("*/*/run.json"), key=lambda path: path.parent.name)
    runs = [path.parent for path in found if not path.parent.is_symlink()]
    if not runs:
        raise UsageProblem(
            f"there is no result under {base}; name one, or make one: labctl run experiment base"
        )
    return str(runs[-1])


def read_run(path: str, spark: SparkSession | None = None) -> dict[str, Any]:
    """run.json, checked to be of a version that we understand."""
    text = read_text(join(path, "run.json"), spark)
    if text is None:
        raise ResultProblem(
            f"{path} has no run.json: it is empty, or not the folder of a result (those are "
            "results/<experiment>/<time>-<id>)"
        )
    try:
        run = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ResultProblem(f"{join(path, 'run.json')} is not JSON: {error}") from None
    found = run.get("format") if isinstance(run, dict) else None
    if not isinstance(found, int) or isinstance(found, bool):
        raise ResultProblem(
            f"{join(path, 'run.json')} does not say its format; this report reads format {FORMAT}"
        )
    if found != FORMAT:
        age = "an older" if found < FORMAT else "a newer"
        raise ResultProblem(
            f"{path} was made by {age} labctl (format {found}); this report reads format {FORMAT}. "
            "Report it with the labctl that made it"
        )
    assert isinstance(run, dict)
    return run


def read_text(path: str, spark: SparkSession | None = None) -> str | None:
    """The text of a small file; None if there is none."""
    if is_local(path):
        try:
            return Path(path).read_text("utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
    from pyspark.errors import AnalysisException

    assert spark is not None, "a path with a scheme is read by Spark"
    try:
        rows = spark.read.text(path, wholetext=True).collect()
    except AnalysisException:
        return None
    return str(rows[0][0]) if rows else None


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
    return sorted(path for path in found if not path.startswith(f"{OUTPUT}/"))


def repetitions(files: Iterable[str]) -> list[Repetition]:
    """Finished repetitions: their folders appear whole."""
    found: dict[tuple[str, int], list[str]] = {}
    for path in files:
        if (match := _REPETITION.match(path)) is not None:
            found.setdefault((match[1], int(match[2])), []).append(match[3])
    return [Repetition(cell, number, tuple(names)) for (cell, number), names in sorted(found.items())]


def write(path: str, content: str | bytes, spark: SparkSession | None = None) -> None:
    data = content.encode() if isinstance(content, str) else content
    if is_local(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
        return
    assert spark is not None, "a path with a scheme is written by Spark"
    jvm: Any = spark.sparkContext._jvm
    target = jvm.org.apache.hadoop.fs.Path(path)
    stream = target.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).create(target, True)
    try:
        stream.write(bytearray(data))
    finally:
        stream.close()
