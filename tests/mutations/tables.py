"""Planted faults in the routing tables: stamps, tags, undoing, compaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from broker.matching import many
from broker.matching.index import Index
from broker.matching.records import Record
from broker.protocol.filters import Event
from broker.protocol.messages import Operation
from broker.routing.compaction import Compaction
from broker.routing.ready import Ready
from broker.routing.regular import Regular
from broker.routing.srt import SRT
from broker.routing.tables import Routing
from broker.transactions.dtx.machine import Dtx
from broker.transactions.dtx.operations import Operations
from broker.transactions.stx.machine import Stx
from tests.mutations.patching import replace


class Arrival(tuple[Any, ...]):
    """A stamp that is equal by what it says, and ordered by when it came."""

    place: int

    def __lt__(self, other: object) -> bool:
        return self.place < getattr(other, "place", 1 << 62)

    def __gt__(self, other: object) -> bool:
        return self.place > getattr(other, "place", 1 << 62)

    __hash__ = tuple.__hash__


def records_count_in_order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    """D-TX A11 (H12), S-TX A8 (H8): of a client's records the newest by stamp decides."""
    places = count()

    def store(original: Any, self: Routing, record: Record, origin: str) -> None:
        stamp = Arrival(record.stamp)
        stamp.place = next(places)
        record.stamp = stamp
        original(self, record, origin)

    replace(patch, Routing, "store", store)
    patch.setattr(Index, "_share", lambda *_: None)


def aborts_undo_nothing(patch: pytest.MonkeyPatch) -> None:
    """D-TX N1, S-TX A12 (H10): an abort takes the transaction's records out of the tables."""
    patch.setattr(Routing, "drop", Routing.commit)


def aborts_undo_at_the_edge_only(patch: pytest.MonkeyPatch) -> None:
    """D-TX N1, S-TX A12: an abort takes the records out at every broker that has them."""

    def drop(original: Any, self: Routing, tag: str) -> Any:
        records = [record for _, record in self.prt if record.tag == tag]
        remote = [r for r in records if self._lives[r.client][1] in self._bits]
        copies = [(r, self._lives[r.client][1]) for r in remote]
        answer = original(self, tag)
        for record, hop in copies:
            record.tag = None
            self.prt.add(record, hop)
        return answer

    replace(patch, Routing, "drop", drop)


def only_what_came_in_the_transaction_is_undone(patch: pytest.MonkeyPatch) -> None:
    """D-TX N1: a record is undone by its tag, also where another transaction's advertisement brought it."""

    def adopt(original: Any, self: Any, record: Record, message: Operation) -> bool:
        answer: bool = original(self, record, message)
        record.tag = None
        return answer

    replace(patch, Dtx, "adopt", adopt)
    replace(patch, Stx, "adopt", adopt)


def stragglers_of_an_aborted_transaction_are_stored(patch: pytest.MonkeyPatch) -> None:
    """D-TX N3: a record that comes after its transaction was aborted is not stored."""

    def adopt(original: Any, self: Any, record: Record, message: Operation) -> bool:
        original(self, record, message)
        return True

    replace(patch, Dtx, "adopt", adopt)


def stragglers_of_an_aborted_plan_are_stored(patch: pytest.MonkeyPatch) -> None:
    """S-TX A12: a record that comes after its plan was aborted is not stored."""

    def adopt(original: Any, self: Any, record: Record, message: Operation) -> bool:
        original(self, record, message)
        return True

    replace(patch, Stx, "adopt", adopt)


def stragglers_of_an_aborted_transaction_are_passed_on(patch: pytest.MonkeyPatch) -> None:
    """D-TX N3: a record that comes after its transaction was aborted is not passed on either."""

    def handle(original: Any, self: Any, source: str, message: Operation) -> Ready:
        tomb = self._transactions.dtx.tombs.get(message.tx)
        if tomb is None or tomb.committed:
            answer: Ready = original(self, source, message)
            return answer
        srt = self._routing.srt
        wanting = [hop for hop in self._state.others(source) if srt.wants(hop, message.filter)]
        return Ready([(hop, message) for hop in wanting], [])

    replace(patch, Regular, "_operation", handle)


def records_brought_by_others_stop_there(patch: pytest.MonkeyPatch) -> None:
    """D-TX_NI: a record that another advertisement has brought before goes on like a new one."""

    def place(
        original: Any, self: Operations, context: Any, origin: str, record: Record, ready: Ready
    ) -> Any:
        if self._routing.find(record, origin) is not None:
            return ()
        return original(self, context, origin, record, ready)

    replace(patch, Operations, "_place", place)


def withdrawals_take_effect_at_once(patch: pytest.MonkeyPatch) -> None:
    """S-TX A13, D-TX N2: the uadv of a transaction counts when it commits."""

    def overlaps_live(original: Any, self: SRT, log: Any, filter_: Any) -> bool:
        tags = [(record, record.tag) for record in log if record.kind == "uadv"]
        try:
            for record, _ in tags:
                record.tag = None
            answer: bool = original(self, log, filter_)
        finally:
            for record, tag in tags:
                record.tag = tag
        return answer

    replace(patch, SRT, "_overlaps_live", overlaps_live)


def compaction_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Records without effect stay while a transaction is open that may have counted on them."""
    patch.setattr(Compaction, "is_free", property(lambda self: True))


def others_see_what_may_not_be_taken_back(patch: pytest.MonkeyPatch) -> None:
    """S-TX option R: the usub of an undecided transaction does not count for others."""

    def seen(_: Any, self: Routing, tag: str = "", step: int = 0) -> Any:
        for record, hop in self.prt.index.tagged():
            if record.tag != tag or not step or record.step < step:
                yield record, hop

    replace(patch, Routing, "_seen", seen)

    def beside(_: Any, self: Routing, event: Event) -> Any:
        return self.prt.index.hops_with(self._seen(), event)

    def one_by_one(_: Any, self: Routing, events: Sequence[Event]) -> Any:
        return list(map(self.wanted_by, events))

    replace(patch, Routing, "_hops_beside_tagged", beside)
    replace(patch, Routing, "wanted_by_each", one_by_one)


def a_batch_loses_its_last(patch: pytest.MonkeyPatch) -> None:
    """Section 2.2: of publications that are decided on together each goes where it would go alone."""

    def lossy(original: Any, index: Index, batch: Any) -> Any:
        return [*original(index, batch)[:-1], ()]

    replace(patch, many, "_hops_of_batch", lossy)


def steps_see_what_comes_after_them(patch: pytest.MonkeyPatch) -> None:
    """S-TX A9 (H7): a publication is matched with what its plan wrote before it, and not after it."""

    def seen(original: Any, self: Routing, tag: str = "", _: int = 0) -> Any:
        return original(self, tag, 0)

    replace(patch, Routing, "_seen", seen)


def plans_count_on_undecided_advertisements(patch: pytest.MonkeyPatch) -> None:
    """S-TX 2.9: a plan may publish what is advertised, not what another transaction may advertise."""

    def admits(original: Any, self: SRT, client: str, hop: str, event: Any, *rest: Any, **named: Any) -> bool:
        tags = [(record, record.tag) for record in self.log(client, hop) if record.positive]
        try:
            for record, _ in tags:
                record.tag = None
            answer: bool = original(self, client, hop, event, *rest, **named)
        finally:
            for record, tag in tags:
                record.tag = tag
        return answer

    replace(patch, SRT, "admits", admits)


def committed_records_lose_their_name(patch: pytest.MonkeyPatch) -> None:
    """S-TX A16 (H15): a record that leaves a committed broker tells which step it was."""

    def nameless(original: Any, self: Routing, record: Record) -> Any:
        if record.tag is not None:
            return original(self, record)
        return Operation(record.kind, record.client, record.stamp, record.filter)

    replace(patch, Routing, "operation", nameless)


def committed_records_pass_for_undecided_ones(patch: pytest.MonkeyPatch) -> None:
    """S-TX A16 (H15): a record that leaves a committed broker tells that its transaction is decided."""

    def undecided(_original: Any, _self: Routing, record: Record) -> Operation:
        tx = record.tag or record.writer
        return Operation(record.kind, record.client, record.stamp, record.filter, tx, record.step, False)

    replace(patch, Routing, "operation", undecided)
