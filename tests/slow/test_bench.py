"""The benchmarks run, measure both sides, print what programs rely on, and leave nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labctl import processes

pytestmark = pytest.mark.slow


def bench(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", "from labctl.cli import main; main()", "bench", *arguments, "--json"],
        capture_output=True,
        env={"XDG_STATE_HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/bin"},
        timeout=110,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def left_behind() -> list[processes.Process]:
    return processes.find(lambda process: any("labctl.bench" in a for a in process.arguments))


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
    assert left_behind() == []


def test_matching_is_measured_beside_a_plain_bitset_index(tmp_path: Path) -> None:
    result = bench(tmp_path, "matching", "--subscriptions", "3000", "--events", "200")
    assert result["subscriptions"] == 3000
    for name in ("decision_us", "decision_us_at_100", "insert_us", "bytes_per_subscription"):
        assert result[name] > 0, name
    assert result["bitset_decision_us"] > 0
    assert left_behind() == []
