"""`python -m client`: what a scenario's processes print, how they stop, and what they say when they cannot."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from labctl.paths import PROJECT
from tests.support.brokers import DEADLINE_S, Overlay, brokers, free_addresses, wait_for

pytestmark = pytest.mark.slow

Client = subprocess.Popen[str]


def client(broker: str, role: str, *options: str) -> Client:
    command = [sys.executable, "-m", "client", "--scenario", "dispatching", "--broker", broker]
    return subprocess.Popen(
        [*command, "--role", role, *options],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: Client) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=4 * DEADLINE_S)
    return process.returncode, out, err


@contextmanager
def members(overlay: Overlay, *options: str) -> Iterator[list[Client]]:
    found = [client(overlay.address("b1"), role, *options) for role in ("D", "A1", "A2")]
    try:
        yield found
    finally:
        for process in found:
            if process.poll() is None:
                process.kill()
            process.communicate()


def names_in(history: Path) -> list[str]:
    if not history.exists():
        return []
    return [json.loads(line)["name"] for line in history.read_text().splitlines()]


def test_a_line_for_each_transaction_and_one_for_all(tmp_path: Path) -> None:
    with brokers(tmp_path) as overlay, members(overlay, "--approach", "s-tx") as others:
        engine = client(overlay.address("b1"), "E", "--approach", "s-tx", "--transactions", "5")
        code, out, err = ended(engine)
        assert (code, err) == (0, "")
        *lines, last = [json.loads(line) for line in out.splitlines()]
        assert [line["transaction"] for line in lines] == [1, 2, 3, 4, 5]
        assert {(line["outcome"], line["correct"]) for line in lines} == {("committed", True)}
        assert [line["agent"] for line in lines] == ["A1", "A2", "A1", "A2", "A1"]
        assert all(line["latency_ms"] > 0 for line in lines)
        assert last["summary"]["correct"] == 5
        assert [ended(other)[0] for other in others] == [0, 0, 0], "they were told to stop"


def test_an_interrupted_coordinator_tells_what_it_knows_and_leaves_nothing_open(tmp_path: Path) -> None:
    with brokers(tmp_path) as overlay, members(overlay, "--approach", "d-tx"):
        history = tmp_path / "E.jsonl"
        options = ("--approach", "d-tx", "--transactions", "1000000", "--history", str(history))
        engine = client(overlay.address("b1"), "E", *options)
        wait_for("some outcomes", lambda: "ended" in names_in(history))
        engine.send_signal(signal.SIGINT)
        code, out, err = ended(engine)
        assert (code, err) == (130, "")
        lines = [json.loads(line) for line in out.splitlines()]
        assert lines[-1]["summary"]["committed"] > 0
        assert {line["correct"] for line in lines[:-1]} == {None}, "not everybody had a last word"
        assert "left" in names_in(history)

        def is_over() -> bool:
            return not any(overlay.status("b1")["open"].values())

        wait_for("nothing is open", is_over)


def test_a_member_stops_when_it_is_told_to(tmp_path: Path) -> None:
    with brokers(tmp_path) as overlay:
        history = tmp_path / "D.jsonl"
        dispatcher = client(overlay.address("b1"), "D", "--history", str(history))
        wait_for("it is there", lambda: "issued" in names_in(history))
        dispatcher.send_signal(signal.SIGTERM)
        assert ended(dispatcher) == (0, "", "")
        assert names_in(history)[-1] == "left"
        assert not [link for link in overlay.status("b1")["links"] if link["kind"] == "client"]


def test_a_coordinator_without_the_others_says_who_is_missing(tmp_path: Path) -> None:
    with brokers(tmp_path) as overlay:
        code, _, err = ended(client(overlay.address("b1"), "E", "--ready-s", "0.5"))
    assert code == 1
    assert err == "not ready within 0.5 s: A1, A2, D; are they all started?\n"


def test_mistakes_are_told_in_a_sentence(tmp_path: Path) -> None:
    (nobody,) = free_addresses(1)
    code, _, err = ended(client(nobody, "Z"))
    assert (code, err) == (2, "dispatching has no role Z; it has E, D, A1, A2\n")
    code, _, err = ended(client(nobody, "E"))
    assert (code, err.startswith(nobody), err.count("\n")) == (4, True, 1)
    with brokers(tmp_path) as overlay:
        where = tmp_path / "no" / "such" / "folder.jsonl"
        code, _, err = ended(client(overlay.address("b1"), "E", "--history", str(where)))
    assert (code, err) == (4, f"{where}: No such file or directory\n")
    code, _, err = ended(client(nobody, "E", "--transactions", "0"))
    assert (code, "0 is not above 0" in err) == (2, True)
