"""Small files of a result, here or anywhere that Spark reads.

A plain path is of this machine. A path with a scheme (`file:`, `hdfs:`, `s3a:`) is asked through Spark's file
systems, by a session that the caller brings.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from labctl.exits import LabError
from labctl.host import whole_lines
from labctl.results.problem import ResultProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")


class NotWritten(LabError):
    """What belongs into a result could not be put there."""


def is_local(path: str) -> bool:
    return _SCHEME.match(path) is None


def join(root: str, *parts: str) -> str:
    return "/".join([root.rstrip("/"), *parts])


# Reading


def read_text(path: str, spark: SparkSession | None = None) -> str | None:
    """None if there is no such file."""
    if is_local(path):
        try:
            return Path(path).read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ResultProblem(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise ResultProblem(f"{path} is damaged: {error}") from None
    from pyspark.errors import AnalysisException

    assert spark is not None, "a path with a scheme is read by Spark"
    try:
        rows = spark.read.text(path, wholetext=True).collect()
    except AnalysisException:
        return None
    return str(rows[0][0]) if rows else None


def rest(path: str, spark: SparkSession | None = None) -> str:
    """What follows the last end of a line in a file of lines; empty as long as nothing is wrong with it."""
    if is_local(path):
        with Path(path).open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return ""
            file.seek(-1, os.SEEK_END)
            if file.read() == b"\n":
                return ""
            file.seek(0)
            return whole_lines.rest(file.read()).decode(errors="replace")
    assert spark is not None, "a path with a scheme is read by Spark"
    system, target = _remote(path, spark)
    if (length := system.getFileStatus(target).getLen()) == 0:
        return ""
    stream = system.open(target)
    try:
        stream.seek(length - 1)
        ends = stream.read() == ord("\n")
    finally:
        stream.close()
    return "" if ends else whole_lines.rest((read_text(path, spark) or "").encode()).decode()


def read_json(path: Path) -> Any:
    text = read_text(str(path))
    if text is None:
        raise ResultProblem(f"{path} cannot be read: there is no such file")
    return parse(text, str(path))


def parse(text: str, path: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise ResultProblem(f"{path} is damaged: {error}") from None


# Writing


def write_json(path: Path, value: object) -> None:
    """As a whole or not at all."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise NotWritten(f"{path} cannot be written: {error.strerror}") from None


def write(path: str, content: str | bytes, spark: SparkSession | None = None) -> None:
    """Of a report, which can be made again."""
    data = content.encode() if isinstance(content, str) else content
    if is_local(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
        return
    assert spark is not None, "a path with a scheme is written by Spark"
    system, target = _remote(path, spark)
    stream = system.create(target, True)
    try:
        stream.write(bytearray(data))
    finally:
        stream.close()


def _remote(path: str, spark: SparkSession) -> tuple[Any, Any]:
    """The file system that a path is of, and the path as it knows it."""
    jvm: Any = spark.sparkContext._jvm
    target = jvm.org.apache.hadoop.fs.Path(path)
    return target.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), target
