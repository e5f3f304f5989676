"""Logs that do not grow for ever: what is kept, in which files, and that nobody who writes or reads is disturbed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.node.log import JsonLog
from broker.node.rotation import FILES_KEPT
from client import connect
from labctl.host import launcher
from labctl.paths import PROJECT
from tests.support.brokers import brokers, wait_for

BYTES_MAX = 2000
LINES = 500


@contextmanager
def opened(path: Path, bytes_max: int | None = BYTES_MAX) -> Iterator[JsonLog]:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        yield JsonLog(fd, "b1", bytes_max)
    finally:
        os.close(fd)


def files(log: Path) -> list[Path]:
    """From the oldest to the newest; there are no others."""
    found = [*(log.with_name(f"{log.name}.{number}") for number in range(FILES_KEPT, 0, -1)), log]
    assert {*found} >= {*log.parent.glob(f"{log.name}*")}
    return [path for path in found if path.exists()]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(log: Path) -> list[int]:
    return [line["number"] for path in files(log) for line in lines(path) if "number" in line]


def test_the_newest_lines_are_kept_in_files_of_a_size(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    before = set(os.listdir("/proc/self/fd"))
    with opened(path) as log:
        for number in range(LINES):
            log.log("said", number=number)
            assert all(file.stat().st_size <= BYTES_MAX for file in files(path))
    kept = numbers(path)
    assert len(files(path)) == 1 + FILES_KEPT
    assert kept == list(range(kept[0], LINES)), "none is lost between two files, and the last one is there"
    assert 0 < kept[0] < LINES - 3 * BYTES_MAX // 200
    assert {file.stat().st_mode & 0o777 for file in files(path)} == {0o640}
    assert set(os.listdir("/proc/self/fd")) == before


def test_every_file_begins_with_the_date(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    with opened(path) as log:
        for number in range(LINES):
            log.log("said", number=number)
    for file in files(path):
        assert ["wall" in line for line in lines(file)] == [True, *[False] * (len(lines(file)) - 1)]


def test_what_is_there_before_counts(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    path.write_text('{"number":-1}\n' * (BYTES_MAX // 14))
    with opened(path) as log:
        log.log("said", number=0)
    old, new = files(path)
    assert old.read_text().startswith('{"number":-1}')
    assert [line["number"] for line in lines(new)] == [0]


def test_without_a_limit_a_log_is_one_file(tmp_path: Path) -> None:
    with opened(tmp_path / "b1.jsonl", None) as log:
        for number in range(LINES):
            log.log("said", number=number)
    assert numbers(tmp_path / "b1.jsonl") == list(range(LINES))
    assert files(tmp_path / "b1.jsonl") == [tmp_path / "b1.jsonl"]


def test_a_line_that_is_longer_than_a_file_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    with opened(path) as log:
        for number in range(3):
            log.log("said", number=number, text="x" * 2 * BYTES_MAX)
    assert numbers(path) == [0, 1, 2]
    assert [len(lines(file)) for file in files(path)] == [1, 1, 1]


def test_several_who_share_a_file_lose_nothing_and_bound_it(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    with opened(path) as one, opened(path) as other:
        for number in range(40):
            (one, other)[number % 2].log("said", number=number)
            assert all(file.stat().st_size <= 2 * BYTES_MAX for file in files(path))
    assert sorted(numbers(path)) == list(range(40))


def test_a_file_that_somebody_has_taken_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "b1.jsonl"
    with opened(path) as log:
        log.log("said", number=0)
        path.rename(tmp_path / "taken")
        for number in range(1, 40):
            log.log("said", number=number)
    kept = numbers(path)
    assert kept[-1] == 39
    assert [line["number"] for line in lines(tmp_path / "taken")] + kept == list(range(40))


def test_a_folder_that_has_gone_disturbs_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    with opened(folder / "b1.jsonl") as log:
        log.log("said")
        (folder / "b1.jsonl").unlink()
        folder.rmdir()
        for _ in range(LINES):
            log.log("said")
        assert log.lines_lost == 0
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_not_rotated() -> None:
    reading, writing = os.pipe()
    log = JsonLog(writing, "b1", 100)
    for number in range(20):
        log.log("said", number=number)
    os.close(writing)
    with open(reading, "rb") as stream:
        assert len(stream.read().splitlines()) == 20


PROGRAM = """
import os, sys
from broker.node.log import JsonLog
log = JsonLog(1, "b1", 2000)
for number in range(100):
    log.log("said", number=number)
os.write(2, b"it cannot go on\\n")
"""


def test_standard_error_in_the_same_file_goes_along(tmp_path: Path) -> None:
    path = tmp_path / "b1.log"
    with path.open("ab") as log:
        subprocess.run([sys.executable, "-c", PROGRAM], stdout=log, stderr=log, cwd=PROJECT, check=True)
    assert len(files(path)) > 1
    assert path.read_text().splitlines()[-1] == "it cannot go on"
    assert launcher.last_words(path) == "it cannot go on"
    assert all("it cannot" not in file.read_text() for file in files(path)[:-1])


@pytest.mark.slow
def test_a_broker_and_a_client_of_many_connections_keep_their_logs_short(tmp_path: Path) -> None:
    seen: list[int] = []

    async def come_and_go(address: str) -> None:
        for number in range(40):
            async with connect(
                address, client_id=f"C{number}", log_file=tmp_path / "C.log", log_bytes_max=BYTES_MAX
            ):
                pass
            seen.append(sum(file.stat().st_size for file in files(tmp_path / "b1.log")))

    with brokers(tmp_path, settings={"log_bytes_max": BYTES_MAX}) as overlay:
        asyncio.run(come_and_go(overlay.address("b1")))
        process = overlay.process("b1")
        wait_for("the last one has left", lambda: "C39" in (tmp_path / "b1.log").read_text())
    assert max(seen) <= (1 + FILES_KEPT) * BYTES_MAX
    assert len(files(tmp_path / "b1.log")) == 1 + FILES_KEPT
    assert process.log()[-1]["event"] == "stopped"
    assert len(files(tmp_path / "C.log")) > 1
    assert all(file.stat().st_size <= BYTES_MAX for file in files(tmp_path / "C.log"))
