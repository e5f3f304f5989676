"""The message flow of every protocol is the one that the golden transcripts show.

After a change that is meant to alter it: `python -m tests.paper.transcripts`, and read what `git diff` shows.
"""

from __future__ import annotations

import pytest

from broker.protocol.vocabulary import PROTOCOLS, Protocol
from tests.paper.transcripts import GOLDEN, SCHEDULES, processed, scheduled, stories

HOW = "the message flow has changed; if it was meant to: python -m tests.paper.transcripts, then git diff"


@pytest.mark.parametrize("name", stories())
def test_the_message_flow_is_as_written(name: str) -> None:
    golden = (GOLDEN / name).read_text("utf-8")
    assert stories()[name]().splitlines() == golden.splitlines(), HOW


def test_there_is_no_transcript_of_what_is_not_told_any_more() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == stories().keys()


RECEIVERS: dict[tuple[int, Protocol], set[str]] = {
    **{(1, protocol): {"c3"} for protocol in PROTOCOLS},
    (2, "d-tx"): {"c3"},
    (2, "d-tx-optimistic"): {"c3"},
    (2, "d-tx-ni"): {"c2", "c3"},
    (2, "s-tx"): {"c2", "c3"},
    (2, "s-tx-safe"): {"c2", "c3"},
    (3, "d-tx"): {"c3"},  # by the order of the keys it comes before the move
    (3, "d-tx-optimistic"): set(),  # aborted
    (3, "d-tx-ni"): {"c2", "c3"},  # the un-subscription is not committed, and hidden from others
    (3, "s-tx"): {"c2"},
    (3, "s-tx-safe"): {"c2", "c3"},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_publication_beside_a_move_is_delivered_to(schedule: int, protocol: Protocol) -> None:
    script, _, _ = scheduled(schedule, protocol)
    assert processed(script) == SCHEDULES[schedule]
    assert {client for client in ("c2", "c3") if script.got(client)} == RECEIVERS[schedule, protocol]
    assert script.faults() == []
