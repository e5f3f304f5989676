"""When records without effect may leave the tables."""

from __future__ import annotations

from broker.matching.records import Record
from broker.protocol.filters import make_filter, one_of
from broker.protocol.messages import Forget
from broker.routing.tables import Routing

CLIENT, NEIGHBOUR = "client:c", "broker:b2"


def stamp(number: int) -> tuple[tuple[int, str], int, int, int]:
    return ((0, ""), 1, 7, number)


def record(kind: str, number: int, x: int = 0, tag: str | None = None) -> Record:
    return Record(kind, "c", stamp(number), make_filter({"x": x}), tag)  # type: ignore[arg-type]


def routing(*open_: str) -> tuple[Routing, dict[str, object]]:
    tables = Routing((NEIGHBOUR,), "all", 1000)
    unfinished: dict[str, object] = dict.fromkeys(open_)
    tables.compaction.unfinished = (unfinished,)
    return tables, unfinished


def test_with_nothing_open_what_is_undone_goes_at_once() -> None:
    tables, _ = routing()
    tables.apply(record("sub", 1), CLIENT)
    tables.apply(record("usub", 2), CLIENT)
    assert len(tables.prt) == 0


def test_what_comes_while_something_is_open_goes_when_that_has_ended() -> None:
    tables, open_ = routing("t1")
    tables.apply(record("sub", 1), CLIENT)
    tables.apply(record("usub", 2), CLIENT)
    assert tables.compaction.sweep() == []
    open_["t2"] = None
    assert tables.compaction.sweep() == []
    assert len(tables.prt) == 2
    del open_["t1"]
    tables.compaction.sweep()
    assert len(tables.prt) == 0  # the second has begun after they had come


def test_what_comes_later_waits_for_those_that_were_open_by_then() -> None:
    tables, open_ = routing("t1")
    tables.apply(record("sub", 1), CLIENT)
    tables.compaction.sweep()
    open_["t2"] = None
    tables.apply(record("usub", 2), CLIENT)
    tables.compaction.sweep()
    del open_["t1"]
    tables.compaction.sweep()
    assert [r.kind for _, r in tables.prt] == ["usub"]  # it contains the other, and may be needed itself
    del open_["t2"]
    tables.compaction.sweep()
    assert len(tables.prt) == 0


def test_neighbours_that_know_a_record_are_told_to_forget_it() -> None:
    tables, _ = routing()
    tables.apply(Record("adv", "a", ((0, ""), 1, 9, 1), make_filter({"x": 0})), NEIGHBOUR)
    tables.apply(record("sub", 1), CLIENT)
    sends = tables.apply(record("usub", 2), CLIENT)
    assert sends[-1] == (NEIGHBOUR, Forget("c", stamp(2)))


def test_a_forget_that_comes_while_something_is_open_is_kept_in_mind() -> None:
    tables, open_ = routing("t1")
    tables.apply(record("sub", 1), NEIGHBOUR)
    tables.apply(record("usub", 2), NEIGHBOUR)
    assert tables.forget("c", stamp(2)) == []
    assert len(tables.prt) == 2
    open_.clear()
    tables.compaction.sweep()
    assert len(tables.prt) == 0


def test_an_undecided_record_neither_goes_nor_covers_another() -> None:
    tables, open_ = routing("t1")
    tables.apply(record("sub", 1), CLIENT)
    tables.apply(record("usub", 2, tag="t2"), CLIENT)
    open_.clear()
    tables.compaction.sweep()
    assert len(tables.prt) == 2


def test_an_older_record_that_comes_late_goes_if_a_newer_one_contains_it() -> None:
    tables, open_ = routing("t1")
    tables.apply(record("sub", 2), CLIENT)
    tables.apply(record("sub", 1), CLIENT)
    open_.clear()
    tables.compaction.sweep()
    assert [r.stamp for _, r in tables.prt] == [stamp(2)]


def test_advertisements_that_are_withdrawn_and_renewed_leave_one_record() -> None:
    tables, open_ = routing("t1")
    for number in range(1, 8):
        tables.apply(record("adv" if number % 2 else "uadv", number), CLIENT)
    open_.clear()
    tables.compaction.sweep()
    assert [r.stamp for _, r in tables.srt] == [stamp(7)]


def test_who_begins_late_with_an_early_key_learns_that_something_was_dropped() -> None:
    tables, _ = routing()
    late = Record("usub", "c", ((5, "t5"), 1, 7, 1), make_filter({"x": 0}))
    tables.apply(late, CLIENT)
    assert len(tables.prt) == 0
    assert tables.compaction.floors == {"c": (5, "t5")}
    tables.remove_client("c", 7, CLIENT)
    assert tables.compaction.floors == {}


def test_an_unsubscription_goes_when_the_last_that_it_takes_back_has_gone() -> None:
    """Its own filter is nowhere said again."""
    tables, _ = routing()
    for kind, number, values in (("sub", 1, (1, 2)), ("usub", 2, (2, 3)), ("usub", 3, (1, 2))):
        filter_ = make_filter({"x": one_of(*values)})
        tables.apply(Record(kind, "c", stamp(number), filter_), CLIENT)  # type: ignore[arg-type]
        tables.compaction.sweep()
    assert len(tables.prt) == 0


def test_what_is_hidden_by_something_void_is_forgotten_by_its_own_name() -> None:
    """The newer one goes before it has hidden the older one at the neighbour."""
    tables, open_ = routing("t1")
    whole = make_filter({"x": one_of(0, 1)})
    tables.apply(Record("sub", "c", stamp(1), whole), CLIENT)
    for number in (2, 3):
        tables.apply(record("sub", number), CLIENT)
        tables.mark_sent("c", stamp(number), NEIGHBOUR)
    open_.clear()
    assert tables.compaction.sweep() == [(NEIGHBOUR, Forget("c", stamp(number))) for number in (2, 3)]
    assert [r.stamp for _, r in tables.prt] == [stamp(1)]


def test_what_a_void_unsubscription_contains_is_forgotten_where_that_one_was_never_sent() -> None:
    tables, open_ = routing("t1")
    for number in (1, 2):
        tables.apply(record("usub", number), CLIENT)
    tables.mark_sent("c", stamp(1), NEIGHBOUR)
    open_.clear()
    assert tables.compaction.sweep() == [(NEIGHBOUR, Forget("c", stamp(1)))]
    assert len(tables.prt) == 0


def test_what_a_neighbour_has_dropped_goes_as_soon_as_it_has_no_effect_here_any_more() -> None:
    """It was forgotten while it still took back what only brokers beyond could not forget."""
    tables, _ = routing()
    tables.apply(record("sub", 1, 3), NEIGHBOUR)
    tables.mark_sent("c", stamp(1), NEIGHBOUR)
    tables.apply(Record("usub", "c", stamp(2), make_filter({"x": one_of(2, 3)})), NEIGHBOUR)
    tables.forget("c", stamp(2))
    assert len(tables.prt) == 2, "what it takes back is known elsewhere, and it is not"
    newer = Record("sub", "c", stamp(3), make_filter({"x": one_of(0, 3)}), sent=1)
    tables.apply(newer, NEIGHBOUR)
    tables.compaction.sweep()
    assert [r.stamp for _, r in tables.prt] == [stamp(3)]
    tables.remove_client("c", 7, NEIGHBOUR)
    assert tables.compaction.__dict__["_lingering"] == {}
