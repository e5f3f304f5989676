"""A state as bytes: what is shared stays shared, and nothing is loaded but what has a place in it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from broker.core import Broker
from broker.journal import graph
from broker.journal.failures import FolderRefused
from broker.matching.records import NOWHERE, Record
from broker.matching.space import Space
from broker.protocol.filters import between, make_filter
from broker.protocol.vocabulary import NO_KEY

ROOMS = ("broker", "msgspec")


def again(state: Any) -> Any:
    return graph.thaw(graph.freeze(state), ROOMS)


def test_what_is_shared_stays_shared() -> None:
    record = Record("sub", "S", (NO_KEY, 1, 1, 1), make_filter({"a": 1}))
    one, other = again([record, record])
    assert one is other
    assert one.home is NOWHERE, "what stands for nothing is compared by identity"


def test_a_core_comes_back_whole() -> None:
    core = again(Broker("b1", ["b2"], 7))
    assert (core.id, core.incarnation, core.neighbours) == ("b1", 7, ("broker:b2",))
    assert core.decide.__self__._state is core.state, "its parts share one state"


def test_a_space_answers_as_before() -> None:
    space = Space()
    space.change(True, make_filter({"a": between(0, 9)}))
    space.change(False, make_filter({"a": 4}))
    copy = again(space)
    assert [copy.contains({"a": a}) for a in (3, 4, 10)] == [True, False, False]
    assert copy.parts() == space.parts()


class Malice:
    def __init__(self, what: Callable[..., Any], *arguments: Any) -> None:
        self._answer = what, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._answer


@pytest.mark.parametrize("what", [os.system, os.getpid, eval, pickle.loads])
def test_nothing_else_is_called(what: Callable[..., Any]) -> None:
    with pytest.raises(FolderRefused, match="has no place in it"):
        graph.thaw(pickle.dumps(Malice(what, "1")), ROOMS)


def test_what_a_room_has_imported_is_not_of_the_room() -> None:
    stolen = b"\x80\x04\x8c\x13broker.node.history\x8c\x09os.getpid\x93)R."
    with pytest.raises(FolderRefused, match=r"os\.getpid has no place in it"):
        graph.thaw(stolen, ROOMS)


@pytest.mark.parametrize("damaged", [b"", b"\x80", b"x", graph.freeze({1: 2})[:-3]])
def test_what_is_no_state_is_refused(damaged: bytes) -> None:
    with pytest.raises(FolderRefused, match="cannot be read"):
        graph.thaw(damaged, ROOMS)
