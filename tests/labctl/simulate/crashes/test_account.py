"""What is due on links, and what a broker that has crashed must not have told."""

from __future__ import annotations

from broker.gate.peer import Peer
from broker.protocol import wire
from broker.protocol.messages import Accepted
from labctl.simulate.crashes.account import ExpectedArrivals
from tests.support.journals import NoClock

ONE, OTHER = "broker:b1", "broker:b2"
THERE, BACK = (ONE, OTHER, 0), (OTHER, ONE, 0)


def message(number: int) -> Accepted:
    return Accepted(number)


def said(account: ExpectedArrivals, count: int) -> None:
    """By entries with the same numbers."""
    for number in range(1, count + 1):
        account.sent(THERE, message(number), number)


def write(account: ExpectedArrivals, first: int, count: int, processed: int = 0) -> None:
    data = b"".join(wire.encode(message(number)) for number in range(first, first + count))
    account.wrote(ONE, OTHER, 0, wire.frame(data, count, first, processed))


def test_what_is_said_arrives_once_and_in_order() -> None:
    account = ExpectedArrivals()
    said(account, 3)
    for number in (1, 3):
        account.arrived(THERE, message(number))
    assert len(account.faults) == 1
    assert account.left() == [f"{OTHER} did not get 1 messages of {ONE}, {message(3)} first"]


def test_what_a_crash_has_undone_was_never_said_and_will_be_said_anew() -> None:
    account = ExpectedArrivals()
    said(account, 3)
    write(account, 1, 1)
    account.crashed(ONE, 1)
    assert account.crash_faults == []
    account.sent(THERE, message(9), 2)
    account.arrived(THERE, message(1))
    account.arrived(THERE, message(9))
    assert (account.faults, account.left()) == ([], [])


def test_what_had_left_cannot_be_undone() -> None:
    account = ExpectedArrivals()
    said(account, 3)
    write(account, 1, 2)
    account.crashed(ONE, 1)
    assert account.crash_faults == [f"{ONE} does not know of {message(2)}, which it had sent to {OTHER}"]


def test_what_was_told_as_processed_cannot_be_undone() -> None:
    account = ExpectedArrivals()
    for number in (1, 2):
        account.sent(BACK, message(number))
        account.arrived(BACK, message(number), number)
    write(account, 1, 0, processed=1)
    account.crashed(ONE, 1)
    assert account.crash_faults == []
    account.crashed(ONE, 0)
    assert account.crash_faults == [f"{ONE} does not know of {message(1)}, of which it had told {OTHER}"]


def test_a_session_that_a_crash_has_brought_back_is_due_again() -> None:
    account = ExpectedArrivals()
    said(account, 1)
    account.forget(THERE, ONE, 2)
    assert account.left() == []
    account.crashed(ONE, 1)
    assert len(account.left()) == 1


def test_links_are_compared_with_what_was_said_on_them() -> None:
    def compared(count: int, changed: int = 0) -> list[str]:
        account, peer = ExpectedArrivals(), Peer(NoClock(), OTHER, "broker")
        said(account, 3)
        for number in range(1, count + 1):
            peer.link.push(wire.encode(message(number + changed)))
        account.compare(ONE, {OTHER: peer})
        return account.crash_faults

    assert compared(3) == []
    assert compared(2) == [f"to {ONE} after its crash {OTHER} has been sent 2 messages, and it was 3"]
    assert compared(3, changed=1) == [f"to {ONE} after its crash {OTHER} is sent other messages than before"]


def test_a_link_that_is_not_there_any_more_is_missed() -> None:
    account = ExpectedArrivals()
    said(account, 1)
    account.compare(ONE, {})
    assert account.crash_faults == [f"to {ONE} after its crash {OTHER} is not known any more"]
