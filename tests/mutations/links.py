"""Planted faults on the way of messages between nodes: numbers, resumption, windows, waiting, frames of many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest

from broker.gate.channel import Channel
from broker.gate.holding import Held
from broker.gate.peer import Peer
from broker.gate.transit import Transit
from broker.protocol import wire
from broker.protocol.link import Link
from broker.protocol.messages import Publish
from broker.protocol.wire import AnyMessage
from tests.mutations.patching import always, replace


def what_was_processed_is_said_again(patch: pytest.MonkeyPatch) -> None:
    """A link resumes behind what the peer has processed; its acknowledgement may have been lost."""

    def resume(original: Any, self: Link, processed: int) -> list[bytes]:
        known = [(messages, last - first + 1) for first, last, messages in self._sent if last <= processed]
        frames: list[bytes] = original(self, processed)
        for messages, count in known[-1:]:
            self.push(messages, count)
        return frames

    replace(patch, Link, "resume", resume)


def nothing_is_said_again(patch: pytest.MonkeyPatch) -> None:
    """A link resumes with all that the peer has not processed, and notices a gap."""

    def resume(original: Any, self: Link, processed: int) -> list[bytes]:
        original(self, processed)
        self.acknowledge(self.sent)
        return []

    def accept(original: Any, self: Link, first: int, processed: int, count: int) -> bool:
        self.processed += first - 1 - self.received
        self.received = first - 1
        news: bool = original(self, first, max(processed, self.sent_processed), count)
        return news

    replace(patch, Link, "resume", resume)
    replace(patch, Link, "accept", accept)


def what_was_received_is_not_asked_for_again(patch: pytest.MonkeyPatch) -> None:
    """What was received and not processed is forgotten with its connection."""

    def resume(original: Any, self: Link, processed: int) -> list[bytes]:
        received = self.received
        frames: list[bytes] = original(self, processed)
        self.received = received
        return frames

    replace(patch, Link, "resume", resume)


def frames_are_processed_before_they_are_handled(patch: pytest.MonkeyPatch) -> None:
    """A message is counted as processed when what it leads to has been carried out."""

    def receive(
        original: Any, self: Any, peer: Peer, first: int, processed: int, messages: Any, body: bytes
    ) -> None:
        held = len(peer.held.frames)
        original(self, peer, first, processed, messages, body)
        if len(peer.held.frames) > held:
            peer.done(len(messages), len(body))

    def release(original: Any, self: Any, peer: Peer) -> None:
        peer.link.done = lambda *_: None  # type: ignore[method-assign]
        try:
            original(self, peer)
        finally:
            del peer.link.done

    replace(patch, Transit, "receive", receive)
    replace(patch, Transit, "release", release)


def held_frames_outlive_their_connection(patch: pytest.MonkeyPatch) -> None:
    """What is held comes again on the next connection, and is not to be handled twice."""

    always(patch, Held, "clear", lambda: None)


def held_frames_are_handled_newest_first(patch: pytest.MonkeyPatch) -> None:
    """What is held is handled in the order in which it came."""

    def popleft(original: Any, self: Held) -> Any:
        self.frames.reverse()
        taken = original(self)
        self.frames.reverse()
        return taken

    replace(patch, Held, "popleft", popleft)


def what_was_full_never_has_room_again(patch: pytest.MonkeyPatch) -> None:
    """Who waits for a full destination goes on when it has drained."""
    always(patch, Peer, "_let_go", lambda: None)


def who_is_gone_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a client that is gone."""

    def forget(original: Any, self: Peer, release: Any) -> None:
        waiting, self.waited_for_by = self.waited_for_by, {}
        original(self, release)
        self.waited_for_by = waiting

    replace(patch, Peer, "forget", forget)


def what_drained_before_a_new_connection_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """What a peer has processed may be known by its greeting alone, and others may have waited for that."""

    def resume(_: Any, _transit: Any, peer: Peer, stream: Any, received: int, greeting: Any = None) -> None:
        peer.attach(stream, received, greeting)
        peer.held.clear()

    replace(patch, Transit, "resume", resume)


def windows_never_open_again(patch: pytest.MonkeyPatch) -> None:
    """What the peer has processed is not under way any more."""

    def accept(original: Any, self: Link, first: int, processed: int, count: int) -> bool:
        before = self.queue_bytes
        news: bool = original(self, first, processed, count)
        self.queue_bytes = before
        return news

    replace(patch, Link, "accept", accept)


def acknowledgements_wait_for_an_answer(patch: pytest.MonkeyPatch) -> None:
    """What has been processed is told soon, also where nothing else is to be said."""
    always(patch, Channel, "report_in_time", lambda: None)


def queues_wait_for_the_next_message(patch: pytest.MonkeyPatch) -> None:
    """What has waited for a window leaves when that opens."""

    def drained(original: Any, self: Peer, release: Any) -> None:
        pump = self.pump
        self.pump = lambda: None  # type: ignore[method-assign]
        try:
            original(self, release)
        finally:
            self.pump = pump  # type: ignore[method-assign]

    replace(patch, Peer, "drained", drained)


def messages_overtake_those_that_wait(patch: pytest.MonkeyPatch) -> None:
    """What is pushed stands behind what is pending."""

    def push(original: Any, self: Link, messages: bytes, count: int = 1) -> None:
        original(self, messages, count)
        self.pending.rotate(1)

    replace(patch, Link, "push", push)


def what_waits_is_lost_with_a_connection(patch: pytest.MonkeyPatch) -> None:
    """What has not been sent yet waits for the next connection."""

    def detach(original: Any, self: Channel) -> None:
        original(self)
        while self.link.pending:
            messages, count = self.link.pending.popleft()
            self.link.queue_bytes -= len(messages)
            self.link._pending_bytes -= len(messages)
            self.link._pending_messages -= count

    replace(patch, Channel, "detach", detach)


def what_waits_is_not_sent_on_a_new_connection(patch: pytest.MonkeyPatch) -> None:
    """A new connection carries what has waited for it, behind what was sent before."""

    def attach(original: Any, self: Channel, *arguments: Any) -> None:
        self.pump = lambda: None  # type: ignore[method-assign]
        try:
            original(self, *arguments)
        finally:
            del self.pump

    replace(patch, Channel, "attach", attach)


def publications_pass_the_operations_of_their_frame(patch: pytest.MonkeyPatch) -> None:
    """The messages of a frame are handled in order."""

    def handle_frame(
        original: Any, self: Any, peer: Any, messages: Sequence[AnyMessage], _: bytes, now: Any = None
    ) -> None:
        ordered = sorted(messages, key=lambda message: type(message) is not Publish)
        original(self, peer, ordered, wire.body(b"".join(map(wire.encode, ordered)), len(ordered)), now)

    replace(patch, Transit, "handle_frame", handle_frame)


def frames_go_the_way_of_their_first_publication(patch: pytest.MonkeyPatch) -> None:
    """Publications of one frame go where each goes alone."""

    def forward(original: Any, self: Any, peer: Any, messages: Any, decision: Any, *rest: Any) -> None:
        changed = type(decision)([decision.hops[0]] * len(decision.hops), decision.refused)
        original(self, peer, messages, changed, *rest)

    replace(patch, Transit, "_forward", forward)


def frames_lose_the_last_publication_of_each_way(patch: pytest.MonkeyPatch) -> None:
    """Those of a frame that go the same way go together, all of them."""

    def forward(original: Any, self: Any, peer: Any, messages: Any, decision: Any, *rest: Any) -> None:
        hops: list[Any] = []
        for way, run in groupby(decision.hops):
            count = len(list(run))
            hops += [way] * (count - 1) + [way if count == 1 else ()]
        original(self, peer, messages, type(decision)(hops, decision.refused), *rest)

    replace(patch, Transit, "_forward", forward)


def refusals_in_a_frame_are_kept_to_oneself(patch: pytest.MonkeyPatch) -> None:
    """Whose publication is refused is told so, whatever it came with."""

    def forward(original: Any, self: Any, peer: Any, messages: Any, decision: Any, *rest: Any) -> None:
        original(self, peer, messages, type(decision)(decision.hops, {}), *rest)

    replace(patch, Transit, "_forward", forward)
