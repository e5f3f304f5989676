"""The proof that an overlay is up, on real brokers."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from client.asking import probe
from client.asking.probe import NotUp
from labctl.overlay import local
from labctl.overlay.state import OverlayState
from labctl.topology import standard

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def addresses(state: OverlayState) -> dict[str, str]:
    return {broker.id: broker.address for broker in state.brokers}


def test_an_event_goes_through_every_link_both_ways_and_takes_its_emulated_delay() -> None:
    tree = standard(3).with_delays({"delay_ms": 40.0}, {"delay_ms": 20.0})
    with local.running(tree, "probed") as state:
        took_ms = asyncio.run(probe.prove(tree.links, addresses(state)))
    assert set(took_ms) == {"b1>b2", "b2>b1", "b2>b3", "b3>b2"}
    assert min(took_ms.values()) >= 60  # one link between brokers, and one to the receiver


def test_a_broker_alone_is_proven_by_two_clients_of_its_own() -> None:
    tree = standard(1)
    with local.running(tree, "alone") as state:
        took_ms = asyncio.run(probe.prove(tree.links, addresses(state)))
    assert set(took_ms) == {"b1>b1+", "b1+>b1"}


def test_a_broker_that_hangs_is_named() -> None:
    tree = standard(3)
    with local.running(tree, "hanging") as state:
        pid = next(broker.pid for broker in state.brokers if broker.id == "b2")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(NotUp, match="b1>b2"):
                asyncio.run(probe.prove(tree.links, addresses(state), timeout_s=1.0))
        finally:
            os.kill(pid, signal.SIGCONT)
