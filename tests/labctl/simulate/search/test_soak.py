"""The soak sees what random schedules of a few transactions cannot: what grows with their number."""

from __future__ import annotations

import pytest

from labctl.simulate.search.soak import Soak
from tests.mutations.retiring import nothing_is_compacted_behind_transactions

TRANSACTIONS = 3000


def test_what_transactions_leave_behind_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_is_compacted_behind_transactions(monkeypatch)
    result = Soak(3).run(TRANSACTIONS)
    assert result.transactions < TRANSACTIONS  # it does not go on behind a fault
    assert any("records of" in fault for fault in result.faults)


def test_without_that_fault_tables_do_not_grow() -> None:
    assert Soak(3).run(TRANSACTIONS).faults == []
