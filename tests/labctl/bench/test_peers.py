"""Our durable brokers beside those of others: every acknowledgement is counted, and so is every sync."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from labctl.bench import peers, view

PROGRAMS = {"nats": "nats-server", "rabbitmq": "rabbitmq-server", "mosquitto": "mosquitto"}


@pytest.mark.slow
@pytest.mark.parametrize("peer", PROGRAMS)
def test_acknowledged_publications_are_measured_beside_a_peer_on_one_disk(
    peer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require: Callable[[str], str]
) -> None:
    """What has been acknowledged is there in the end, with each of them, or the benchmark says that it is not."""
    require(PROGRAMS[peer])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    results = peers.run([peer], seconds=0.2, rounds=1)
    rows = {(row.name, row.in_flight): row for row in results}
    assert list(rows) == [(name, k) for name in (peers.FSYNC, peers.OS, peer) for k in (1, 64)]
    for (_, in_flight), row in rows.items():
        assert row.p50_us > 0
        ours = rows[row.beside, in_flight].acknowledged_per_s
        assert row.ratio == pytest.approx(ours / row.acknowledged_per_s, rel=0.01, abs=0.01)
        assert row.stolen_share >= 0
    assert rows[peers.FSYNC, 1].syncs_per_publication == pytest.approx(1, abs=0.1)
    assert rows[peers.FSYNC, 64].syncs_per_publication == pytest.approx(1 / 64, rel=0.1)
    assert rows[peers.OS, 1].syncs_per_publication == pytest.approx(0, abs=0.1)
    assert rows[peer, 1].syncs_per_publication is None
    flushes = rows[peer, 1].flushes_per_publication
    if flushes is not None and rows[peer, 1].beside == peers.FSYNC:
        assert flushes > 0.9, "each message is synced"
    _, columns, table = view.peers_table(results)
    assert {len(row) for row in table} == {len(columns)}
    assert [sentence.partition(":")[0] for sentence in view.promises(results)] == [
        peers.FSYNC,
        peers.OS,
        peer,
    ]
    assert list((tmp_path / "labctl" / "overlays").iterdir()) == []
