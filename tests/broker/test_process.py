"""`python -m broker` as a process: how it starts, what ends it, and with which code."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client.asking.monitor import fetch_status
from labctl.paths import PROJECT
from tests.support.brokers import COMMAND, Process, brokers, free_addresses, node_file, wait_for

pytestmark = pytest.mark.slow

TOP = {"id": "b1", "listen": "127.0.0.1:0"}


def run(config: Path) -> tuple[int, str, str]:
    """A broker that is expected to end at once."""
    done = subprocess.run(
        [*COMMAND, str(config)], cwd=PROJECT, capture_output=True, text=True, timeout=15, check=False
    )
    return done.returncode, done.stdout, done.stderr


def sentence(text: str) -> str:
    """What stands on stderr: one line and no traceback."""
    assert text.count("\n") == 1, text
    return text.strip()


def test_it_says_when_it_is_ready_and_where(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "b1.toml").write_text(node_file(TOP, [], {}, {}))
    began = time.monotonic()
    process = Process(tmp_path / "b1.toml")
    try:
        process.wait_until_ready()
        record_property("seconds_until_ready", time.monotonic() - began)
        (ready,) = process.log("ready")
        assert (ready["broker"], ready["pid"]) == ("b1", process.child.pid)
        status = asyncio.run(fetch_status(ready["address"]))
        assert (status["broker"], status["address"]) == ("b1", ready["address"])
    finally:
        process.end()
    assert process.child.returncode == 0
    assert process.errors() == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (node_file(TOP | {"grace": 5}, [], {}, {}), ("'grace'", "'grace_ms'")),
        (node_file(TOP, [], {}, {"payload_max": 5}), ("[limits]", "'payload_max'", "'payload_bytes_max'")),
        (node_file(TOP, [], {"delay": 5}, {}), ("[clients]", "'delay'", "'delay_ms'")),
        (node_file(TOP, [{"id": "b2", "adress": "h:1"}], {}, {}), ("neighbour 1", "'adress'", "'address'")),
        (node_file(TOP, [{"id": "b2"}, {"id": "b2"}], {}, {}), ("b2", "twice")),
        (node_file(TOP, [{"id": "b1"}], {}, {}), ("b1", "itself")),
        (node_file({"id": "b1"}, [], {}, {}), ("'listen'", "missing")),
        (node_file(TOP | {"listen": "here"}, [], {}, {}), ("'here'", "host:port")),
        (node_file(TOP | {"overlap": "some"}, [], {}, {}), ("overlap", "'some'")),
        (node_file(TOP | {"grace_ms": "long"}, [], {}, {}), ("grace_ms",)),
        (node_file(TOP, [], {}, {"payload_bytes_max": 10**9}), ("[limits]", "payload_bytes_max")),
        ("id = b1", ("not TOML", "line 1")),
        ("\0\1\2", ("not TOML",)),
    ],
)
def test_a_wrong_configuration_ends_with_2_and_a_sentence_that_names_file_and_key(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "wrong.toml").write_text(text)
    code, out, err = run(tmp_path / "wrong.toml")
    assert (code, out) == (2, "")
    for word in ("wrong.toml", *words):
        assert word in sentence(err)


def test_a_file_that_cannot_be_read_ends_with_2_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'id = "\xe9"')
    for name in ("missing.toml", "latin.toml", "."):
        code, out, err = run(tmp_path / name)
        assert (code, out) == (2, "")
        assert str(tmp_path / name) in sentence(err)


@pytest.mark.parametrize("where", ["in use", "not ours", "no such host"])
def test_an_address_that_it_cannot_listen_on_ends_with_4_and_is_named(tmp_path: Path, where: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        addresses = {
            "in use": f"127.0.0.1:{taken.getsockname()[1]}",
            "not ours": "192.0.2.1:7001",
            "no such host": "nowhere.invalid:7001",
        }
        (tmp_path / "b1.toml").write_text(node_file(TOP | {"listen": addresses[where]}, [], {}, {}))
        code, out, err = run(tmp_path / "b1.toml")
    assert code == 4
    assert "b1" in sentence(err)
    assert addresses[where] in err
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["fatal"]


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start("b1", address, near)` runs a broker from a file of its own, and it ends with the test."""
    started: list[Process] = []

    def one(name: str, address: str, near: list[dict[str, str]], **top: str) -> Process:
        config = tmp_path / f"{len(started)}-{name}.toml"
        config.write_text(node_file({"id": name, "listen": address} | top, near, {}, {}))
        started.append(Process(config))
        return started[-1]

    yield one
    for process in started:
        process.end()
        assert "Traceback" not in process.errors()


def ended(process: Process) -> tuple[int, str]:
    """Exit code and sentence; the log must say the same."""
    code = process.wait()
    reason = sentence(process.errors())
    fatal = process.log("fatal")[-1]
    assert (fatal["exit_code"], fatal["reason"]) == (code, reason)
    return code, reason


def first_to_end(*processes: Process) -> Process:
    found: Process = wait_for(
        "a broker ends", lambda: next((p for p in processes if p.child.poll() is not None), None)
    )
    return found


def test_a_neighbour_that_is_not_expected_ends_with_2_and_both_are_named(
    tmp_path: Path, start: Start
) -> None:
    with brokers(tmp_path, names=["b2"]) as overlay:
        b1 = start("b1", "127.0.0.1:0", [{"id": "b2", "address": overlay.address("b2")}])
        code, reason = ended(b1)
        assert code == 2
        assert "b1" in reason
        assert "b2" in reason
        assert overlay.log("b2", "refused")[0]["code"] == "unknown-neighbour"
        assert overlay.status("b2")["broker"] == "b2"


def test_a_broker_that_answers_at_a_neighbours_address_and_is_another_ends_with_2(
    tmp_path: Path, start: Start
) -> None:
    with brokers(tmp_path, names=["b3"]) as overlay:
        b1 = start("b1", "127.0.0.1:0", [{"id": "b2", "address": overlay.address("b3")}])
        code, reason = ended(b1)
        assert code == 2
        assert "b2" in reason
        assert "b3" in reason


def test_brokers_that_disagree_on_the_overlap_end_with_2(start: Start) -> None:
    here, there = free_addresses(2)
    start("b2", there, [{"id": "b1"}]).wait_until_ready()
    code, reason = ended(start("b1", here, [{"id": "b2", "address": there}], overlap="any"))
    assert code == 2
    for word in ("b1", "b2", "'any'", "'all'", "overlap"):
        assert word in reason


def test_two_neighbours_that_dial_each_other_end_with_2_and_are_named(start: Start) -> None:
    here, there = free_addresses(2)
    b1 = start("b1", here, [{"id": "b2", "address": there}])
    b2 = start("b2", there, [{"id": "b1", "address": here}])
    code, reason = ended(first_to_end(b1, b2))
    assert code == 2
    assert "b1" in reason
    assert "b2" in reason


def test_a_broker_that_dials_its_own_id_ends_with_2(start: Start) -> None:
    here, there = free_addresses(2)
    start("b1", there, []).wait_until_ready()
    code, reason = ended(start("b1", here, [{"id": "b2", "address": there}]))
    assert code == 2
    assert "b1" in reason


def test_two_brokers_with_one_id_are_found_although_they_never_meet(start: Start) -> None:
    """b1 - b2 - b3 - b1: those between them hear of both."""
    first, second, third, fourth = free_addresses(4)
    start("b1", first, [{"id": "b2", "address": second}])
    b2 = start("b2", second, [{"id": "b1"}, {"id": "b3", "address": third}])
    b3 = start("b3", third, [{"id": "b2"}, {"id": "b1"}])
    start("b1", fourth, [{"id": "b3", "address": third}])
    code, reason = ended(first_to_end(b2, b3))
    assert code == 2
    assert "Two brokers call themselves b1" in reason


def test_a_cycle_ends_with_2_and_is_named_by_its_brokers(tmp_path: Path) -> None:
    ring = [("b1", "b2"), ("b2", "b3"), ("b3", "b1"), ("b3", "b4")]
    with brokers(tmp_path, links=ring, start=False) as overlay:
        for name in overlay.names:
            overlay.start(name)
        code, reason = ended(first_to_end(*(overlay.process(name) for name in overlay.names)))
        assert code == 2
        named = reason.partition(": ")[2].partition(";")[0].split(" - ")
        assert sorted(named[1:]) == ["b1", "b2", "b3"], reason
        assert named[0] == named[-1]


@pytest.mark.parametrize(
    "links",
    [[("b1", "b2"), ("b2", "b3")], [("b2", "b1"), ("b2", "b3")], [("b1", "b2"), ("b3", "b2")]],
    ids=["dials one", "dials both", "is dialled"],
)
def test_a_broker_that_comes_back_without_its_state_ends_with_4_and_the_others_live(
    tmp_path: Path, links: list[tuple[str, str]]
) -> None:
    with brokers(tmp_path, links=links) as overlay:
        overlay.kill("b2")
        overlay.start("b2")
        code, reason = ended(overlay.process("b2"))
        assert code == 4
        assert reason == "Broker b2 has restarted and lost its state; restart the whole overlay."
        # Once more, so that whatever the first attempt has led to is over.
        overlay.start("b2")
        assert overlay.wait("b2") == 4
        for name in ("b1", "b3"):
            (link,) = overlay.status(name)["links"]
            assert (link["name"], link["state"]) == ("b2", "away")
