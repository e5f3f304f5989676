"""Planted faults in how long somebody waits, and how much may be under way meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from broker.gate.peer import Peer
from broker.protocol.hops import client_hop
from broker.protocol.link import Link
from broker.routing.ready import Ready
from broker.transactions.dtx.machine import Dtx
from client.core.outcomes import aborted
from client.core.plans import Plans
from client.core.transactions import Transaction
from tests.mutations.patching import always, replace


def what_is_given_up_counts_as_aborted(patch: pytest.MonkeyPatch) -> None:
    """Section 7: with `Commit` sent, the outcome is unknown to who does not wait for the answer."""

    def give_up(_: Any, self: Transaction, reason: str) -> None:
        self._send_abort(reason)
        self._settle(aborted(reason))

    replace(patch, Transaction, "_give_up", give_up)


def plans_that_are_given_up_count_as_aborted(patch: pytest.MonkeyPatch) -> None:
    """Section 7: the same with a plan."""

    def give_up(original: Any, self: Plans, running: Any, state: Any, reason: str) -> None:
        sent, state.commit_sent = state.commit_sent, False
        original(self, running, state, reason)
        state.commit_sent = sent

    replace(patch, Plans, "_give_up", give_up)


def plans_are_given_up_in_silence(patch: pytest.MonkeyPatch) -> None:
    """S-TX: who tells its program that nothing will come of a plan takes it back."""

    def give_up(original: Any, self: Plans, running: Any, state: Any, reason: str) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Plans, "_send_abort", lambda *_: None)
            original(self, running, state, reason)

    replace(patch, Plans, "_give_up", give_up)


def what_was_given_up_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Section 7: what was unknown becomes known when the answer comes after all, and is delivered then."""

    def give_up(original: Any, self: Transaction, reason: str) -> None:
        original(self, reason)
        self._manager.parts.pop(self.tx, None)

    replace(patch, Transaction, "_give_up", give_up)


def who_gives_up_a_refused_begin_is_thrown_out(patch: pytest.MonkeyPatch) -> None:
    """D-TX: an abort and the refusal of its begin may cross."""

    def abort(_: Any, self: Dtx, client: str, message: Any) -> Ready:
        return self._abort(client_hop(client), message)

    replace(patch, Dtx, "_abort_for_client", abort)


def windows_are_not_heeded(patch: pytest.MonkeyPatch) -> None:
    """Links: what is under way is less than a window and a frame, whatever waits behind it."""

    def take(original: Any, self: Link) -> Any:
        window, self.window_bytes = self.window_bytes, 1 << 60
        frame = original(self)
        self.window_bytes = window
        return frame

    replace(patch, Link, "take", take)


def what_need_not_be_queued_passes_the_window(patch: pytest.MonkeyPatch) -> None:
    """Links: the same where nothing waits yet."""

    def pass_on(original: Any, self: Link, messages: bytes, count: int) -> Any:
        window, self.window_bytes = self.window_bytes, 1 << 60
        frame = original(self, messages, count)
        self.window_bytes = window
        return frame

    replace(patch, Link, "pass_on", pass_on)


def patience_never_ends(patch: pytest.MonkeyPatch) -> None:
    """Peers: a client that does not move is waited for no longer than its broker is told to."""
    always(patch, Peer, "_watch", lambda: None)
