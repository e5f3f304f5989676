"""Whether a step of a plan makes sense by itself: asked of whatever comes from a link; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from broker.protocol.filters import Event, Filter, FilterError
from broker.protocol.limits import LimitExceeded, Limits, check_filter_within, check_publication
from broker.protocol.stx import Before, Planned, StepKind
from broker.routing.ready import ProtocolError

NESTING_MAX = 16
GOOD_MAX = 1024
RECORD_KINDS = frozenset({"adv", "uadv", "sub", "usub"})

FITTING = {kind: (kind in RECORD_KINDS, kind == "pub", kind == "tcm") for kind in get_args(StepKind)}
"""Whether a step of each kind has a filter, an event, something nested."""
MISFIT = "in a plan a change of a table has a filter, a publication an event, and a tcm asks for something"


class Checker:
    """Remembers the filters that it has found good: all steps of a plan carry those of the steps before."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._good: set[Filter] = set()

    def check_step(self, planned: Planned, before: Iterable[Before]) -> None:
        self._check_planned(planned, 0)
        self.check_before(before)

    def check_before(self, before: Iterable[Before]) -> None:
        good = self._good
        for earlier in before:
            filter_ = earlier.filter
            if (earlier.kind in RECORD_KINDS) != (filter_ is not None):
                raise ProtocolError(MISFIT)
            if filter_ is not None and filter_ not in good:
                self._check_filter(filter_)

    def _check_planned(self, planned: Planned, depth: int) -> None:
        filter_, event, nested = planned.filter, planned.event, planned.nested
        if planned.step < 1:
            raise ProtocolError("the steps of a plan are numbered from 1")
        if depth > NESTING_MAX:
            raise ProtocolError(f"a plan with more than {NESTING_MAX} levels")
        if FITTING[planned.kind] != (filter_ is not None, event is not None, bool(nested)):
            raise ProtocolError(MISFIT)
        if filter_ is not None:
            if filter_ not in self._good:
                self._check_filter(filter_)
        elif event is not None:
            self._check_publication(event, planned.payload)
        for part in nested:
            self._check_planned(part, depth + 1)

    def _check_publication(self, event: Event, payload: bytes) -> None:
        try:
            check_publication(event, payload, self._limits)
        except (FilterError, LimitExceeded) as error:
            raise ProtocolError(str(error)) from error

    def _check_filter(self, filter_: Filter) -> None:
        try:
            check_filter_within(filter_, self._limits)
        except (FilterError, LimitExceeded) as error:
            raise ProtocolError(str(error)) from error
        if len(self._good) >= GOOD_MAX:
            self._good.clear()
        self._good.add(filter_)
