"""Brokers that are killed while they work go on where they were: a short soak; the long one is a program.

`python -m tests.support.killing --kills 500` is the same, for longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.killing import Soak

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("client_kill_share", [0.0, 0.3], ids=["brokers", "brokers and clients"])
def test_nothing_is_lost_while_brokers_are_killed(tmp_path: Path, client_kill_share: float) -> None:
    soak = Soak(kills=12, seed=7, client_kill_share=client_kill_share, gap_s=0.5, size=4)
    soak.run(tmp_path)
    assert soak.faults == []
    assert soak.killed >= 12
    assert soak.outcomes["committed"] > 0
    assert soak.recoveries
    assert soak.deliveries > 0
