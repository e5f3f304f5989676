"""What handlers answer, put together: nothing of a nested handler's answer is lost."""

from __future__ import annotations

from broker.protocol.messages import Accepted
from broker.routing.ready import Notice, Ready


def test_an_answer_takes_all_of_a_nested_one_in_order() -> None:
    ready = Ready([("client:a", Accepted(1))], [Notice("one", {})])
    ready += Ready([("client:b", Accepted(2))], [Notice("two", {})])
    ready += Ready([], [])
    assert ready.sends == [("client:a", Accepted(1)), ("client:b", Accepted(2))]
    assert [notice.name for notice in ready.notices] == ["one", "two"]
