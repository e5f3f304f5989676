"""Whether a step of a plan makes sense by itself: asked of whatever comes from a link; pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.filters import Filter, FilterError
from broker.limits import LimitExceeded, Limits, check_filter_within, check_publication
from broker.site import ProtocolError
from broker.txmessages import Before, Planned

NESTING_MAX = 16
GOOD_MAX = 1024
RECORD_KINDS = ("adv", "uadv", "sub", "usub")


class Checker:
    """Remembers the filters that it has found good: all steps of a plan carry those of the steps before."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._good: set[Filter] = set()

    def check_step(self, planned: Planned, before: Iterable[Before]) -> None:
        self._check_planned(planned, 0)
        self.check_before(before)

    def check_before(self, before: Iterable[Before]) -> None:
        for earlier in before:
            self._check_filter(earlier.kind, earlier.filter)

    def _check_planned(self, planned: Planned, depth: int) -> None:
        if planned.step < 1:
            raise ProtocolError("the steps of a plan are numbered from 1")
        self._check_filter(planned.kind, planned.filter)
        if (planned.kind == "pub") != (planned.event is not None):
            raise ProtocolError("of the steps of a plan, publications have an event and others do not")
        if (planned.kind == "tcm") != bool(planned.nested):
            raise ProtocolError("of the steps of a plan, each tcm asks for something and others do not")
        if depth > NESTING_MAX:
            raise ProtocolError(f"a plan with more than {NESTING_MAX} levels")
        try:
            if planned.event is not None:
                check_publication(planned.event, planned.payload, self._limits)
        except (FilterError, LimitExceeded) as error:
            raise ProtocolError(str(error)) from error
        for nested in planned.nested:
            self._check_planned(nested, depth + 1)

    def _check_filter(self, kind: str, filter_: Filter | None) -> None:
        if (kind in RECORD_KINDS) != (filter_ is not None):
            raise ProtocolError("of the steps of a plan, only those that change a table have a filter")
        if filter_ is None or filter_ in self._good:
            return
        try:
            check_filter_within(filter_, self._limits)
        except (FilterError, LimitExceeded) as error:
            raise ProtocolError(str(error)) from error
        if len(self._good) >= GOOD_MAX:
            self._good.clear()
        self._good.add(filter_)
