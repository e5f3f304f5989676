"""Violated orders have names: histories written down for each, and random ones beside a search of all orders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random

import pytest

from broker.protocol.filters import Event, make_filter
from broker.protocol.vocabulary import D_TX, NO_KEY
from labctl.checks import serial
from labctl.checks.anomalies import explain, told
from labctl.checks.cycles import follows_time
from labctl.checks.history import History, Operation, Transaction
from labctl.checks.properties import serializability
from labctl.checks.verdict import WIDTH, lines_of

ORDERS_MAX = 120
CLIENTS = ("a", "b", "c")


class Scene:
    """A history, written down operation by operation: clients on one broker who advertise everything."""

    def __init__(self) -> None:
        self._place = 0
        self.history = History({}, {}, {}, [], dict.fromkeys(CLIENTS, "b1"), set(), {}, set())
        for client in CLIENTS:
            self._setup(client, "adv", 0)
            self._setup(client, "adv", 1)

    def _next(self) -> int:
        self._place += 1
        return self._place

    def _setup(self, client: str, kind: str, value: int) -> None:
        place = self._next()
        operation = Operation(client, place, kind, make_filter({"x": value}), None, place)
        operation.stamp = (NO_KEY, 1, 1, place)
        self.history.setup.setdefault(client, []).append(operation)

    def subscribed(self, client: str, value: int) -> None:
        self._setup(client, "sub", value)

    def transaction(self, name: str, epoch: int, *words: str, committed: bool = True) -> Transaction:
        """`words`: "a sub 0", or "a pub 0 b c" with those that it reached. It begins at once and does not end."""
        found = Transaction(name, D_TX, name[0], key=(epoch, name))
        (found.committed_at if committed else found.aborted_at).add("b1")
        self.history.transactions[name] = found
        for word in words:
            self.add(found, word)
        return found

    def add(self, transaction: Transaction, word: str) -> None:
        client, kind, value, *receivers = word.split()
        place = self._next()
        point: Event = {"x": int(value)}
        is_publication = kind == "pub"
        operation = Operation(
            client, place, kind, None if is_publication else make_filter(point), point if is_publication else None,
            place, path=(("f", place),), receivers=set(receivers),
        )  # fmt: skip
        if not is_publication:
            operation.stamp = (transaction.key, 0, 1, place)
        transaction.operations[place] = operation

    def ended(self, transaction: Transaction, *clients: str) -> None:
        """Clients learn it; without any, the coordinator is told."""
        place = self._next()
        if not clients:
            transaction.ended = place
        for client in clients:
            transaction.ends_at[client] = place

    def began(self, transaction: Transaction) -> None:
        transaction.began = self._next()

    @property
    def names(self) -> list[str]:
        return [anomaly.name for anomaly in explain(self.history, self.history.ordered()).anomalies]

    @property
    def words(self) -> str:
        ordered = self.history.ordered()
        do_keys_explain = not serial.faults_of(self.history, ordered)[0]
        return "\n".join(told(self.history, ordered, do_keys_explain))


def test_what_the_keys_explain_has_no_anomaly() -> None:
    scene = Scene()
    scene.transaction("t1", 1, "a sub 0", "b pub 0 a")
    scene.transaction("t2", 2, "c pub 0 a", "a usub 0", "c pub 0")
    assert scene.names == []
    assert scene.words == ""
    assert serializability(scene.history).answer == "valid"


def test_another_order_than_that_of_the_keys() -> None:
    scene = Scene()
    scene.transaction("t1", 1, "a sub 0")
    scene.transaction("t2", 2, "c pub 0")
    assert scene.names == []
    assert "another order" in scene.words
    assert serializability(scene.history).answer == "invalid"


def test_write_cycles_against_client_order() -> None:
    """G0: keys say that a's first state is its last, and a knew better."""
    scene = Scene()
    first = scene.transaction("t1", 2, "a sub 0")
    scene.ended(first, "a")
    scene.transaction("t2", 1, "a usub 0")
    scene.transaction("t3", 3, "b pub 0 a")
    assert scene.names == ["G0 in client order"]
    assert "a knew that t1 had ended before it acted in t2" in scene.words
    assert "usub 9 of a at x=0, then its sub 7 of a" in scene.words


def test_an_aborted_read() -> None:
    scene = Scene()
    scene.transaction("t1", 1, "a sub 0", committed=False)
    scene.transaction("t2", 2, "b pub 0 a")
    assert scene.names == ["G1a"]
    assert "pub 8 of x=0 by b reached a by sub 7 of a of t1, which has not committed" in scene.words


def test_an_intermediate_read() -> None:
    scene = Scene()
    scene.transaction("t1", 1, "a sub 0", "a usub 0")
    scene.transaction("t2", 2, "b pub 0 a")
    assert scene.names == ["G1b"]
    assert "which has itself undone it by usub 8 of a" in scene.words


def test_a_circle_of_information() -> None:
    """G1c: each has published by what the other has subscribed."""
    scene = Scene()
    scene.transaction("t1", 1, "a sub 0", "b pub 1 c")
    scene.transaction("t2", 2, "c sub 1", "b pub 0 a")
    assert scene.names == ["G1c"]
    assert "t1 -wr-> t2: sub 7 of a, then pub 10 of x=0 by b reached a" in scene.words


def test_a_part_of_anothers_changes() -> None:
    """G-single: b, and not yet a, of two that t1 has subscribed."""
    scene = Scene()
    scene.transaction("t1", 1, "a sub 0", "b sub 1")
    scene.transaction("t2", 2, "c pub 0", "c pub 1 b")
    assert scene.names == ["G-single"]
    assert "t2 -rw-> t1: pub 9 of x=0 by c missed a, so not yet sub 7 of a" in scene.words


def test_a_lost_update() -> None:
    """t2 publishes to b, and takes b off, as if t1 had not put b on in between."""
    scene = Scene()
    scene.transaction("t1", 1, "b sub 0")
    scene.transaction("t2", 2, "c pub 0", "b usub 0")
    assert scene.names == ["lost update"]
    assert "t1 -ww-> t2: sub 7 of b at x=0, then its usub 9 of b" in scene.words


def test_write_skew() -> None:
    scene = Scene()
    scene.transaction("t1", 1, "a pub 0", "a sub 1")
    scene.transaction("t2", 2, "b pub 1", "b sub 0")
    assert scene.names == ["G2-item (write skew)"]


def test_three_that_miss_each_other() -> None:
    scene = Scene()
    scene.transaction("t1", 1, "c pub 0", "b sub 0")
    scene.transaction("t2", 2, "c pub 1", "a sub 0")
    scene.transaction("t3", 3, "a pub 0", "b sub 1")
    assert scene.names == ["G2-item"]
    assert scene.words.startswith("G2-item: t1 -> t2 -> t3 -> t1")


def test_reading_the_past_in_real_time() -> None:
    """All is explained by another order, but time excludes it: what had ended was not seen."""
    scene = Scene()
    first = scene.transaction("t1", 1, "a sub 0")
    scene.ended(first)
    second = scene.transaction("t2", 2, "c pub 0")
    second.began = first.ended + 1
    first.began = 0
    assert scene.names == ["G-single in real time"]
    assert "t1 had ended before t2 began" in scene.words


def test_keys_that_go_back_in_time_are_seen_although_they_explain_everything() -> None:
    scene = Scene()
    first = scene.transaction("t1", 2, "a sub 0")
    scene.ended(first, "c")
    scene.transaction("t2", 1, "c pub 0")
    ordered = scene.history.ordered()
    assert serial.faults_of(scene.history, ordered)[0] == []
    assert not follows_time(ordered)
    assert scene.names == ["G-single in client order"]
    assert serializability(scene.history).answer == "invalid"


def test_keys_that_go_back_in_time_where_nobody_can_see_it_do_no_harm() -> None:
    scene = Scene()
    first = scene.transaction("t1", 2, "a sub 0")
    scene.ended(first, "c")
    scene.transaction("t2", 1, "c pub 1")
    assert not follows_time(scene.history.ordered())
    assert serializability(scene.history).answer == "valid"


def test_a_transaction_that_does_not_see_itself() -> None:
    scene = Scene()
    scene.transaction("t1", 1, "a sub 0", "b pub 0")
    assert scene.names == ["internal"]
    assert "missed a, after its own sub 7 of a" in scene.words


def test_what_nobody_has_written() -> None:
    scene = Scene()
    scene.transaction("t1", 1, "b pub 0 a")
    assert scene.names == ["garbage"]


def test_what_was_not_advertised_any_more() -> None:
    """The state of a publisher is an item, too."""
    scene = Scene()
    scene.transaction("t1", 1, "b uadv 0", "a sub 1")
    scene.transaction("t2", 2, "b pub 0", "c pub 1 a")
    assert scene.names == ["G-single"]
    assert "pub 9 of x=0 by b was admitted, so not yet uadv 7 of b" in scene.words


# Beside a search of all orders, which it has replaced


def some_order(history: History, ordered: Sequence[Transaction]) -> bool:
    return any(not serial.faults_of(history, order)[0] for order in permutations(ordered))


def a_random_scene(seed: int) -> Scene:
    """Transactions that run one after the other in some order, and then a few receivers more and less."""
    random, scene = Random(seed), Scene()
    for client in CLIENTS:
        if random.random() < 0.4:
            scene.subscribed(client, random.randint(0, 1))
    names = [f"t{number}" for number in range(1, random.choice((2, 3, 3, 4)) + 1)]
    for place, name in enumerate(random.sample(names, len(names))):
        kinds = ("sub", "usub", "sub", "usub", "pub", "pub", "pub", "uadv")
        words = [
            f"{random.choice(CLIENTS)} {random.choice(kinds)} {random.randint(0, 1)}"
            for _ in range(random.randint(1, 4))
        ]
        scene.transaction(name, place, *words, committed=random.random() < 0.9)
    history = scene.history
    order = history.ordered()
    if random.random() < 0.5:
        random.shuffle(order)
    places = {t.tx: place for place, t in enumerate(order)}
    publications = [(t, o) for t in order for o in t.operations.values() if o.kind == "pub"]
    for transaction, operation in publications:
        operation.receivers |= serial.expect(history, transaction, operation, places).receivers
    for _ in range(random.choice((0, 0, 1, 2))):
        if publications:
            operation = random.choice(publications)[1]
            operation.receivers ^= {random.choice(CLIENTS)} - {operation.client}
    return scene


@pytest.mark.parametrize("part", range(4))
def test_it_is_as_strong_as_a_search_of_all_orders(part: int) -> None:
    named = 0
    for seed in range(150 * part, 150 * part + 150):
        history = a_random_scene(seed).history
        ordered = history.ordered()
        anomalies, order = explain(history, ordered)
        named += bool(anomalies)
        if not anomalies:
            assert serial.faults_of(history, order)[0] == [], seed
        if not some_order(history, ordered):
            assert anomalies, seed
        if not serial.faults_of(history, ordered)[0]:
            assert not anomalies, seed
        assert bool(serializability(history).faults) == bool(serial.faults_of(history, ordered)[0]), seed
    assert 10 < named < 140


def test_it_asks_each_publication_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a search of orders asks each of them for every order."""
    scene = Scene()
    for number in range(6):
        scene.transaction(f"t{number}", number, f"a sub {number % 2}", "b pub 0 a", f"a usub {number % 2}")
    scene.transaction("t7", 7, "c pub 0 b")
    count = 0
    expect = serial.expect

    def counting(*arguments: object) -> serial.Expectation:
        nonlocal count
        count += 1
        return expect(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(serial, "expect", counting)
    history, ordered = scene.history, scene.history.ordered()
    explain(history, ordered)
    asked, count = count, 0
    assert not any(
        not serial.faults_of(history, order)[0]
        for order, _ in zip(permutations(ordered), range(ORDERS_MAX), strict=False)
    )
    assert asked == 7
    assert count == ORDERS_MAX * asked


def test_its_words_fit_a_terminal() -> None:
    for seed in range(60):
        for text in serializability(a_random_scene(seed).history).faults:
            assert all(len(line) <= WIDTH for line in lines_of("serializability", text))
