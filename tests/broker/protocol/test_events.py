"""The names of events: each has one meaning, and the log of a broker gets few of them."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from broker.config import NodeConfig
from broker.node.log import JsonLog
from broker.protocol import events
from broker.routing.ready import Notice
from broker.serving.server import Server

NAMES = [value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)]
FIELDS = {"client": "c", "code": "in-use", "reason": "r", "exit_code": 2}


def logged(path: Path, name: str) -> list[str]:
    """What stands in the log of a broker in which that has happened."""

    async def happen() -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            server = Server(NodeConfig(id="b1", listen="127.0.0.1:0"), JsonLog(handle, "b1"))
            server.happened(Notice(name, FIELDS))
        finally:
            os.close(handle)

    asyncio.run(happen())
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def test_no_two_events_share_a_name() -> None:
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("name", NAMES)
def test_the_log_of_a_broker_has_what_people_look_for_and_no_operation(tmp_path: Path, name: str) -> None:
    seldom = {"client-joined", "client-gone", "client-refused", "broker-known", "fatal"}
    assert logged(tmp_path / "log", name) == ([name] if name in seldom else [])
