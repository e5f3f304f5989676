"""What a node was given comes back from its entries as it was."""

from __future__ import annotations

import pytest

from broker.core import CLIENT_INPUTS
from broker.gate import ledger
from broker.gate.ledger import Control, FirstEntry, FrameEntry, GreetedEntry, HeardEntry, TimeEntry
from broker.protocol.hops import client_hop
from broker.routing.joining import ClientArrived, ClientAway, ClientBack, ClientGone, ClientInput


@pytest.mark.parametrize("name", ["E", "é" * 200, "client:broker:x", "\0"])
@pytest.mark.parametrize("body", [b"", b"\0" * 9, bytes(range(256)) * 300])
def test_a_frame(name: str, body: bytes) -> None:
    hop = client_hop(name)
    entry = b"".join(ledger.frame(hop, 12.5, (1 << 64) - 1, body))
    assert ledger.decode(entry) == FrameEntry(hop, 12.5, (1 << 64) - 1, body)


@pytest.mark.parametrize(
    "message", [ClientArrived(1 << 62), ClientGone("it has left", "leaving"), ClientAway(), ClientBack()]
)
def test_what_becomes_of_a_client(message: ClientInput) -> None:
    told = ledger.decode(ledger.told("client:E", 0.25, message))
    assert isinstance(told, ledger.ClientEntry)
    assert (told.hop, told.now, ledger.input_of(told, CLIENT_INPUTS)) == ("client:E", 0.25, message)


@pytest.mark.parametrize(
    "entry",
    [
        FirstEntry(1.0, b"made of"),
        TimeEntry(2.5),
        HeardEntry("broker:b2", 17),
        GreetedEntry("broker:b2", 1 << 62),
    ],
)
def test_everything_else(entry: Control) -> None:
    assert ledger.decode(ledger.encode(entry)) == entry
