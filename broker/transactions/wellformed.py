"""Whether a step of a plan makes sense by itself: asked of whatever comes from a link; pure."""

from __future__ import annotations

from collections.abc import Iterable

from broker.filters import Filter, FilterError
from broker.limits import LimitExceeded, Limits, check_filter_within, check_publication
from broker.site import ProtocolError
from broker.txmessages import Before, Planned

NESTING_MAX = 16
RECORD_KINDS = ("adv", "uadv", "sub", "usub")


def check_step(planned: Planned, before: Iterable[Before], limits: Limits) -> None:
    _check_planned(planned, limits, 0)
    check_before(before, limits)


def check_before(before: Iterable[Before], limits: Limits) -> None:
    for earlier in before:
        _check_filter(earlier.kind, earlier.filter, limits)


def _check_planned(planned: Planned, limits: Limits, depth: int) -> None:
    if planned.step < 1:
        raise ProtocolError("the steps of a plan are numbered from 1")
    _check_filter(planned.kind, planned.filter, limits)
    if (planned.kind == "pub") != (planned.event is not None):
        raise ProtocolError("of the steps of a plan, publications have an event and others do not")
    if (planned.kind == "tcm") != bool(planned.nested):
        raise ProtocolError("of the steps of a plan, each tcm asks for something and others do not")
    if depth > NESTING_MAX:
        raise ProtocolError(f"a plan with more than {NESTING_MAX} levels")
    try:
        if planned.event is not None:
            check_publication(planned.event, planned.payload, limits)
    except (FilterError, LimitExceeded) as error:
        raise ProtocolError(str(error)) from error
    for nested in planned.nested:
        _check_planned(nested, limits, depth + 1)


def _check_filter(kind: str, filter_: Filter | None, limits: Limits) -> None:
    if (kind in RECORD_KINDS) != (filter_ is not None):
        raise ProtocolError(
            "of the steps of a plan, those that change a table have a filter and others do not"
        )
    try:
        if filter_ is not None:
            check_filter_within(filter_, limits)
    except (FilterError, LimitExceeded) as error:
        raise ProtocolError(str(error)) from error
