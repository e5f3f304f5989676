"""What clients are told: each answer that is wrong, or comes too soon, is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from labctl.checks.answers import false_words, faults_of
from labctl.checks.history import Departure, Operation, Transaction
from tests.support.scripted import Script, adv, ask, line, pub, sub

HOMES = {"E": "b1", "D": "b2", "A": "b3"}
BROKERS = ("b1", "b2", "b3")


def played(protocol: str = "d-tx") -> Script:
    script = Script(line("b1", "b2", "b3"), HOMES, [("E", adv(0)), ("D", sub(0))])
    script.transaction("E", protocol, ask("A", sub(0)), pub(0))  # type: ignore[arg-type]
    return script.run()


def published(transaction: Transaction) -> Operation:
    return next(o for o in transaction.operations.values() if o.kind == "pub")


def a_broker_objects(transaction: Transaction) -> None:
    transaction.votes["b2"] = (transaction.votes["b2"][0], "a conflict")


def a_broker_is_silent(transaction: Transaction) -> None:
    del transaction.votes["b2"]


def a_broker_votes_late(transaction: Transaction) -> None:
    transaction.votes["b2"] = (transaction.ended, "")


def a_broker_begins_late(transaction: Transaction) -> None:
    transaction.contexts["b2"] = transaction.ended


def a_broker_commits_late(transaction: Transaction) -> None:
    transaction.commits["b2"] = transaction.ended + 1


def a_client_is_told_early(transaction: Transaction) -> None:
    transaction.ends_at["A"] = transaction.began


def too_many_are_counted(transaction: Transaction) -> None:
    operation = published(transaction)
    assert operation.reached == 2
    operation.reached = 3


def too_few_are_counted(transaction: Transaction) -> None:
    published(transaction).reached = 1


def somebody_else_has_got_it(transaction: Transaction) -> None:
    operation = published(transaction)
    operation.heard.add("E")
    operation.reached = 3


WRONG: dict[Callable[[Transaction], None], str] = {
    a_broker_objects: "b2 had voted against it: a conflict",
    a_broker_is_silent: "without the votes of ['b2']",
    a_broker_votes_late: "has committed before b2 had voted",
    a_broker_begins_late: "before it had begun at ['b2']",
    a_broker_commits_late: "committed before ['b2'] had",
    a_client_is_told_early: "A was told that it is committed before its broker b3 had",
    too_many_are_counted: "was told that it reached 3",
    too_few_are_counted: "was told that it reached 1",
    somebody_else_has_got_it: "E has got it and not delivered it",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_an_answer_that_is_wrong_or_too_soon_is_named(change: Callable[[Transaction], None]) -> None:
    history = played().history
    assert list(faults_of(history, BROKERS)) == []
    change(*history.transactions.values())
    (fault,) = [text for text in faults_of(history, BROKERS) if WRONG[change] in text]
    assert fault


def test_a_plan_has_not_ended_before_its_receivers_have_delivered() -> None:
    history = played("s-tx").history
    (transaction,) = history.transactions.values()
    assert list(faults_of(history, BROKERS)) == []
    transaction.delivered_at = dict.fromkeys(("D", "A"), transaction.ended + 1)
    assert [text.split(" before ")[1] for text in faults_of(history, BROKERS)] == [
        "D had delivered",
        "A had delivered",
    ]


def test_of_who_is_gone_it_is_not_known_whether_it_was_counted() -> None:
    history = played().history
    (transaction,) = history.transactions.values()
    history.gone.add("A")
    for reached, faults in ((1, 0), (2, 0), (0, 1), (3, 1)):
        published(transaction).reached = reached
        assert len(list(faults_of(history, BROKERS))) == faults


@pytest.mark.parametrize("protocol", ["d-tx", "d-tx-ni", "s-tx-safe"])
def test_nobody_commits_what_somebody_was_asked_in_who_has_gone_before_the_vote(protocol: str) -> None:
    history = played(protocol).history
    (transaction,) = history.transactions.values()
    voted, _ = transaction.votes["b3"]
    processed = len(history.processed["b3"])
    for place, asked, faults in ((voted - 1, processed, 1), (voted + 1, processed, 0), (voted - 1, 0, 0)):
        history.departures = [Departure("b3", "A", place, asked)]
        found = [text for text in faults_of(history, BROKERS) if "who was asked, had gone" in text]
        assert len(found) == faults


def test_a_program_is_not_told_the_opposite_of_what_comes() -> None:
    history = played().history
    (tx,) = history.transactions
    assert list(false_words(history, {tx: "committed"})) == list(false_words(history, {tx: "unknown"})) == []
    assert list(false_words(history, {tx: "aborted", "E/100/2": "committed"})) == [
        f"{tx}: its program was told that it is aborted, and it is committed",
        "E/100/2: its program was told that it is committed, and it is not",
    ]
