"""Planted faults in what outlives a crash: journals and when they are durable, snapshots, recovery, sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from msgspec import structs

from broker.gate import ledger, recovery
from broker.gate.gate import Gate
from broker.gate.peer import Peer
from broker.gate.transit import Transit
from broker.journal import folder as folder_module
from broker.journal.failures import JournalFailed
from broker.journal.folder import Folder
from broker.protocol.hops import is_client
from broker.protocol.link import Link, LinkState
from broker.routing.joining import ClientBack, ClientGone
from broker.sessions import greeting
from broker.sessions.presence import PeerSessions
from labctl.simulate import crashing
from tests.mutations.patching import always, replace

# What leaves, and when


def effects_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    """What follows from a message, a vote or an answer too, leaves when the entry of that is durable."""

    def submit(_: Any, _gate: Gate, carry_out: Any, *arguments: Any) -> None:
        carry_out(*arguments)

    replace(patch, Gate, "submit", submit)


def one_entry_too_many_is_durable(patch: pytest.MonkeyPatch) -> None:
    """The number of the newest entry that is durable is not that of the next one."""

    def durable(original: Any, self: Gate, number: int) -> None:
        original(self, number + 1)

    replace(patch, Gate, "durable", durable)


def what_is_handled_is_told_as_processed(patch: pytest.MonkeyPatch) -> None:
    """A sender forgets what has been processed: it must not come before that is durable."""

    def handle_frame(
        original: Any, self: Any, peer: Peer, messages: Any, body: bytes, now: Any = None
    ) -> None:
        Link.done(peer.link, len(messages), len(body))
        peer.report_in_time()
        peer.link.done = lambda *_: None  # type: ignore[method-assign]
        original(self, peer, messages, body, now)

    replace(patch, Transit, "handle_frame", handle_frame)


def greetings_overtake_what_waits(patch: pytest.MonkeyPatch) -> None:
    """Who greets a client that is back says that all is processed which it has handled, and not less."""

    def welcome_back(_: Any, self: Any, peer: Peer, stream: Any, received: int) -> None:
        self._attach(peer, stream, peer.incarnation, received, True)
        self.transit.handle(peer.hop, ClientBack())

    replace(patch, PeerSessions, "_welcome_back", welcome_back)


def welcomes_of_neighbours_wait(patch: pytest.MonkeyPatch) -> None:
    """Who has welcomed us speaks at once, and is listened to at once."""

    def welcomed(original: Any, self: Any, *arguments: Any) -> None:
        self.transit.gate.submit(original, self, *arguments)

    replace(patch, PeerSessions, "welcomed", welcomed)


def who_is_parted_with_is_welcomed(patch: pytest.MonkeyPatch) -> None:
    """While a greeting waits for its turn, the session that it is for may end."""

    def attach(
        original: Any, self: Any, peer: Peer, stream: Any, incarnation: int, received: int, answers: bool
    ) -> None:
        peers = self.peers
        self.peers = {**peers, peer.hop: peer}
        try:
            original(self, peer, stream, incarnation, received, answers)
        finally:
            self.peers = peers

    def welcome_back(original: Any, self: Any, peer: Peer, *arguments: Any) -> None:
        timer, peer.grace_timer = peer.grace_timer, None
        original(self, peer, *arguments)
        peer.grace_timer = timer

    replace(patch, PeerSessions, "_attach", attach)
    replace(patch, PeerSessions, "_welcome_back", welcome_back)


# What is entered


def _not_entered(patch: pytest.MonkeyPatch, kind: type, name: str = "") -> None:
    def enter(original: Any, self: Any, *pieces: bytes) -> bool:
        entry = ledger.decode(b"".join(pieces))
        if isinstance(entry, kind) and name in ("", getattr(entry, "name", "")):
            return True
        entered: bool = original(self, *pieces)
        return entered

    replace(patch, Transit, "_enter", enter)


def time_that_passes_is_not_entered(patch: pytest.MonkeyPatch) -> None:
    """That a transaction's lifetime was over is a decision, which others have heard of."""
    _not_entered(patch, ledger.TimeEntry)


def who_goes_is_not_entered(patch: pytest.MonkeyPatch) -> None:
    """Others have been told that a client is gone."""
    _not_entered(patch, ledger.ClientEntry, "ClientGone")


def who_comes_is_not_entered(patch: pytest.MonkeyPatch) -> None:
    """A session that was begun is known after a crash."""
    _not_entered(patch, ledger.ClientEntry, "ClientArrived")


def entries_are_replayed_now(patch: pytest.MonkeyPatch) -> None:
    """What is done again is done at the time when it was done first."""

    def give(original: Any, transit: Any, core: Any, entry: Any, host: Any) -> None:
        if hasattr(entry, "now"):
            entry = structs.replace(entry, now=transit.time())
        original(transit, core, entry, host)

    replace(patch, recovery, "_give", give)


def acknowledgements_are_not_replayed(patch: pytest.MonkeyPatch) -> None:
    """A link need not keep what its peer has processed."""

    def give(original: Any, transit: Any, core: Any, entry: Any, host: Any) -> None:
        if isinstance(entry, ledger.FrameEntry):
            entry = structs.replace(entry, processed=0)
        if not isinstance(entry, ledger.HeardEntry):
            original(transit, core, entry, host)

    def skip(original: Any, self: Link, processed: int) -> None:
        if processed:
            original(self, processed)

    replace(patch, recovery, "_give", give)
    replace(patch, Link, "skip", skip)


# Folders


def nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
    """What counts as durable is on the disk, and not on its way there."""

    def sync(original: Any, self: Folder) -> int:
        self.mode = "os"
        number: int = original(self)
        return number

    replace(patch, Folder, "sync", sync)


def a_failed_sync_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    """What a failed sync has left cannot be told: a later one that succeeds says nothing of it."""

    def sync(original: Any, self: Folder) -> int:
        try:
            number: int = original(self)
        except JournalFailed:
            self._failure = None
            self.durable = number = self.newest
        return number

    replace(patch, Folder, "sync", sync)


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A segment that nobody finds after a crash was written for nothing."""

    def begin(original: Any, disk: Any, *arguments: Any) -> Any:
        return original(_Without(disk, "sync_folder"), *arguments)

    replace(patch, folder_module, "begin_segment", begin)


def files_go_before_their_snapshot_is_certain(patch: pytest.MonkeyPatch) -> None:
    """A snapshot stands for the files in front of it when its own name is certain to survive."""

    def adopt(original: Any, self: Folder, number: int) -> None:
        disk = self._disk
        self._disk = _Without(disk, "sync_folder")
        try:
            original(self, number)
        finally:
            self._disk = disk

    replace(patch, Folder, "adopt_snapshot", adopt)


def torn_tails_stay(patch: pytest.MonkeyPatch) -> None:
    """Behind what a crash has torn nothing can be read."""

    def go_on(original: Any, self: Folder, number: int, header: Any, found: Any) -> None:
        original(self, number, header, found._replace(is_torn=False))

    replace(patch, Folder, "_go_on_behind", go_on)


def every_start_is_another_life(patch: pytest.MonkeyPatch) -> None:
    """A broker that goes on where it was is the one that its neighbours know."""

    def opened(original: Any, *arguments: Any) -> Folder:
        found: Folder = original(*arguments)
        found.life = arguments[-1]
        return found

    patch.setattr(Folder, "open", staticmethod(_wrapped(Folder.open, opened)))


class _Without:
    """A disk that leaves something undone."""

    def __init__(self, disk: Any, name: str) -> None:
        self._disk = disk
        setattr(self, name, lambda *_: None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


def _wrapped(original: Any, changed: Any) -> Any:
    return lambda *arguments: changed(original, *arguments)


# Snapshots


def entries_behind_a_snapshot_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What has come since a snapshot was begun is in the entries behind it."""

    def entries(original: Any, self: Folder) -> Iterator[bytes]:
        has_snapshot = self._snapshot is not None
        for entry in original(self):
            if not has_snapshot:
                yield entry

    replace(patch, Folder, "entries", entries)


def snapshots_do_not_wait_for_effects(patch: pytest.MonkeyPatch) -> None:
    """What waits in the gate stands on no link yet, and in no snapshot."""

    def handle_frame(original: Any, self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        if self._keeper is not None:
            self._keeper.rested()

    replace(patch, Transit, "handle_frame", handle_frame)


def links_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """The numbers of a link go on."""

    def restore(original: Any, self: Link, state: LinkState) -> None:
        original(self, structs.replace(state, processed=0, sent_processed=0))

    replace(patch, Link, "restore", restore)


def what_is_kept_is_not_saved(patch: pytest.MonkeyPatch) -> None:
    """What a peer has not processed is sent again, by whoever comes after us."""

    def state(original: Any, self: Link, *arguments: Any) -> LinkState:
        found: LinkState = original(self, *arguments)
        return structs.replace(found, kept=())

    replace(patch, Link, "state", state)


def clients_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    """Clients that are here when a snapshot is taken are here behind it."""

    def restore(original: Any, transit: Any, states: Iterable[Any], host: Any) -> None:
        original(transit, [state for state in states if not is_client(state.hop)], host)

    from broker.sessions import saved

    replace(patch, saved, "restore", restore)


# Recovery


def what_was_processed_is_not_skipped(patch: pytest.MonkeyPatch) -> None:
    """How much of what it keeps had been sent, only the peer knows."""

    def resume(original: Any, self: Link, processed: int) -> list[bytes]:
        if self.is_restored:
            self.is_restored = False
            while self.sent < self.sent_processed or (self.pending and self.sent < processed):
                self.take()
            self.sent_processed = min(self.sent, self.sent_processed)
            self.received = self.processed
            return []
        frames: list[bytes] = original(self, processed)
        return frames

    replace(patch, Link, "resume", resume)


def nobody_is_away_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    """Clients have lost their connections, and some will never come back."""
    always(patch, PeerSessions, "wait_for_all", lambda: None)


def time_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """Time goes on where it was, whatever the clock of the machine says."""

    def recover(original: Any, transit: Any, *arguments: Any) -> None:
        original(transit, *arguments)
        transit.ahead_s = 0.0

    replace(patch, crashing, "recover", recover)


def the_departed_are_back(patch: pytest.MonkeyPatch) -> None:
    """Who was gone before a crash is gone after it."""

    def told(original: Any, self: Any, hop: str, message: Any) -> None:
        if not isinstance(message, ClientGone):
            original(self, hop, message)

    replace(patch, PeerSessions, "told", told)


def sessions_are_taken_up_twice(patch: pytest.MonkeyPatch) -> None:
    """A client that was away and is back is the one that it was."""

    def told(original: Any, self: Any, hop: str, message: Any) -> None:
        original(self, hop, message)
        if isinstance(message, ClientBack) and hop in self.peers:
            self.transit.add(self.made_peer(hop, self.peers[hop].incarnation))

    replace(patch, PeerSessions, "told", told)


def who_returns_may_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """A client that means to go on with a session that is no more is told so."""
    always(patch, greeting, "is_return", lambda: False)
