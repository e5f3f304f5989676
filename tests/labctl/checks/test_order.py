"""In which order a client did what it did: told by its own history alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker.protocol.filters import make_filter
from labctl.checks import properties
from labctl.checks.history import History, read
from labctl.checks.order import faults_of, timelines_of
from labctl.simulate.world import SimMoment

Told = tuple[str, str, dict[str, Any]]
FIRST, SECOND = (1, "t1"), (2, "t2")


def history(told: Iterable[Told]) -> History:
    return read(SimMoment(node, place, 0.0, name, fields) for place, (node, name, fields) in enumerate(told))


def issued(op: int, kind: str, tx: str = "", x: int = 0) -> Told:
    return ("c", "issued", {"tx": tx, "op": op, "kind": kind, "filter": make_filter({"x": x}), "frame": 1})


def processed(op: int, number: int, key: tuple[int, str] = (0, ""), class_: int = 1, tx: str = "") -> Told:
    fields = {"tx": tx, "op": op, "client": "c", "source": "client:c", "stamp": (key, class_, 1, number)}
    return ("b", "processed", fields)


def begun(tx: str, mode: str, key: tuple[int, str] = (0, "")) -> list[Told]:
    return [("c", "begin", {"tx": tx, "mode": mode}), ("b", "begun", {"tx": tx, "mode": mode, "key": key})]


def over(tx: str) -> list[Told]:
    ended = {"tx": tx, "outcome": "committed", "reason": ""}
    return [("b", "committed", {"tx": tx}), ("c", "ended", ended)]


def order_of(found: History) -> list[int]:
    return [operation.op for operation, _ in timelines_of(found)["c"]]


def test_a_client_is_believed_and_not_its_broker() -> None:
    found = history([issued(1, "sub"), issued(2, "usub"), processed(1, 2), processed(2, 1)])
    assert order_of(found) == [1, 2]
    faults, checked = faults_of(found)
    assert checked == 2
    assert len(faults) == 1
    assert "regular sub 1 came before regular usub 2" in faults[0]


def test_stamps_of_what_has_nothing_in_common_may_be_in_any_order() -> None:
    found = history([issued(1, "sub", x=0), issued(2, "usub", x=1), processed(1, 2), processed(2, 1)])
    assert faults_of(found) == ([], 2)


def test_steps_of_a_plan_stand_in_its_order_and_before_what_was_said_since() -> None:
    said = [issued(4, "usub", "t1"), issued(9, "sub"), issued(3, "sub", "t1"), issued(5, "sub", "t1")]
    assert order_of(history([*begun("t1", "s-tx"), *said, *over("t1")])) == [3, 4, 9, 5]


def test_what_was_said_before_the_last_of_a_transaction_is_older_and_what_follows_its_end_newer() -> None:
    told = [
        *begun("t1", "d-tx", FIRST), issued(1, "sub", "t1"), issued(7, "usub"), issued(2, "sub", "t1"),
        *over("t1"), issued(8, "usub"),
    ]  # fmt: skip
    stamps = [
        processed(1, 1, FIRST, 0, "t1"), processed(2, 2, FIRST, 0, "t1"), processed(7, 1, SECOND), processed(8, 2)
    ]  # fmt: skip
    found = history([*told, *stamps])
    assert order_of(found) == [7, 1, 2, 8]
    assert len(faults_of(found)[0]) == 5  # 7 is stamped as newer than all others, and 8 as older


def test_beside_a_commit_only_the_broker_can_tell() -> None:
    def told(key: tuple[int, str]) -> list[Told]:
        beside = [issued(7, "usub"), processed(7, 1, key), processed(1, 1, FIRST, 0, "t1")]
        return [*begun("t1", "d-tx", FIRST), issued(1, "sub", "t1"), *beside, *over("t1")]

    assert order_of(history(told((0, "")))) == [7, 1]
    assert order_of(history(told(FIRST))) == [1, 7]


def test_a_space_follows_its_client() -> None:
    """The table follows the stamps, and would send on what its client has taken back."""
    told = [issued(1, "sub"), issued(2, "usub"), processed(1, 2), processed(2, 1)]
    joined: list[Told] = [("c", "connected", {"home": "b"}), ("p", "connected", {"home": "b"})]
    advertised: Told = ("p", "issued", {"op": 1, "kind": "adv", "filter": make_filter({"x": 0})})
    taken: Told = (
        "b",
        "processed",
        {"op": 1, "client": "p", "source": "client:p", "stamp": ((0, ""), 1, 1, 1)},
    )
    found = history([*joined, advertised, taken, *told])
    verdict = properties.convergence(found, lambda *_: ("client:c",), [{"x": 0}])
    assert verdict.faults == ("{'x': 0} of p would miss [] and wrongly reach ['c']",)


def test_a_late_step_is_as_concurrent_with_an_isolated_transaction_as_those_behind_it() -> None:
    """The client knows how that has ended when it is asked for the step, and not when it said the later one."""
    told = [
        *begun("t1", "d-tx", FIRST),
        *begun("t2", "s-tx"),
        issued(11, "usub", "t1"),
        issued(4, "sub", "t2"),
    ]
    told += [processed(4, 2, tx="t2"), processed(11, 1, FIRST, 0, "t1"), *over("t1")]
    told += [issued(3, "uadv", "t2"), processed(3, 1, tx="t2"), *over("t2")]
    found = history(told)
    assert order_of(found) == [3, 4, 11]
    assert faults_of(found)[0] == []


def test_a_vote_that_overlooks_what_the_client_has_changed_since_is_named() -> None:
    """The two are concurrent for the client; its edge broker has given the regular one the newer stamp."""
    told = [*begun("t", "d-tx-optimistic", FIRST), issued(1, "adv", "t"), processed(1, 1, FIRST, 0, "t")]
    regular = [issued(2, "uadv"), processed(2, 1, SECOND)]
    vote = ("b", "voted", {"tx": "t", "yes": True, "reason": ""})
    home = ("c", "connected", {"home": "b"})
    started: Told = ("c", "started", {})
    known, _ = faults_of(history([home, started, *told, *regular, vote, *over("t")]))
    assert known == ["c: b voted for t adv 1 when it had given regular uadv 2 a newer stamp"]
    unknown, _ = faults_of(history([home, started, *told, vote, *regular, *over("t")]))
    assert unknown == []
